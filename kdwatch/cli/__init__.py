"""Click commands; thin."""
