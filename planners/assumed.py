"""What is taken where nothing was repeated. Imports nothing."""

from __future__ import annotations

ASSUMED_ENERGY_CV = 0.03
"""Coefficient of variation of a run's energy where nothing was repeated."""
ASSUMED_QUALITY_SD = 0.02
"""Standard deviation of Q where nothing was repeated."""
