"""The logit cache: what a teacher said at every response position, compact on disk. Imports numpy, never torch."""
