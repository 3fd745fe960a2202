"""What to keep of a burst of readings: all that tells when a value changed."""

from __future__ import annotations

from collections.abc import Sequence

from kdwatch.meters.base import Reading

Values = tuple[float | None, float | None, float | None]


def _values(reading: Reading) -> Values:
    return reading.counter_j, reading.power_w, reading.average_w


def thin(readings: Sequence[Reading]) -> list[Reading]:
    """Readings of one device without those amid a run of equal ones: first and last of every run stay, so that
    every change keeps the reading just before it and the integral of steps is the same."""
    kept = []
    for i, reading in enumerate(readings):
        same_before = i > 0 and _values(readings[i - 1]) == _values(reading)
        same_after = i + 1 < len(readings) and _values(readings[i + 1]) == _values(reading)
        if not (same_before and same_after):
            kept.append(reading)
    return kept


def ticked(readings: Sequence[Reading]) -> bool:
    """Whether the energy counter was seen to change."""
    seen = [r.counter_j for r in readings if r.counter_j is not None]
    return bool(seen) and seen[-1] != seen[0]
