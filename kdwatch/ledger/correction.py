"""What point samples of power miss, taken from the sensor's own running mean.

A mean over the last W seconds is the exact energy of those seconds; the mean of the point samples over the same
seconds is not, where power comes in bursts. Their difference, integrated, is the energy that sampling missed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from kdwatch.ledger.power import PowerTrack

AGE_S = 0.05
"""Half the usual time between updates of an averaged field (0.1 s)."""
HELD_ENTRIES = 4


class Correction:
    """Integral of (running mean - mean of the samples over its window), centred on the window."""

    __slots__ = ("_times", "entries", "power", "square", "window_s")

    def __init__(self, power: PowerTrack, window_s: float) -> None:
        self.power = power
        self.window_s = window_s
        self.entries: list[tuple[float, float, float]] = []
        """(centre of the window, watts missed there, joules missed so far)."""
        self._times: list[float] = []
        self.square = 0.0
        """Running mean of the square of the watts missed, for the bound."""

    def add(self, t: float, average_w: float) -> None:
        """Take the averaged field as read at `t`."""
        end = t - AGE_S
        start = end - self.window_s
        if not self.power.entries or start < self.power.entries[0].t:
            return
        high, low = self.power.reach(end), self.power.reach(start)
        if high.uncovered_s > low.uncovered_s:
            return
        watts = average_w - (high.joules - low.joules) / self.window_s
        centre = start + 0.5 * self.window_s
        if not self.entries:
            self._append(centre, watts, 0.0)
            return
        last_t, last_w, joules = self.entries[-1]
        dt = centre - last_t
        if dt <= 0.0:
            return
        if dt <= self.power.gap_limit():
            joules += 0.5 * (watts + last_w) * dt
        self.square += min(1.0, dt / self.window_s) * (watts * watts - self.square)
        self._append(centre, watts, joules)

    def _append(self, t: float, watts: float, joules: float) -> None:
        self.entries.append((t, watts, joules))
        self._times.append(t)

    def at(self, t: float) -> float:
        """Joules missed up to `t`; beyond either end the nearest value holds for one window."""
        if not self.entries:
            return 0.0
        at = bisect_right(self._times, t)
        if at == 0:
            first_t, watts, joules = self.entries[0]
            return joules - watts * min(first_t - t, self.window_s)
        last_t, watts, joules = self.entries[at - 1]
        if at == len(self.entries):
            return joules + watts * min(t - last_t, self.window_s)
        next_t, _, after = self.entries[at]
        return joules + (after - joules) * (t - last_t) / (next_t - last_t)

    def variance_at(self, t: float) -> float:
        """Variance of an edge at `t`: the missed energy of one window lies anywhere in it."""
        missed = self.square * self.window_s * self.window_s / 6.0
        step = self.power.spread(t - 0.1, t + 0.1) * 0.1
        return missed + step * step / 12.0

    def prune(self, before: float) -> None:
        """Forget entries before a time, keeping a few."""
        cut = min(bisect_right(self._times, before), len(self._times) - HELD_ENTRIES)
        if cut > 0:
            del self.entries[:cut], self._times[:cut]

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""
        return {"entries": [list(e) for e in self.entries], "square": self.square}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.entries = [(float(t), float(w), float(j)) for t, w, j in state["entries"]]
        self._times = [e[0] for e in self.entries]
        self.square = float(state["square"])
