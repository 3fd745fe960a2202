"""Recipes that come with kdwatch, to copy and change."""
