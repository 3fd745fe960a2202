"""Textual app, screens and widgets."""
