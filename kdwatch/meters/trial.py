"""Try a meter for a moment: what each device gives, how often its readings are renewed, what a poll costs."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kdwatch.meters.base import Meter, Reading

STEP_S = 0.002


@dataclass(frozen=True, slots=True)
class Trial:
    """What one device did during a trial. None is unknown."""

    key: str
    power_w: float | None
    """Newest instantaneous (or modelled) power, W."""
    average_w: float | None
    """Newest averaged power, W."""
    counter_j: float | None
    """Newest counter, J."""
    counter_w: float | None
    """Mean power between the first and last tick of the counter, W."""
    mean_power_w: float | None
    """Integral of the instantaneous (else the averaged) power over the same time, as a mean, W."""
    beside_counter_w: float | None
    """Mean of the instantaneous power over the very time of `counter_w`; None where there is no such power."""
    counter_period_s: float | None
    """Usual time between updates of the counter."""
    power_period_s: float | None
    average_period_s: float | None
    poll_s: float
    """Usual time of a poll of the whole meter."""
    reads: int


def try_meter(
    meter: Meter,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Trial]:
    """Poll as fast as is useful for some seconds; one Trial a device, in the meter's order."""
    by_key: dict[str, list[Reading]] = defaultdict(list)
    costs = []
    end = clock() + seconds
    while True:
        before = clock()
        for reading in meter.poll():
            by_key[reading.key].append(reading)
        costs.append(clock() - before)
        if clock() >= end:
            break
        sleep(STEP_S)
    cost = statistics.median(costs)
    return [_summary(d.key, sorted(by_key[d.key], key=lambda r: r.t), cost) for d in meter.devices]


def _summary(key: str, readings: Sequence[Reading], poll_s: float) -> Trial:
    counters = [(r.t, r.counter_j) for r in readings if r.counter_j is not None]
    powers = [(r.t, r.power_w) for r in readings if r.power_w is not None]
    averages = [(r.t, r.average_w) for r in readings if r.average_w is not None]
    return Trial(
        key,
        powers[-1][1] if powers else None,
        averages[-1][1] if averages else None,
        counters[-1][1] if counters else None,
        mean_power(counters),
        mean_sample(powers or averages),
        mean_sample(_during(powers, changes(counters))),
        period(counters),
        period(powers),
        period(averages),
        poll_s,
        len(readings),
    )


def _during(values: Sequence[tuple[float, float]], ticks: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Values between the first and the last of some ticks."""
    return [v for v in values if ticks[0][0] <= v[0] <= ticks[-1][0]] if len(ticks) > 1 else []


def changes(values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(time, value) of each reading that differs from the one before it."""
    return [now for before, now in pairwise(values) if now[1] != before[1]]


def period(values: Sequence[tuple[float, float]]) -> float | None:
    """Median time between changes; None with fewer than two of them."""
    times = [t for t, _ in changes(values)]
    return statistics.median(b - a for a, b in pairwise(times)) if len(times) > 1 else None


def mean_sample(values: Sequence[tuple[float, float]]) -> float | None:
    """Mean of samples over time (trapezoids); the one sample where there is just one."""
    if len(values) < 2:
        return values[0][1] if values else None
    joules = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(values))
    return joules / (values[-1][0] - values[0][0])


def mean_power(counters: Sequence[tuple[float, float]]) -> float | None:
    """Watts between the first and the last tick seen; without two ticks, between first and last reading."""
    ticks = changes(counters)
    if len(ticks) < 2:
        ticks = list(counters)
    if len(ticks) < 2 or ticks[-1][0] <= ticks[0][0]:
        return None
    watts = (ticks[-1][1] - ticks[0][1]) / (ticks[-1][0] - ticks[0][0])
    return watts if watts >= 0 else None
