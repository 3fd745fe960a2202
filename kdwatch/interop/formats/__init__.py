"""One module for each family of log formats; each has `read(source, options) -> ImportedLog`."""
