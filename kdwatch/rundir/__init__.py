"""The run directory: schema, crash-safe writer, tolerant reader, live tail."""
