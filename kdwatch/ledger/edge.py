"""Energy of one device up to a moment: the counter's ticks around it, and power for what lies between.

The counter is exact at its ticks. From the tick before the moment power leads forward, from the tick after it
backward. Both are estimates of the same number with independent errors, so they are averaged by inverse
variance: next to a well-timed tick that tick decides; where power steps, the side without the step does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kdwatch.ledger.counter import STALE_S, TIMED_S, CounterTrack, Tick
from kdwatch.ledger.power import PowerTrack, Reach
from kdwatch.ledger.transition import at_step

NOISE_W = 1.0
"""Noise of a power reading, in watts, at least."""
AGE_S = 0.02
"""A power value may be this old when it is read."""
HIDDEN = 0.1
"""Standard deviation of what hides between samples further apart, as a share of spread x time: of 0.1 to 1.2, tried
on simulated boards, 0.1 gave the smallest errors."""
ROW_S = 0.002
"""Readings of all devices in one row share its time, which is this uncertain."""
AROUND_S = 1.0
"""How far around an edge power is looked at for bursts that may hide between samples."""


class Level(NamedTuple):
    """Cumulative energy of one device at one moment."""

    t: float
    joules: float
    bridged_j: float
    """Part of a counter's energy that power stands in for."""
    uncovered_s: float
    variance: float
    """Of this level as an edge, in square joules."""
    power_j: float | None
    """Integrated power up to the same moment, for the cross-check; None where there is none."""
    average_j: float = 0.0
    """Integrated averaged power up to the same moment, likewise."""
    edge_variance: float = 0.0
    """Of this moment alone, where `variance` is a running sum."""
    dark_s: float = 0.0
    """Time up to the same moment in which power was silent beside a counter."""
    dark_j: float = 0.0
    """What the counter counted in that time."""
    bridge_variance: float = 0.0
    """Of `bridged_j`, a running sum."""


def level_of_counter(counter: CounterTrack, power: PowerTrack, t: float) -> Level:
    """Energy at `t` of a device with a counter."""
    before, after = counter.around(t)
    integrated = power.reach(t).joules if power.first_t is not None else None
    if before is None and after is None:
        return Level(t, 0.0, 0.0, 0.0, 0.0, integrated)
    if power.first_t is None:
        return _without_power(counter, before, after, t)
    if after is None or before is None:
        tick = before or after
        assert tick is not None
        return _one_sided(counter, power, tick, t, integrated)
    joules, variance = _merge(counter, power, t)
    share = (joules - before.joules) / (after.joules - before.joules) if after.joules > before.joules else 0.0
    return _between(before, after, t, share)._replace(joules=joules, variance=variance, power_j=integrated)


def _between(before: Tick, after: Tick, t: float, share: float) -> Level:
    """At a share of the way between two ticks, what was bridged and what is uncovered."""
    bridged, uncovered, variance = (a + share * (b - a) for a, b in zip(before[-3:], after[-3:], strict=True))
    return Level(t, 0.0, bridged, uncovered, 0.0, None, bridge_variance=variance)


def _merge(counter: CounterTrack, power: PowerTrack, t: float) -> tuple[float, float]:
    """Inverse-variance mean of the best estimate from either side, kept between the nearest ticks; where one step of
    power explains the energy between them, what that step says. Power that is silent on the way leads nowhere: then
    the other side decides alone, and a straight line where both are so."""
    stepped = at_step(counter, power, t)
    if stepped is not None:
        return stepped
    earlier, later = counter.nearest(t)
    here = power.reach(t)
    found = []
    for side in (earlier, later):
        covered = [k for k in side if abs(here.uncovered_s - counter.power_at(k).uncovered_s) < 1e-6]
        if covered:
            found.append(min((_from_tick(counter, power, k, t, here) for k in covered), key=_variance))
    if not found:
        found.append(_line(earlier[0], later[0], t)[1:])
    joules, variance = found[0]
    if len(found) == 2:
        backward, v_backward = found[1]
        weight = v_backward / (variance + v_backward)
        joules = weight * joules + (1.0 - weight) * backward
        if any(k.high - k.low <= TIMED_S for k in (*earlier, *later)):
            variance = variance * v_backward / (variance + v_backward)
        else:  # read at one phase of the counter's period, ticks err alike: two are no better than one
            variance = (weight * math.sqrt(variance) + (1.0 - weight) * math.sqrt(v_backward)) ** 2
    low = earlier[0].joules if earlier[0].high <= t else -math.inf
    high = next((tick.joules for tick in later if tick.low >= t), math.inf)
    return min(max(joules, low), high), variance


