"""Widgets that draw lines of text and send only the rows that changed."""
