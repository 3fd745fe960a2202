"""Answers of a teacher: engines that make them, a store that survives a kill, filters."""
