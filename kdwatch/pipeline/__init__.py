"""Recipe, recorder (its own process), launchers."""
