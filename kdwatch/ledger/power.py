"""Power over time, integrated: one field of one device. Cheap for each sample, exact at an edge."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, NamedTuple

GAP_S = 2.0
"""Samples further apart than this (and than five usual periods) leave a gap: nothing is invented there."""
HELD_ENTRIES = 4
HELD_S = 0.0205
"""A value read again within this time is the same sample, held by the sensor until it changes."""
PERIOD_FROM_S = 0.05
"""Shorter intervals are bursts at edges: they say nothing of the period."""
DENSE_S = 0.03
"""Samples closer than this show every change that the sensor shows."""
EDGE_TIME_S = 0.03
"""Of power alone, an edge is known no better than this: values are that old."""


class Reach(NamedTuple):
    """What is known of a span that ends at some time, since the track began."""

    joules: float
    uncovered_s: float
    variance: float
    """Square joules: what steps between samples may have added or hidden."""


class Entry(NamedTuple):
    """One sample and the integrals up to it."""

    t: float
    watts: float
    joules: float
    uncovered_s: float
    variance: float


class PowerTrack:
    """Trapezoids between samples, or steps where a value is the mean of the time before it (`backward`).

    A step of height h somewhere between samples dt apart errs by at most h dt / 2, evenly spread: variance
    (h dt)^2 / 12. Gaps add time to `uncovered_s` and no energy.
    """

    __slots__ = ("_times", "age_s", "backward", "entries", "first_t", "lenient", "period_s", "read_t", "shift_s")

    def __init__(self, shift_s: float = 0.0, backward: bool = False, period_s: float = 0.0, age_s: float = 0.0) -> None:
        self.shift_s = shift_s
        """A sample speaks of the time this much before it was read (age of the value, half its window)."""
        self.backward = backward
        self.age_s = age_s
        """A value read by itself is this old on average; one seen to change is as old as half the read step."""
        self.read_t = -math.inf
        """When the newest value was read."""
        self.period_s = period_s
        """Usual time between samples, learned; bursts at edges do not count."""
        self.entries: list[Entry] = []
        self._times: list[float] = []
        self.first_t: float | None = None
        self.lenient = False
        """The period is not known beforehand: the first interval is no gap (imported logs)."""

    def add(self, t: float, watts: float) -> None:
        """Take a sample at time `t`, already checked. Samples that are not newer than the last are ignored."""
        entries = self.entries
        since = t - self.read_t
        self.read_t = t
        t -= min(self.age_s, 0.5 * since)
        if not entries:
            self.first_t = t
            entries.append(Entry(t, watts, 0.0, 0.0, 0.0))
            self._times.append(t)
            return
        if since <= HELD_S and self.age_s:
            if watts == entries[-1].watts:
                if t - entries[-1].t <= HELD_S:
                    return
            else:
                self._held_until(t)
        last = entries[-1]
        dt = t - last.t
        if dt <= 0.0:
            return
        gap = dt > GAP_S and dt > 5.0 * self.period_s and not (self.lenient and len(entries) == 1)
        if dt > PERIOD_FROM_S:
            self.period_s += (0.1 if self.period_s else 1.0) * (min(dt, 10.0 * self.period_s or dt) - self.period_s)
        entries.append(Entry(t, watts, *self._sums(last, t, watts, gap)))
        self._times.append(t)

    def restart(self, entries: list[Entry], period_s: float) -> None:
        """Go on from these entries; what was before is forgotten."""
        self.entries, self._times = entries, [entry.t for entry in entries]
        self.period_s, self.read_t = period_s, entries[-1].t

    def _held_until(self, t: float) -> None:
        """The value is seen to change at `t`: the sensor took the old one no longer than `HELD_S` before."""
        entries, sampled = self.entries, t - HELD_S
        if len(entries) > 1 and entries[-1].t > sampled and entries[-2].watts == entries[-1].watts:
            entries.pop()
            self._times.pop()
        last = entries[-1]
        if last.t < sampled and sampled - last.t <= self.gap_limit():
            entries.append(Entry(sampled, last.watts, *self._sums(last, sampled, last.watts, False)))
            self._times.append(sampled)

    def _sums(self, last: Entry, t: float, watts: float, gap: bool) -> tuple[float, float, float]:
        dt = t - last.t
        if gap:
            return last.joules, last.uncovered_s + dt, last.variance
        if self.backward:
            return last.joules + watts * dt, last.uncovered_s, last.variance
        step = (watts - last.watts) * dt
        return last.joules + last.watts * dt + 0.5 * step, last.uncovered_s, last.variance + step * step / 12.0

    @property
    def times(self) -> list[float]:
        """Times of the entries held."""
        return self._times

    def gap_limit(self) -> float:
        """Samples further apart than this leave a gap."""
        return max(GAP_S, 5.0 * self.period_s)

    def reach(self, t: float) -> Reach:
        """Integrals up to time `t`. Before the first and after the last sample their value holds, for as long
        as the gap rule allows."""
        t += self.shift_s
        if not self.entries:
            return Reach(0.0, 0.0, 0.0)
        at = bisect_right(self._times, t)
        if at == 0:
            return self._before(t)
        before = self.entries[at - 1]
        if at == len(self.entries):
            return self._after(before, t)
        after = self.entries[at]
        dt = t - before.t
        span = after.t - before.t
        share = dt / span
        if after.uncovered_s > before.uncovered_s:
            return Reach(before.joules, before.uncovered_s + dt, before.variance)
        if self.backward:
            joules = before.joules + after.watts * dt
        else:
            joules = before.joules + before.watts * dt + 0.5 * (after.watts - before.watts) * dt * share
        return Reach(joules, before.uncovered_s, before.variance + share * (after.variance - before.variance))

    def _before(self, t: float) -> Reach:
        first = self.entries[0]
        held = min(first.t - t, self.gap_limit()) if first.t == self.first_t else 0.0
        return Reach(first.joules - first.watts * held, first.uncovered_s - (first.t - t - held), first.variance)

    def _after(self, last: Entry, t: float) -> Reach:
        held = min(t - last.t, self.gap_limit())
        return Reach(last.joules + last.watts * held, last.uncovered_s + (t - last.t - held), last.variance)

    def watts_at(self, t: float) -> float | None:
        """The sample in force at time `t`; None without samples."""
        if not self.entries:
            return None
        at = bisect_right(self._times, t + self.shift_s)
        return self.entries[max(0, at - 1)].watts

    def spread(self, start: float, end: float) -> float:
        """Difference between the largest and smallest sample in force within a span."""
        low = max(0, bisect_right(self._times, start + self.shift_s) - 1)
        high = bisect_right(self._times, end + self.shift_s) + 1
        watts = [e.watts for e in self.entries[low:high]]
        return max(watts) - min(watts) if watts else 0.0

    def unseen(self, start: float, end: float) -> float:
        """Seconds of a span between samples so far apart that a short burst may hide there."""
        start, end = start + self.shift_s, end + self.shift_s
        at = max(0, bisect_right(self._times, start) - 1)
        hidden = 0.0
        for i in range(at, len(self._times) - 1):
            low, high = self._times[i], self._times[i + 1]
            if low >= end:
                break
            if high - low > DENSE_S:
                hidden += max(0.0, min(high, end) - max(low, start))
        return hidden

    def highest(self, start: float, end: float) -> float | None:
        """Largest sample read in `start < t <= end` among those still held."""
        low, high = bisect_right(self._times, start), bisect_right(self._times, end)
        return max((e.watts for e in self.entries[low:high]), default=None)

    def prune(self, before: float) -> float | None:
        """Forget samples read before a time, keeping a few; returns the time of the newest forgotten."""
        cut = min(bisect_right(self._times, before), len(self._times) - HELD_ENTRIES)
        if cut <= 0:
            return None
        newest = self._times[cut - 1]
        del self.entries[:cut], self._times[:cut]
        return newest

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON. Sums are stored once, at the oldest: the same additions give the rest."""
        entries = self.entries
        return {
            "t": [e.t for e in entries],
            "watts": [e.watts for e in entries],
            "gaps": [i for i in range(1, len(entries)) if entries[i].uncovered_s > entries[i - 1].uncovered_s],
            "sums": list(entries[0][2:]) if entries else None,
            "period_s": self.period_s,
            "first_t": self.first_t,
            "read_t": None if math.isinf(self.read_t) else self.read_t,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        gaps = set(state["gaps"])
        self.entries = []
        for i, (t, watts) in enumerate(zip(state["t"], state["watts"], strict=True)):
            previous = self.entries[-1] if i else None
            sums = self._sums(previous, t, watts, i in gaps) if previous else state["sums"]
            self.entries.append(Entry(float(t), float(watts), *map(float, sums)))
        self._times = [e.t for e in self.entries]
        self.period_s = float(state["period_s"])
        self.first_t = state["first_t"]
        self.read_t = -math.inf if state["read_t"] is None else float(state["read_t"])
