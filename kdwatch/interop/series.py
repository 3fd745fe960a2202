"""A device's power samples and what follows from them: energy by the trapezoid, means, gaps.

The rule (docs/import-export.md states it for users): samples are sorted by time, stably; energy is the sum of
dt * (P_i + P_i+1) / 2 over neighbours; nothing is added before the first or after the last sample; a missing reading
is left out. A *gap* is a dt of more than 3 times the median positive dt. Energy is bridged over gaps, and given
without them.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import add, gt, sub

from kdwatch.interop.spool import Spool

GAP_FACTOR = 3.0
CLOCK_NOISE_S = 1e-6
"""Epoch seconds as doubles are exact to 0.2 us: a dt of exactly 3 medians is no gap."""
SUMMED = 100_000
EXACT_MEDIAN = 500_000
"""Up to this many intervals the median is exact; above, it comes from a histogram with bins of 0.01 %."""


@dataclass(frozen=True, slots=True)
class SeriesStats:
    """Times in seconds, power in watts, energy in joules. None where fewer than two samples leave it unknown."""

    n_samples: int
    duration_s: float | None
    energy_j: float | None
    energy_j_excluding_gaps: float | None
    mean_w: float | None
    """Time-weighted mean; of the samples where there is no duration."""
    mean_w_samples: float | None
    min_w: float | None
    peak_w: float | None
    median_dt_s: float | None
    max_dt_s: float | None
    n_zero_dt: int
    n_gaps: int
    gap_seconds: float
    start: float | None
    end: float | None


class PowerSeries:
    """Samples of one device, in any order, in bounded memory."""

    def __init__(self) -> None:
        self._spool = Spool()
        self.scale = 1.0
        """Factor to watts, applied when read: known only once the unit is."""
        self.negative = 0
        self.sentinels = 0
        self.zeros = 0
        self.fractions = 0
        """Readings that are no whole number: milliwatts come as whole numbers."""
        self.backward = 0
        """Times that lay before the one before."""
        self.longest_step_back = 0.0
        self._last = -math.inf
        self._sum = 0.0
        self._low = math.inf
        self._high = -math.inf

    def add(self, t: float, watts: float) -> None:
        """Take one reading: seconds on the file's time line and raw power, at least 0."""
        if t < self._last:
            self.backward += 1
            self.longest_step_back = max(self.longest_step_back, self._last - t)
        self._last = t
        if watts == 0.0:
            self.zeros += 1
        elif watts % 1:
            self.fractions += 1
        self._sum += watts
        if watts < self._low:
            self._low = watts
        if watts > self._high:
            self._high = watts
        self._spool.add(t, watts)

    def extend(self, times: Sequence[float], watts: Sequence[float]) -> None:
        """Take many readings, as `add` would one after the other."""
        if not times:
            return
        if times[0] < self._last or any(map(gt, times, islice(times, 1, None))):
            for t, value in zip(times, watts, strict=True):
                self.add(t, value)
            return
        self._last = times[-1]
        self.zeros += watts.count(0.0)
        self.fractions += len(watts) - sum(map(float.is_integer, watts))
        self._sum = sum(watts, self._sum)
        self._low = min(self._low, min(watts))
        self._high = max(self._high, max(watts))
        self._spool.extend(times, watts)

    def __len__(self) -> int:
        return len(self._spool)

    def raw_mean(self) -> float | None:
        """Mean of the readings before `scale`."""
        return self._sum / len(self) if len(self) else None

    def points(self) -> Iterator[tuple[float, float]]:
        """(seconds, watts) in order of time."""
        return (point for times, watts in self.blocks() for point in zip(times, watts, strict=True))

    def blocks(self) -> Iterator[tuple[Sequence[float], Sequence[float]]]:
        """The same, some thousand at a time: seconds and watts."""
        scale = self.scale
        for times, watts in self._spool.sorted_blocks():
            yield times, watts if scale == 1.0 else [value * scale for value in watts]

    def stats(self, timed: bool = True) -> SeriesStats:
        """The numbers of the series; without times (`timed` false) only those that need none."""
        n = len(self)
        mean = self._sum / n * self.scale if n else None
        low = self._low * self.scale if n else None
        high = self._high * self.scale if n else None
        if not timed or n == 0:
            return SeriesStats(n, None, None, None, mean, mean, low, high, None, None, 0, 0, 0.0, None, None)
        return self._timed(n, mean, low, high)

    def _timed(self, n: int, mean: float | None, low: float | None, high: float | None) -> SeriesStats:
        steps = _Steps()
        start = end = None
        for dts, times in self._steps():
            steps.add(dts)
            start, end = times[0] if start is None else start, times[-1]
        assert start is not None and end is not None
        median = steps.median()
        limit = math.inf if median is None else GAP_FACTOR * median + CLOCK_NOISE_S
        energy, gap_energy, gap_times = self._energy(limit)
        duration = end - start if n > 1 else None
        weighted = energy / duration if duration else mean
        return SeriesStats(
            n_samples=n,
            duration_s=duration,
            energy_j=energy if n > 1 else None,
            energy_j_excluding_gaps=energy - gap_energy if n > 1 else None,
            mean_w=weighted,
            mean_w_samples=mean,
            min_w=low,
            peak_w=high,
            median_dt_s=median,
            max_dt_s=steps.longest if n > 1 else None,
            n_zero_dt=steps.zero,
            n_gaps=len(gap_times),
            gap_seconds=math.fsum(gap_times),
            start=start,
            end=end,
        )

    def _steps(self) -> Iterator[tuple[list[float], Sequence[float]]]:
        """Intervals that end in each block of samples, and the block's times."""
        last: list[float] = []
        for times, _ in self._spool.sorted_blocks():
            yield list(map(sub, times if last else times[1:], chain(last, times))), times
            last = [times[-1]]

    def _energy(self, limit: float) -> tuple[float, float, list[float]]:
        """Joules in all, joules in gaps, and the gaps' lengths; a gap is longer than `limit` seconds.

        `fsum` over a hundred thousand at a time: the order of ten million rows costs no digits.
        """
        total = 0.0
        parts: list[float] = []
        gap_parts: list[float] = []
        gap_times: list[float] = []
        for dts, joules in trapezoids(self.blocks()):
            parts += joules
            if len(parts) >= SUMMED:
                total += math.fsum(parts)
                parts.clear()
            if max(dts, default=0.0) > limit:
                found = [(dt, part) for dt, part in zip(dts, joules, strict=True) if dt > limit]
                gap_times += [dt for dt, _ in found]
                gap_parts += [part for _, part in found]
        return total + math.fsum(parts), math.fsum(gap_parts), gap_times


