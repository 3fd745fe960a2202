"""Text to token arrays and back. Imports numpy, tokenizers and jinja2; never torch."""
