"""A cumulative energy counter as it really behaves: it ticks, wraps, resets, freezes, lies and goes missing."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from kdwatch.ledger.power import EDGE_TIME_S, PowerTrack, Reach

STALE_S = 2.0
"""A counter without a tick for this long while power flows is frozen or lost."""
FROZEN_SHARE = 0.5
"""A counter that resumes with less than this share of the power's energy stood still in between."""
FAST_S = 0.005
"""A counter that updates at least this often is current at every reading (RAPL: about 1 ms)."""
TIMED_S = 0.006
"""A tick between readings this close is timed well enough to learn from."""
BURST_S = 0.15
"""Longest burst of readings."""
JITTER_S = 0.001
"""How regular updates are taken to be."""
SLACK_J = 5.0
SLACK_S = 0.25
HELD_ENTRIES = 4


class Tick(NamedTuple):
    """The counter changed somewhere in `low < t <= high`; the sums hold from that moment on."""

    low: float
    high: float
    joules: float
    """Unwrapped energy since the first reading, bridges included."""
    bridged_j: float
    """Part of `joules` that came from power."""
    uncovered_s: float
    """Time that neither counter nor power covers."""
    variance: float
    """Of `bridged_j`, in square joules."""

    @property
    def t(self) -> float:
        """Best guess of the moment."""
        return 0.5 * (self.low + self.high)


