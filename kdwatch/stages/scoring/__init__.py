"""Scores of a model: exact match, perplexity, teacher agreement, lm-evaluation-harness, any command; and Q."""