def trapezoids(
    blocks: Iterable[tuple[Sequence[float], Sequence[float]]],
) -> Iterator[tuple[list[float], list[float]]]:
    """Seconds and joules from each sample to the next, block by block: one less in the first block than samples."""
    last: tuple[list[float], list[float]] = ([], [])
    for times, watts in blocks:
        dts = list(map(sub, times if last[0] else times[1:], chain(last[0], times)))
        sums = map(add, watts if last[1] else watts[1:], chain(last[1], watts))
        yield dts, [dt * both / 2 for dt, both in zip(dts, sums, strict=True)]
        last = [times[-1]], [watts[-1]]


class _Steps:
    """Positive intervals: their median, exactly while they are few."""

    def __init__(self) -> None:
        self._exact = array("d")
        self._bins: Counter[int] = Counter()
        self.zero = 0
        self.longest = 0.0

    def add(self, dts: list[float]) -> None:
        if min(dts, default=1.0) <= 0:
            positive = [dt for dt in dts if dt > 0]
            self.zero += len(dts) - len(positive)
            dts = positive
        self.longest = max(self.longest, max(dts, default=0.0))
        room = EXACT_MEDIAN - len(self._exact)
        if room > 0:
            self._exact.extend(dts[:room])
            dts = dts[room:]
        self._count(dts)

    def _count(self, dts: Sequence[float]) -> None:
        for dt, times in Counter(dts).items():
            self._bins[round(math.log(dt) * 1e4)] += times

    def median(self) -> float | None:
        """Seconds; None where there is no interval."""
        if not self._exact:
            return None
        if not self._bins:
            return statistics.median(self._exact)
        bins = self._bins
        self._count(self._exact)
        half, seen = sum(bins.values()) / 2, 0
        for place in sorted(bins):
            seen += bins[place]
            if seen >= half:
                return math.exp(place / 1e4)
        return None