def _variance(estimate: tuple[float, float]) -> float:
    return estimate[1]


def _from_tick(counter: CounterTrack, power: PowerTrack, tick: Tick, t: float, here: Reach) -> tuple[float, float]:
    """Energy at `t` led from a tick by power, and its variance; `here` is the power's integral up to `t`."""
    there = counter.power_at(tick)
    joules = tick.joules + here.joules - there.joules
    watts = power.watts_at(tick.t) or 0.0
    timing = (tick.high - tick.low + ROW_S) * max(watts, NOISE_W)
    span = abs(t - tick.t)
    age = min(AGE_S, span) * power.spread(min(t, tick.t), max(t, tick.t))
    first, last = min(t, tick.t), max(t, tick.t)
    hidden = HIDDEN * power.unseen(first, last) * power.spread(first - AROUND_S, last + AROUND_S)
    steps = abs(here.variance - there.variance)
    noise = max(NOISE_W, _within_mean(watts, 0.5 * counter.limit_w) if power.shift_s else 0.0) * span
    return joules, (timing * timing + age * age) / 12.0 + hidden * hidden + steps + noise * noise + 1e-9


def _within_mean(watts: float, largest: float) -> float:
    """Standard deviation that power between 0 and the largest can have about its mean, at most: a running mean of a
    second tells nothing of what happened within."""
    return math.sqrt(max(0.0, watts * (largest - watts)))


def _one_sided(counter: CounterTrack, power: PowerTrack, tick: Tick, t: float, integrated: float | None) -> Level:
    here, there = power.reach(t), counter.power_at(tick)
    joules, variance = _from_tick(counter, power, tick, t, here)
    uncovered = here.uncovered_s - there.uncovered_s  # below 0 before the first tick
    if t >= tick.t:
        joules = max(joules, tick.joules)
    bridged = joules - tick.joules if abs(t - tick.high) > STALE_S else 0.0
    found = _between(tick, tick, t, 0.0)
    return found._replace(
        joules=joules,
        bridged_j=tick.bridged_j + bridged,
        uncovered_s=tick.uncovered_s + uncovered,
        variance=variance,
        power_j=integrated,
    )


def _without_power(counter: CounterTrack, before: Tick | None, after: Tick | None, t: float) -> Level:
    """A counter alone (RAPL): straight lines between readings, held for a little beyond the last."""
    if before is None or after is None:
        tick = before or after
        assert tick is not None
        watts = _last_watts(counter, tick)
        held = max(-STALE_S, min(t - tick.t, STALE_S)) if watts else 0.0
        uncovered = t - tick.t - held
        edge = watts * held
        found = _between(tick, tick, t, 0.0)
        uncovered += tick.uncovered_s
        return found._replace(joules=tick.joules + edge, uncovered_s=uncovered, variance=edge * edge / 12.0)
    share, joules, variance = _line(before, after, t)
    return _between(before, after, t, share)._replace(joules=joules, variance=variance)


def _line(before: Tick, after: Tick, t: float) -> tuple[float, float, float]:
    """Share of the straight line between two ticks, energy there and its variance."""
    span = after.t - before.t
    share = min(1.0, max(0.0, (t - before.t) / span)) if span > 0 else 0.0
    step = after.joules - before.joules
    timing = 0.5 * (before.high - before.low + after.high - after.low) / span if span > 0 else 1.0
    error = step * (min(share, 1.0 - share) + min(timing, 1.0))
    return share, before.joules + share * step, error * error / 12.0 + 1e-9


def _last_watts(counter: CounterTrack, tick: Tick) -> float:
    """Mean power around a tick at the end of the record, from its neighbour."""
    at = counter.ticks.index(tick)
    other = counter.ticks[at - 1] if at else (counter.ticks[1] if len(counter.ticks) > 1 else None)
    if other is None or other.t == tick.t:
        return 0.0
    return abs((tick.joules - other.joules) / (tick.t - other.t))