class CounterTrack:
    """Raw readings in, ticks out.

    A wrap is taken out by the zone's own range. A decrease that is no wrap, and an increase that the device's
    largest power cannot explain, wait for the next reading: if that fits the old base, the odd value is
    discarded; if it fits the odd one, the counter was reset, and the time in between is bridged by power
    where there is some, else it is uncovered.
    """

    __slots__ = (
        "_highs",
        "_pinned",
        "_pinned_by",
        "_power",
        "always_moves",
        "flag",
        "limit_w",
        "period_doubt_s",
        "period_s",
        "raw",
        "read_t",
        "refresh_s",
        "suspect",
        "ticks",
        "wrap_j",
    )  # fmt: skip

    def __init__(
        self,
        power: Callable[[], PowerTrack],
        flag: Callable[[str, float], None],
        limit_w: float,
        wrap_j: float | None = None,
        refresh_s: float = 0.1,
        always_moves: bool = False,
    ) -> None:
        self._power = power
        self.flag = flag
        self.limit_w = limit_w
        """More than this is impossible."""
        self.wrap_j = wrap_j
        self.refresh_s = refresh_s
        """Longest time between two updates of a healthy counter."""
        self.always_moves = always_moves
        """No device of this kind draws 0 W: a counter that is read and stands still does not work."""
        self.period_s = 0.0
        """Time between updates, from two ticks of one burst; 0 until one was seen."""
        self.period_doubt_s = math.inf
        self.raw: float | None = None
        self.read_t = 0.0
        self.suspect: tuple[float, float] | None = None
        self.ticks: list[Tick] = []
        self._highs: list[float] = []
        self._pinned: dict[float, Reach] = {}
        """What power said at ticks that are older than the power readings kept, by `high`."""
        self._pinned_by: PowerTrack | None = None
        """The field that said so: another one, which began later, has sums of its own."""

    def add(self, t: float, raw: float) -> None:
        """Take a reading at time `t`; the power of that time must be in already."""
        if raw < 0.0:
            self.flag("discarded", t)
            return
        if self.raw is None:
            self._first(t, raw)
            return
        if t <= self.read_t:
            return
        if raw == self.raw and self.suspect is None:
            self._still(t)
            return
        step = self._step(self.raw, raw, self.ticks[-1].high, t)
        if step is not None:
            if self.suspect is not None:
                self.flag("discarded", self.suspect[0])
                self.suspect = None
            self._advance(t, raw, step)
        else:
            self._odd(t, raw)

    def _first(self, t: float, raw: float) -> None:
        self.raw, self.read_t = raw, t
        power = self._power()
        before = power.reach(t) if power.first_t is not None and power.first_t < t else None
        joules, uncovered = (before.joules, before.uncovered_s) if before else (0.0, 0.0)
        self._append(Tick(t - self.refresh_s, t, joules, joules, uncovered, 0.0))

    def _append(self, tick: Tick) -> None:
        self.ticks.append(tick)
        self._highs.append(tick.high)

    def _step(self, old: float, new: float, since: float, t: float) -> float | None:
        """Joules from one reading to the next; None where no healthy counter does that."""
        step = new - old
        if step < 0.0 and self.wrap_j is not None:
            step += self.wrap_j
        if step < 0.0 or step > self.limit_w * (t - since + SLACK_S) + SLACK_J:
            return None
        return step

    def _advance(self, t: float, raw: float, step: float) -> None:
        last = self.ticks[-1]
        low, since, stood = max(self.read_t, t - self.refresh_s), self.read_t, self.read_t - last.high > STALE_S
        self.raw, self.read_t = raw, t
        if step == 0.0:
            self._still(t)
            return
        if t - last.high > STALE_S:
            bridge = self._bridge(last, t)
            if bridge.uncovered_s < 0.1 * (t - last.high):
                frozen = step < FROZEN_SHARE * bridge.joules
            else:
                fresh = step <= self.limit_w * (t - since + self.refresh_s)  # more than that was used before
                frozen = stood and self.always_moves and fresh
            if frozen:
                self.flag("frozen", t)
                self._append_bridge(last, t, bridge, step)
                return
        self._learn(last, low, t)
        uncovered = last.uncovered_s + (t - last.high if self._lost_wraps(t) else 0.0)
        self._append(Tick(low, t, last.joules + step, last.bridged_j, uncovered, last.variance))

    def _lost_wraps(self, t: float) -> bool:
        """Whether the time since the last tick is long enough for whole wraps at the power of before: the step is
        then the least that was used, and the time counts as uncovered."""
        if self.wrap_j is None or len(self.ticks) < 2:
            return False
        earlier, last = self.ticks[-2:]
        watts = (last.joules - earlier.joules) / (last.high - earlier.high)
        return watts * (t - last.high) > 0.9 * self.wrap_j

    def _learn(self, last: Tick, low: float, t: float) -> None:
        """Two ticks timed within one burst tell how often this counter updates. Of different answers the shorter
        one is right: the longer one missed a tick between two bursts."""
        doubt = 0.5 * (t - low + last.high - last.low)
        spacing = 0.5 * (t + low) - last.t
        if doubt > TIMED_S or spacing > BURST_S or spacing < FAST_S:
            return
        ratio = spacing / self.period_s if self.period_s else 0.0
        if ratio < 0.75 or (ratio < 1.25 and doubt < self.period_doubt_s):
            self.period_s, self.period_doubt_s = spacing, doubt
            self.refresh_s = min(self.refresh_s, spacing + doubt)

    def restart(self, tick: Tick, raw: float) -> None:
        """Go on from a tick, the counter's reading there being `raw`; what was before is forgotten."""
        self.raw, self.read_t = raw, tick.high
        self.ticks, self._highs, self._pinned = [tick], [tick.high], {}

    def _still(self, t: float) -> None:
        """The counter did not move: news only where it would have, had energy flowed."""
        self.read_t = t
        if self.refresh_s <= FAST_S and not self.always_moves:
            self._append(self.ticks[-1]._replace(low=t - self.refresh_s, high=t))

    def _odd(self, t: float, raw: float) -> None:
        if self.suspect is not None:
            at, base = self.suspect
            step = self._step(base, raw, at, t)
            if step is not None:
                self._reset(at)
                self.suspect = None
                self.raw, self.read_t = base, at
                self._advance(t, raw, step)
                return
            self.flag("discarded", at)
        self.suspect = (t, raw)

    def _reset(self, t: float) -> None:
        last = self.ticks[-1]
        self.flag("reset", t)
        self._append_bridge(last, t, self._bridge(last, t))

    def _bridge(self, last: Tick, t: float) -> Reach:
        """What power says of the time since a tick."""
        power = self._power()
        if power.first_t is None:
            return Reach(0.0, t - last.t, 0.0)
        now, then = power.reach(t), self.power_at(last)
        return Reach(
            max(0.0, now.joules - then.joules), now.uncovered_s - then.uncovered_s, now.variance - then.variance
        )

    def _append_bridge(self, last: Tick, t: float, bridge: Reach, counted_j: float = 0.0) -> None:
        """A tick at `t` by power, with the variance of power alone, or by what was counted where power knows less."""
        joules = bridge.joules if bridge.joules > counted_j else 0.0
        power = self._power()
        ends = [EDGE_TIME_S * (power.watts_at(edge) or 0.0) for edge in (last.t, t)] if joules else []
        self._append(
            Tick(
                t - 1e-3,
                t,
                last.joules + (joules or counted_j),
                last.bridged_j + joules,
                last.uncovered_s + bridge.uncovered_s,
                last.variance + (bridge.variance + sum(e * e for e in ends) / 12.0 if joules else 0.0),
            )
        )

    def power_at(self, tick: Tick) -> Reach:
        """Integrated power up to a tick, also where its readings are gone."""
        power = self._power()
        pinned = self._pinned.get(tick.high) if self._pinned_by is power else None
        return pinned or power.reach(tick.t)

    def around(self, t: float) -> tuple[Tick | None, Tick | None]:
        """The last tick seen at or before `t` and the first seen after."""
        at = bisect_right(self._highs, t)
        return (self.ticks[at - 1] if at else None), (self.ticks[at] if at < len(self.ticks) else None)

    def nearest(self, t: float, count: int = 3) -> tuple[list[Tick], list[Tick]]:
        """Up to `count` ticks seen at or before `t` and as many seen after, the nearest first."""
        at = bisect_right(self._highs, t)
        near = self.ticks[max(0, at - count) : at + count]
        timed = [tick for tick in near if tick.high - tick.low <= TIMED_S]
        if self.period_s and timed:
            near = [self._narrowed(tick, timed) for tick in near]
        split = min(at, count)
        return near[:split][::-1], near[split:]

    def _narrowed(self, tick: Tick, timed: list[Tick]) -> Tick:
        """A tick that polls saw roughly, at the one moment that a well-timed neighbour and the period allow."""
        if tick.high - tick.low <= TIMED_S:
            return tick
        anchor = min(timed, key=lambda other: abs(other.t - tick.t))
        steps = round((tick.t - anchor.t) / self.period_s)
        doubt = 0.5 * (anchor.high - anchor.low) + abs(steps) * self.period_doubt_s + JITTER_S
        if doubt > 0.25 * self.period_s:
            return tick
        moments = [anchor.t + k * self.period_s for k in (steps - 1, steps, steps + 1)]
        inside = [m for m in moments if tick.low - doubt < m < tick.high + doubt]
        if len(inside) != 1:
            return tick
        low, high = max(tick.low, inside[0] - doubt), min(tick.high, inside[0] + doubt)
        return tick._replace(low=low, high=high) if low < high else tick

    def prune(self, before: float) -> None:
        """Forget ticks before a time, keeping a few; power readings of before may go afterwards."""
        old = bisect_right(self._highs, before)
        cut = min(old, len(self._highs) - HELD_ENTRIES)
        kept = self.ticks[max(0, cut) : old + 1]
        if self._power().first_t is not None:  # before its first reading power has no sum to remember
            self._pinned = {tick.high: self.power_at(tick) for tick in kept}
            self._pinned_by = self._power()
        if cut > 0:
            del self.ticks[:cut], self._highs[:cut]

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""
        return {
            "raw": self.raw,
            "read_t": self.read_t,
            "suspect": self.suspect,
            "ticks": [list(x) for x in self.ticks],
            "refresh_s": self.refresh_s,
            "period": [self.period_s, None if math.isinf(self.period_doubt_s) else self.period_doubt_s],
            "pinned": [[high, list(reach)] for high, reach in self._pinned.items() if self._pinned_by is self._power()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.raw, self.read_t = state["raw"], float(state["read_t"])
        self.suspect = tuple(state["suspect"]) if state["suspect"] else None
        self.ticks = [Tick(*map(float, x)) for x in state["ticks"]]
        self._highs = [x.high for x in self.ticks]
        self.refresh_s = float(state["refresh_s"])
        self.period_s, doubt = state["period"]
        self.period_doubt_s = math.inf if doubt is None else float(doubt)
        self._pinned = {float(high): Reach(*map(float, reach)) for high, reach in state["pinned"]}
        self._pinned_by = self._power()
