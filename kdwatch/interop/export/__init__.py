"""Runs in the formats of other tools. Each module turns a report into text, or a run into a file."""
