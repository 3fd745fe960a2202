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


BEYOND_S = 0.03
"""Time after a tick in which instantaneous power is renewed once more (every 20 ms on the boards known)."""


class TickWatch:
    """Follows one counter during a burst: enough is seen after two ticks, which tell its period, or a little after
    the first, so that power is known on both sides of it."""

    __slots__ = ("_last_j", "_tick_t", "enough")

    def __init__(self) -> None:
        self._last_j: float | None = None
        self._tick_t: float | None = None
        self.enough = False

    def see(self, reading: Reading) -> None:
        """Take the next reading."""
        if reading.counter_j is None:
            return
        if self._last_j is not None and reading.counter_j != self._last_j:
            self.enough = self._tick_t is not None
            self._tick_t = reading.t
        elif self._tick_t is not None and reading.t - self._tick_t > BEYOND_S:
            self.enough = True
        self._last_j = reading.counter_j
