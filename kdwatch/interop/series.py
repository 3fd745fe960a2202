"""A device's power samples and what follows from them: energy by the trapezoid, means, gaps.

The rule (docs/import-export.md states it for users): samples are sorted by time, stably; energy is the sum of
dt * (P_i + P_i+1) / 2 over neighbours; nothing is added before the first or after the last sample; a missing reading
is left out. A *gap* is a dt of more than 3 times the median positive dt. Energy is bridged over gaps, and given
without them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from kdwatch.interop.spool import Spool

GAP_FACTOR = 3.0
CLOCK_NOISE_S = 1e-6
"""Epoch seconds as doubles are exact to 0.2 us: a dt of exactly 3 medians is no gap."""
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
        self.missing = 0
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

    def __len__(self) -> int:
        return len(self._spool)

    def raw_mean(self) -> float | None:
        """Mean of the readings before `scale`."""
        return self._sum / len(self) if len(self) else None

    def points(self) -> Iterator[tuple[float, float]]:
        """(seconds, watts) in order of time."""
        scale = self.scale
        if scale == 1.0:
            return self._spool.sorted_pairs()
        return ((t, w * scale) for t, w in self._spool.sorted_pairs())

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
        median, longest, zero, start, end = self._intervals()
        limit = math.inf if median is None else GAP_FACTOR * median + CLOCK_NOISE_S
        parts: list[float] = []
        gap_parts: list[float] = []
        gap_times: list[float] = []
        segments = self._segments()
        energy = _sum_in_blocks(segments, limit, parts, gap_parts, gap_times)
        gap_energy = math.fsum(gap_parts)
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
            max_dt_s=longest if n > 1 else None,
            n_zero_dt=zero,
            n_gaps=len(gap_times),
            gap_seconds=math.fsum(gap_times),
            start=start,
            end=end,
        )

    def _segments(self) -> Iterator[tuple[float, float]]:
        points = self.points()
        t0, w0 = next(points)
        for t, w in points:
            dt = t - t0
            yield dt, dt * (w0 + w) / 2
            t0, w0 = t, w

    def _intervals(self) -> tuple[float | None, float, int, float, float]:
        """Median positive dt, longest dt, number of zero dts, first and last time."""
        exact: list[float] = []
        bins: dict[int, int] = {}
        zero, longest = 0, 0.0
        start = end = None
        for t, _ in self._spool.sorted_pairs():
            if end is None:
                start = end = t
                continue
            dt = t - end
            end = t
            if dt <= 0:
                zero += 1
                continue
            longest = max(longest, dt)
            if len(exact) < EXACT_MEDIAN:
                exact.append(dt)
            else:
                place = round(math.log(dt) * 1e4)
                bins[place] = bins.get(place, 0) + 1
        assert start is not None and end is not None
        return _median(exact, bins), longest, zero, start, end


def _sum_in_blocks(
    segments: Iterator[tuple[float, float]],
    limit: float,
    parts: list[float],
    gap_parts: list[float],
    gap_times: list[float],
) -> float:
    """Sum of the segments' joules; `fsum` over blocks, so that the order of ten million rows costs no digits."""
    total = 0.0
    for dt, joules in segments:
        parts.append(joules)
        if dt > limit:
            gap_parts.append(joules)
            gap_times.append(dt)
        if len(parts) >= 100_000:
            total += math.fsum(parts)
            parts.clear()
    return total + math.fsum(parts)


def _median(exact: list[float], bins: dict[int, int]) -> float | None:
    if not exact:
        return None
    if not bins:
        return statistics.median(exact)
    for dt in exact:
        place = round(math.log(dt) * 1e4)
        bins[place] = bins.get(place, 0) + 1
    half, seen = sum(bins.values()) / 2, 0
    for place in sorted(bins):
        seen += bins[place]
        if seen >= half:
            return math.exp(place / 1e4)
    return None
