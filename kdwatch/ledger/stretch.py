"""Long regular stretches of readings of imported logs, taken at once as `DeviceTrack.sample` takes them one by one.

Months of a log are millions of readings between the same two edges. Of those only sums matter, and the last seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import islice
from operator import add, sub

from kdwatch.ledger.counter import BURST_S, SLACK_J, SLACK_S, STALE_S
from kdwatch.ledger.device import KEPT_S, DeviceTrack
from kdwatch.ledger.power import DENSE_S, GAP_S, PERIOD_FROM_S, Entry

LONGEST = 1024
"""Readings looked at together: one that is not regular sends no more than these back."""
TAIL = 16
"""At least so many of them, and those of `2 * KEPT_S`, are taken one by one: an edge may need them."""
LEAST = 3 * TAIL


def take_stretch(
    track: DeviceTrack, times: Sequence[float], counters_j: Sequence[float | None], powers_w: Sequence[float | None]
) -> int:
    """Take the readings from the first on as far as they are regular; how many these were (0: the first is not).

    Regular: power and counter in each, steps of more than `DENSE_S` and less than a gap, no edge in between.
    """
    if not _ready(track) or len(times) < LEAST:
        return 0
    end = len(times) - TAIL
    while end > TAIL and times[-1] - times[end] < 2 * KEPT_S:
        end -= TAIL
    joules = [value for value in islice(counters_j, end) if value is not None]
    watts = [value for value in islice(powers_w, end) if value is not None]
    if end <= TAIL or len(joules) < end or len(watts) < end or not _regular(track, times[:end], joules, watts):
        return 0
    _count(track, times[:end], joules)
    _integrate(track, times[:end], watts)
    track.take_peak(max(watts), times[end - 1])
    return end


def _ready(track: DeviceTrack) -> bool:
    """Whether the device is between two edges, and its power and its counter are both running."""
    power, counter = track.power, track.counter
    return (
        track.spec.get("source") == "imported"
        and track.open is not None
        and not track.pending
        and track.average.first_t is None
        and len(power.entries) > 1
        and counter.raw is not None
        and counter.suspect is None
        and counter.wrap_j is None
        and bool(power.period_s)
        and counter.read_t == track.last_t == power.entries[-1].t
    )


def _regular(track: DeviceTrack, times: Sequence[float], joules: list[float], watts: list[float]) -> bool:
    counter = track.counter
    assert counter.raw is not None
    steps = [times[0] - track.last_t, *map(sub, islice(times, 1, None), times)]
    rises = [joules[0] - counter.raw, *map(sub, islice(joules, 1, None), joules)]
    shortest, longest = min(steps), max(steps)
    learns = shortest <= BURST_S and not (counter.period_s and shortest >= 0.8 * counter.period_s)
    return (
        shortest > DENSE_S
        and longest < min(GAP_S, STALE_S)
        and not learns
        and min(rises) >= 0.0
        and max(rises) <= counter.limit_w * SLACK_S + SLACK_J
        and min(watts) >= 0.0
        and max(watts) <= track.largest_w
    )


def _count(track: DeviceTrack, times: Sequence[float], joules: list[float]) -> None:
    """The counter's last tick; its sums as one addition after the other gives them."""
    counter, last = track.counter, track.counter.ticks[-1]
    assert counter.raw is not None
    rises = map(sub, joules, [counter.raw, *joules[:-1]])
    tick = last._replace(low=times[-1] - counter.refresh_s, high=times[-1], joules=reduce(add, rises, last.joules))
    counter.restart(tick, joules[-1])


def _integrate(track: DeviceTrack, times: Sequence[float], watts: list[float]) -> None:
    """The power's last two entries."""
    power = track.power
    entry = power.entries[-1]
    then, level, joules, variance, period = entry.t, entry.watts, entry.joules, entry.variance, power.period_s
    for t, value in zip(times, watts, strict=True):
        dt = t - then
        if dt > PERIOD_FROM_S:
            period += 0.1 * (min(dt, 10.0 * period) - period)
        step = (value - level) * dt
        before = then, level, joules, variance
        then, level = t, value
        joules, variance = joules + before[1] * dt + 0.5 * step, variance + step * step / 12.0
    entries = (
        Entry(t, value, sum_j, entry.uncovered_s, square)
        for t, value, sum_j, square in (before, (then, level, joules, variance))
    )
    power.restart(list(entries), period)
