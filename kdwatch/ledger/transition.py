"""The moment of a power step between two ticks of a counter, from the energy between them.

Power samples tell that power went from one level to another, but not when. The counter's difference does: over a
span L with levels v0 before and v1 after the step, joules = v0 L + (v1 - v0) (time after the step). So energy at any
moment of the span is known as well as its ticks are timed.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from kdwatch.ledger.counter import TIMED_S, CounterTrack, Tick
from kdwatch.ledger.power import PowerTrack

LONGEST_S = 0.15
"""Ticks further apart than this have room for more than one step."""
BEYOND_S = 0.025
"""A sample may be this much younger than the step it shows."""
LEAST_STEP_W = 20.0
OTHER_SHARE = 0.25
"""Other changes within the span may add up to this share of the step."""
SLACK_S = 0.004
"""The step may come out this much outside the span, for what ticks and samples are not timed."""


def at_step(counter: CounterTrack, power: PowerTrack, t: float) -> tuple[float, float] | None:
    """Energy at `t` and its variance (J, J^2), where exactly one step explains the two well-timed ticks around `t`;
    None elsewhere."""
    if power.shift_s:  # a running mean rises for as long as its window: it shows no step
        return None
    earlier, later = counter.nearest(t)
    near = [*earlier[::-1], *later]
    before = next((tick for tick in reversed(near) if tick.t <= t), None)
    after = next((tick for tick in near if tick.t > t), None)
    if before is None or after is None or not (_timed(before) and _timed(after)):
        return None
    span = after.t - before.t
    levels = _levels(power, before.t, after.t) if 0.0 < span <= LONGEST_S else None
    if levels is None:
        return None
    low, high = levels
    step_t = after.t - (after.joules - before.joules - low * span) / (high - low)
    if not before.t - SLACK_S <= step_t <= after.t + SLACK_S:
        return None
    joules = before.joules + low * (t - before.t) if t <= step_t else after.joules - high * (after.t - t)
    return min(max(joules, before.joules), after.joules), _variance(before, low) + _variance(after, high)


def _timed(tick: Tick) -> bool:
    return tick.high - tick.low <= TIMED_S


def _variance(tick: Tick, watts: float) -> float:
    timing = (tick.high - tick.low) * max(watts, 1.0)
    return timing * timing / 12.0


def _levels(power: PowerTrack, start: float, end: float) -> tuple[float, float] | None:
    """Mean power before and after the one step that the samples of a span show; None if they show none, or more."""
    times = power.times
    low = max(0, bisect_right(times, start - 0.2 * BEYOND_S) - 1)
    watts = [entry.watts for entry in power.entries[low : bisect_right(times, end + BEYOND_S)]]
    if len(watts) < 2:
        return None
    changes = [abs(b - a) for a, b in pairwise(watts)]
    step = max(changes)
    if step < LEAST_STEP_W or sum(changes) - step > OTHER_SHARE * step:
        return None
    cut = changes.index(step) + 1
    return sum(watts[:cut]) / cut, sum(watts[cut:]) / (len(watts) - cut)
