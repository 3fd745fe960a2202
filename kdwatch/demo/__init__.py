"""The embedded demo: a family of small exact-match tasks, shipped checkpoints, and three recipes."""
