"""Power traces of a simulated board: straight lines, one after the other, for ever; and their exact integral."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Trace:
    """Segments of (seconds, watts at the beginning, watts at the end)."""

    name: str
    segments: tuple[tuple[float, float, float], ...]

    @cached_property
    def period_s(self) -> float:
        """Length of one round in seconds."""
        return sum(length for length, _, _ in self.segments)

    @cached_property
    def period_j(self) -> float:
        """Joules of one round."""
        return sum(length * (a + b) / 2 for length, a, b in self.segments)

    def joules(self, start: float, end: float) -> float:
        """Exact energy between two times on the trace's own clock."""
        return self._since_zero(end) - self._since_zero(start)

    def _since_zero(self, t: float) -> float:
        rounds = math.floor(t / self.period_s)
        rest, total = t - rounds * self.period_s, rounds * self.period_j
        for length, a, b in self.segments:
            if rest < length:
                return total + rest * (a + (b - a) / length * rest / 2)
            rest -= length
            total += length * (a + b) / 2
        return total


def constant(watts: float = 300.0) -> Trace:
    """The same power all the time."""
    return Trace("constant", ((1.0, watts, watts),))


def square(low: float = 100.0, high: float = 700.0, half_s: float = 0.35) -> Trace:
    """Low and high in turn."""
    return Trace("square", ((half_s, low, low), (half_s, high, high)))


def ramp(low: float = 80.0, high: float = 650.0, length_s: float = 20.0) -> Trace:
    """Up and down in straight lines."""
    return Trace("ramp", ((length_s, low, high), (length_s, high, low)))


def bursts(base: float = 90.0, top: float = 700.0, length_s: float = 0.05) -> Trace:
    """Short bursts once a second."""
    return Trace("bursts", ((length_s, top, top), (1.0 - length_s, base, base)))


def training(seed: int = 7) -> Trace:
    """Steps of about 0.42 s with a dip for the optimiser and the next batch; every 30 steps an evaluation of 2 s at
    less power. Lengths and heights scatter as those of real steps do."""
    draw = random.Random(seed)
    segments: list[tuple[float, float, float]] = []
    for step in range(1, 121):
        high = 600.0 + draw.uniform(-30, 30)
        segments += [(0.30 + draw.uniform(-0.02, 0.02), high, high + draw.uniform(-20, 20))]
        segments += [(0.07 + draw.uniform(-0.02, 0.02), 380.0, 420.0), (0.05, 250.0, 250.0)]
        if step % 30 == 0:
            segments += [(2.0 + draw.uniform(-0.2, 0.2), 330.0, 350.0), (0.3, 140.0, 140.0)]
    return Trace("training", tuple(segments))


ALL = (constant(), square(), ramp(), bursts(), training())
