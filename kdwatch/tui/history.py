"""Power over time for the plot: min, mean and max per bucket at four resolutions, in flat memory.

A series keeps fine buckets for the last minutes and one level over the whole run whose buckets double in
width whenever it is full. A plot column takes the range of the buckets that fall into it; where a device gave
nothing for longer than its own rhythm explains, the column is a gap.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kdwatch.rundir.parse import Sample
from kdwatch.rundir.rollup import powers_by_key
from kdwatch.tui.rollups import Segment, fold

Range = tuple[float, float] | None
"""Lowest and highest value in a column, or None where there is no data."""

FIXED_LEVELS = ((0.125, 720), (1.25, 640), (7.5, 640))
"""(bucket width in s, buckets kept): for windows of 1 min, 10 min and 1 h at 480 sub-columns."""

WHOLE_WIDTH_S, WHOLE_BUCKETS = 0.25, 2048
"""First bucket width and number of buckets of the level that covers the whole run."""

TOTAL = "total"
"""Key of the series that sums all devices."""

FORGET_S = 60.0
"""A device silent for longer than this is no longer waited for in the total."""


class Level:
    """Buckets of one width, oldest first; those without data are not stored."""

    __slots__ = ("capacity", "fixed", "high", "index", "low", "n", "total", "until", "width")

    def __init__(self, width: float, capacity: int, fixed: bool = True) -> None:
        self.width, self.capacity, self.fixed = width, capacity, fixed
        self.until = -math.inf
        """End of the newest bucket, run time in s: what comes before it joins that bucket."""
        self.index: list[int] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.total: list[float] = []
        self.n: list[int] = []

    def add(self, t: float, low: float, mean: float, high: float) -> None:
        """Count one value (or one rolled-up bucket) at run time `t`; late ones join the last bucket."""
        if t >= self.until:
            bucket = int(t // self.width)
            if not self.index or bucket > self.index[-1]:
                self._begin(bucket, low, mean, high)
                return
        if low < self.low[-1]:
            self.low[-1] = low
        if high > self.high[-1]:
            self.high[-1] = high
        self.total[-1] += mean
        self.n[-1] += 1

    def _begin(self, bucket: int, low: float, mean: float, high: float) -> None:
        """A new bucket; makes room where there are too many."""
        self.index.append(bucket)
        self.low.append(low)
        self.high.append(high)
        self.total.append(mean)
        self.n.append(1)
        if len(self.index) > self.capacity + self.capacity // 4:
            self._drop_oldest() if self.fixed else self._double()
        self.until = (self.index[-1] + 1) * self.width

    def _drop_oldest(self) -> None:
        cut = len(self.index) - self.capacity
        for column in (self.index, self.low, self.high, self.total, self.n):
            del column[:cut]

    def _double(self) -> None:
        """Merge pairs of buckets; the width doubles, the number about halves."""
        old = list(zip(self.index, self.low, self.high, self.total, self.n, strict=True))
        self.width *= 2
        self.index, self.low, self.high, self.total, self.n = [], [], [], [], []
        for bucket, low, high, total, n in old:
            half = bucket >> 1
            if self.index and self.index[-1] == half:
                self.low[-1] = min(self.low[-1], low)
                self.high[-1] = max(self.high[-1], high)
                self.total[-1] += total
                self.n[-1] += n
            else:
                self.index.append(half)
                self.low.append(low)
                self.high.append(high)
                self.total.append(total)
                self.n.append(n)

    def reaches(self, t: float) -> bool:
        """True if this level still holds what happened at run time `t`."""
        return bool(self.index) and (self.index[0] * self.width <= t or not self.fixed)


class Series:
    """One device's power at all resolutions."""

    __slots__ = ("first_t", "last_t", "last_value", "levels", "peak", "period")

    def __init__(self) -> None:
        self.levels = [Level(w, c) for w, c in FIXED_LEVELS]
        self.levels.append(Level(WHOLE_WIDTH_S, WHOLE_BUCKETS, fixed=False))
        self.period = 0.5
        self.first_t: float | None = None
        self.last_t: float | None = None
        self.last_value: float | None = None
        self.peak = 0.0

    def add(self, t: float, value: float) -> None:
        """One sample: `value` watts at run time `t`."""
        if self.last_t is not None:
            step = t - self.last_t
            if step > 0:
                self.period += 0.1 * (min(step, 3 * self.period) - self.period)
        self._note(t, value, value)
        for level in self.levels:
            level.add(t, value, value, value)

    def add_range(self, t: float, low: float, mean: float, high: float) -> None:
        """One rolled-up bucket of an earlier time; only the whole-run level takes it."""
        self._note(t, high, mean)
        self.levels[-1].add(t, low, mean, high)

    def _note(self, t: float, high: float, value: float) -> None:
        if self.first_t is None:
            self.first_t = t
        self.last_t, self.last_value = t, value
        if high > self.peak:
            self.peak = high

    @property
    def gap_s(self) -> float:
        """Silence longer than this is a gap."""
        return max(1.2, 3.5 * self.period)

    def fresh(self, t: float) -> bool:
        """True if the last value is recent enough to stand for run time `t`."""
        return self.last_t is not None and t - self.last_t <= self.gap_s

    def columns(self, start: float, end: float, n: int) -> list[Range]:
        """The range of values in each of `n` equal columns from `start` to `end` (run time, s)."""
        if n <= 0 or end <= start:
            return [None] * max(n, 0)
        column_s = (end - start) / n
        level = self._level(start, column_s)
        return _columns(level, start, column_s, n, self.gap_s)

    def _level(self, start: float, column_s: float) -> Level:
        """The coarsest level fine enough for a column, else the finest that reaches back to `start`."""
        reaching = [lv for lv in self.levels if lv.reaches(max(start, self.first_t or 0.0))]
        if not reaching:
            return self.levels[-1]
        fine = [lv for lv in reaching if lv.width <= column_s * 1.001]
        return fine[-1] if fine else reaching[0]

    def mean(self, start: float, end: float) -> float | None:
        """Mean of the samples between two run times, or None."""
        level = self._level(start, max(end - start, 1e-9) / 8)
        lo = bisect_left(level.index, int(start // level.width))
        hi = bisect_left(level.index, int(end // level.width) + 1)
        n = sum(level.n[lo:hi])
        return sum(level.total[lo:hi]) / n if n else None


def _columns(level: Level, start: float, column_s: float, n: int, gap_s: float) -> list[Range]:
    """Fold a level's buckets into columns and bridge the short silences between them."""
    out: list[Range] = [None] * n
    end = start + column_s * n
    first = max(bisect_left(level.index, int(start // level.width)) - 1, 0)
    allowed = max(gap_s, level.width * (1.01 if level.fixed else 2.01))
    before: tuple[int, float, float, float] | None = None
    for i in range(first, len(level.index)):
        t = (level.index[i] + 0.5) * level.width
        low, high = level.low[i], level.high[i]
        column = int(_inside(t, level.width / 2, start, end, column_s) // column_s)
        if 0 <= column < n:
            there = out[column]
            out[column] = (low, high) if there is None else (min(there[0], low), max(there[1], high))
        _bridge(out, before, (column, t, low, high), allowed)
        before = (column, t, low, high)
        if column >= n:
            break
    return out


def _inside(t: float, half: float, start: float, end: float, column_s: float) -> float:
    """Time since `start` at which a bucket counts: its middle, or the edge where the window cuts it."""
    if t >= end > t - half:
        return end - start - column_s / 2
    if t < start < t + half:
        return 0.0
    return t - start


def _bridge(
    out: list[Range],
    before: tuple[int, float, float, float] | None,
    after: tuple[int, float, float, float],
    allowed: float,
) -> None:
    """Hold the earlier value in the empty columns between two buckets no further apart than `allowed`."""
    if before is None or after[0] - before[0] < 2 or after[1] - before[1] > allowed:
        return
    held = (before[2], before[3])
    for column in range(max(before[0] + 1, 0), min(after[0], len(out))):
        if out[column] is None:
            out[column] = held


@dataclass(frozen=True, slots=True)
class PlotView:
    """What one redraw of the plot needs."""

    start: float
    end: float
    columns: tuple[Range, ...]
    peak: float
    now_w: float | None


class History:
    """Power of every device of a run, and their total, for the plot."""

    def __init__(self, devices: Iterable[Mapping[str, Any]]) -> None:
        self._powers = powers_by_key(devices)
        self.series: dict[str, Series] = {key: Series() for key in self._powers}
        self.total = Series()
        self._lost: set[str] = set()
        self._pending_t: float | None = None

    def sample(self, sample: Sample) -> None:
        """One reading; where a device gives no power, it comes from its counter's increase."""
        series = self.series.get(sample.key)
        if series is None:
            return
        value = self._powers[sample.key].power(sample)
        if value is None or value < 0:
            return
        if self._pending_t is not None and sample.t > self._pending_t:
            self.settle()
        self._lost.discard(sample.key)
        series.add(sample.t, value)
        self._pending_t = sample.t

    def settle(self) -> None:
        """Add the total at the time of the last samples; once per poll, not once per device."""
        if self._pending_t is None:
            return
        total = self._sum(self._pending_t)
        if total is not None:
            self.total.add(self._pending_t, total)
        self._pending_t = None

    def _sum(self, t: float) -> float | None:
        """Power of all devices at `t`; None while one that is still expected is silent."""
        total = 0.0
        for key, series in self.series.items():
            if series.last_t is None or series.last_value is None or key in self._lost:
                continue
            if series.fresh(t):
                total += series.last_value
            elif t - series.last_t < FORGET_S:
                return None
        return total

    def lost(self, key: str) -> None:
        """The sensor is gone: leave the device out of the total until it speaks again."""
        self._lost.add(key)

    def roll_up(self, segments: Iterable[Segment], until: float) -> None:
        """Take the time before `until` from rolled-up rows. The total's range adds the devices' ranges: an outer
        bound, since they need not have peaked together."""
        span, folded = fold(segments, until, WHOLE_WIDTH_S, WHOLE_BUCKETS)
        sums: dict[int, list[float]] = {}
        for series in (*self.series.values(), self.total):
            series.levels[-1].width = span
        for key, slots in folded.items():
            series_of_key = self.series.get(key)
            if series_of_key is None:
                continue
            for slot, (low, total, high, n) in sorted(slots.items()):
                mean, t = total / n, (slot + 0.5) * span
                series_of_key.add_range(t, low, mean, high)
                there = sums.setdefault(slot, [0.0, 0.0, 0.0])
                there[0], there[1], there[2] = there[0] + low, there[1] + mean, there[2] + high
        for slot in sorted(sums):
            self.total.add_range((slot + 0.5) * span, *sums[slot])

    def view(self, key: str, start: float, end: float, n: int, now: float) -> PlotView:
        """Columns of the series `key` (a device or TOTAL) between two run times, and its power at `now`."""
        series = self.total if key == TOTAL else self.series.get(key)
        if series is None:
            return PlotView(start, end, (None,) * n, 0.0, None)
        columns = tuple(series.columns(start, end, n))
        peak = max((c[1] for c in columns if c is not None), default=0.0)
        power = series.last_value if series.fresh(now) else None
        return PlotView(start, end, columns, peak, power)
