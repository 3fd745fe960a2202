"""One device: its tracks of readings, and the accounts of those who owned it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kdwatch.ledger.accounts import Account, Accounts, Boundary, Open
from kdwatch.ledger.correction import AGE_S as AVERAGE_AGE_S
from kdwatch.ledger.correction import Correction
from kdwatch.ledger.counter import CounterTrack
from kdwatch.ledger.dark import DarkTime
from kdwatch.ledger.edge import Level, level_of_counter
from kdwatch.ledger.power import EDGE_TIME_S, PowerTrack

HORIZON_S = 1.0
"""An edge is settled once readings reach this far beyond it."""
KEPT_S = 6.0
"""Readings are kept for this long: the edges of `HORIZON_S` ago need what was before them."""
SPARE = 50
"""Readings that a device collects beyond that before the old ones go: slow sensors are not tidied at every reading."""
LIMIT_FACTOR = 1.2
"""Power above this multiple of the enforced limit is no power (notes: first samples far above the board's limit)."""
COUNTER_FACTOR = 2.0
"""A counter that runs faster than this multiple of the limit lies (its steps are further off than any spike)."""
LARGEST_W = {"gpu": 3000.0, "cpu": 2000.0, "dram": 1000.0, "ram_estimated": 1000.0, "other": 20000.0}
"""Largest believable power by kind, where a device states no limit."""
INSTANT_AGE_S = 0.008
"""Usual age of an instantaneous value when it is read (boards point-sample it every 20 ms or so)."""
FAST_S = 0.001
"""A RAPL counter updates about every millisecond, a model's at every reading."""
NVML_REFRESH_S = 0.1
"""NVML counters update every 20 to 100 ms."""


class DeviceTrack:
    """Readings and boundaries in, accounts out. Costs a few microseconds a reading."""

    def __init__(self, spec: Mapping[str, Any], imported: bool = False) -> None:
        self.key = str(spec.get("key"))
        self.spec = dict(spec)
        self.kind = str(spec.get("kind") or "other")
        self.source = str(spec.get("source") or "integrated")
        limit = positive(spec.get("limit_w"))
        self.largest_w = LIMIT_FACTOR * limit if limit else LARGEST_W.get(self.kind, 20000.0)
        self._zero_is_missing = self.kind in ("gpu", "other") and not imported
        window = positive(spec.get("average_window_s")) or 0.0
        period = positive(spec.get("period_s")) or 0.0
        age = INSTANT_AGE_S if self.kind in ("gpu", "other") and not imported else 0.0
        self.power = PowerTrack(backward=self.source == "estimated", period_s=period, age_s=age)
        self.average = PowerTrack(0.5 * window + AVERAGE_AGE_S if window else 0.0, period_s=period)
        self.power.lenient = self.average.lenient = imported
        self.correction = Correction(self.power, window) if window and self.source != "counter" else None
        self.counter = CounterTrack(
            self._signal,
            self._flag,
            COUNTER_FACTOR / LIMIT_FACTOR * self.largest_w if limit else self.largest_w,
            positive(spec.get("wrap_j")),
            positive(spec.get("refresh_s")) or self._usual_refresh(),
            always_moves=not imported and self.source != "estimated",
        )
        self.dark = DarkTime()
        self.last_t = -math.inf
        self.first_t: float | None = None
        self.accounts = Accounts()
        self.pending: list[Boundary] = []
        self.open: Open | None = None
        self._flags: list[tuple[float, str]] = []
        self._peak_to = -math.inf
        self._prune_at = -math.inf
        self._due = math.inf

    def _usual_refresh(self) -> float:
        return FAST_S if self.source == "estimated" or self.kind in ("cpu", "dram") else NVML_REFRESH_S

    # -- readings

    def sample(self, t: float, counter_j: float | None, power_w: float | None, average_w: float | None) -> None:
        """Take one reading. Readings that are not newer than the last are ignored."""
        if t <= self.last_t:
            return
        self.last_t = t
        if power_w is not None and self._believable(power_w, t):
            self.power.add(t, power_w)
        if average_w is not None and self._believable(average_w, t):
            self.average.add(t, average_w)
            if self.correction is not None:
                self.correction.add(t, average_w)
        if counter_j is not None:
            self.counter.add(t, counter_j)
        if self.first_t is None:
            if not self.known:
                return
            self.first_t = t
            self._prune_at = t + KEPT_S
            self.boundary(Boundary(t, None, (), True))
        signal = self._signal()
        if self.counter.raw is not None and signal.read_t == t:
            self.dark.reading(t, self.counter.ticks[-1].joules, signal.entries[-1].uncovered_s)
        if t >= self._due:
            self._settle()
        if t >= self._prune_at:
            self._prune()

    def _believable(self, watts: float, t: float) -> bool:
        if 0.0 < watts <= self.largest_w:
            return True
        if watts > self.largest_w:
            self._flag("discarded", t)
            return False
        return watts == 0.0 and not self._zero_is_missing

    def _flag(self, code: str, t: float) -> None:
        last_t, last = self._flags[-1] if self._flags else (-math.inf, "")
        if last != code or t - last_t > 1.0 or any(last_t < b.t <= t for b in self.pending):
            self._flags.append((t, code))

    def note(self, code: str, t: float) -> None:
        """A fault that the sensor itself reported."""
        self._flag(code, t)

    @property
    def known(self) -> bool:
        """Whether any reading could be used."""
        return self.counter.raw is not None or self._signal().first_t is not None

    def _signal(self) -> PowerTrack:
        """The power to trust: instantaneous, else averaged."""
        return self.power if self.power.first_t is not None else self.average

    def level(self, t: float) -> Level:
        """Cumulative energy up to time `t`, and the power integrals beside."""
        level = self._level(t)
        if self.average.first_t is not None:
            level = level._replace(average_j=self.average.reach(t).joules)
        if self.counter.raw is not None:
            dark_s, dark_j = self.dark.at(t, level.joules, self._signal().gap_limit())
            level = level._replace(dark_s=dark_s, dark_j=dark_j)
        return level

    def _level(self, t: float) -> Level:
        if self.counter.raw is not None:
            return level_of_counter(self.counter, self._signal(), t)
        signal = self._signal()
        reach = signal.reach(t)
        joules, running = reach.joules, reach.variance
        timing = EDGE_TIME_S * (signal.watts_at(t) or 0.0)
        edge = timing * timing / 12.0 + self._smoothed(signal, t)
        if self.correction is not None and self.correction.entries:
            joules += self.correction.at(t)
            running, edge = 0.0, edge + self.correction.variance_at(t)
        return Level(t, joules, joules, reach.uncovered_s, running, joules, edge_variance=edge)

    def _smoothed(self, signal: PowerTrack, t: float) -> float:
        """Variance of an edge from a running mean alone: within its window power may have been anywhere up to the
        largest, so of a mean m of largest power L the edge may err by m (1 - m / L) W / 2."""
        if signal is not self.average or not self.average.shift_s:
            return 0.0
        watts = signal.watts_at(t) or 0.0
        hidden = watts * max(0.0, 1.0 - watts / self.largest_w) * 2.0 * (self.average.shift_s - AVERAGE_AGE_S)
        return hidden * hidden / 12.0

    def take_peak(self, watts: float, t: float) -> None:
        """The readings up to `t` were taken together: the largest of them, and the newest."""
        assert self.open is not None
        self.accounts.owner(self.open.owner).see_peak(watts)
        self._peak_to = max(self._peak_to, t)
        self.last_t = t
        self.dark.reading(t, self.counter.ticks[-1].joules, self.power.entries[-1].uncovered_s)

    # -- owners

    def own(self, boundary: Boundary) -> None:
        """A stage began or ended: note it if the device changes hands."""
        last = next((b for b in reversed(self.pending) if not b.start), None)
        now = (last.owner, last.shared) if last else (self.open.owner, self.open.shared) if self.open else (None, ())
        if now != (boundary.owner, boundary.shared):
            self.boundary(boundary)

    def boundary(self, boundary: Boundary) -> None:
        """A change of owner. Boundaries may come up to `HORIZON_S` late."""
        at = len(self.pending)
        while at and self.pending[at - 1].t > boundary.t:
            at -= 1
        self.pending.insert(at, boundary)
        self._due = self.pending[0].t + HORIZON_S

    def _settle(self) -> None:
        # silent power may still end in a gap, which has less energy than the value held so far
        known = self.last_t if self.counter.raw is not None else self._signal().read_t
        while self.pending and self.pending[0].t + HORIZON_S <= known:
            self.open = self._close(self.open, self.pending.pop(0), self.accounts, self._flags)
            self._peak_to = max(self._peak_to, self.open.level.t)
            self._flags = [f for f in self._flags if f[0] >= self.open.level.t]
        self._due = self.pending[0].t + HORIZON_S if self.pending else math.inf

    def _close(
        self,
        now: Open | None,
        boundary: Boundary,
        accounts: Accounts,
        flags: list[tuple[float, str]],
    ) -> Open:
        """End the interval that is open at a boundary and open the next."""
        if now is None:
            return Open(self.level(boundary.t), boundary.owner, boundary.shared)
        if boundary.start:
            return now
        level = self.level(max(boundary.t, now.level.t))
        level = level._replace(
            joules=max(level.joules, now.level.joules),
            bridged_j=max(level.bridged_j, now.level.bridged_j),
            uncovered_s=max(level.uncovered_s, now.level.uncovered_s),
            bridge_variance=max(level.bridge_variance, now.level.bridge_variance),
        )
        self._book(accounts.owner(now.owner), now, level, flags)
        for name in now.shared:
            accounts.shared_j[name] = accounts.shared_j.get(name, 0.0) + level.joules - now.level.joules
        return Open(level, boundary.owner, boundary.shared)

    def _book(self, account: Account, now: Open, level: Level, flags: list[tuple[float, str]]) -> None:
        before = now.level
        account.joules += level.joules - before.joules
        account.bridged_j += level.bridged_j - before.bridged_j
        account.time_s += level.t - before.t
        account.uncovered_s += min(level.uncovered_s - before.uncovered_s, level.t - before.t)
        account.variance += self._variance(before, level)
        if level.power_j is not None and before.power_j is not None:
            account.power_j += max(0.0, level.power_j - before.power_j)
            account.power_s += level.t - before.t
            account.dark_s += max(0.0, level.dark_s - before.dark_s)
            account.dark_j += max(0.0, level.dark_j - before.dark_j)
        account.average_j += max(0.0, level.average_j - before.average_j)
        account.see_peak(self._signal().highest(max(before.t, self._peak_to), level.t))
        for t, code in flags:
            if t <= level.t:
                account.flag(code)

    def _variance(self, before: Level, after: Level) -> float:
        if self.counter.raw is None:
            return max(0.0, after.variance - before.variance) + before.edge_variance + after.edge_variance
        edges = sum(x.edge_variance or x.variance for x in (before, after))  # before the counter's first value: power's
        return edges + after.bridge_variance - before.bridge_variance

    # -- answers

    def accounts_at(self, end: float) -> Accounts:
        """Accounts as if the run ended at `end`; the track itself stays as it is."""
        accounts = self.accounts.copy()
        if self.first_t is None:
            return accounts
        now, flags = self.open, list(self._flags)
        for boundary in self.pending:
            if boundary.t > end:
                break
            now = self._close(now, boundary, accounts, flags)
            flags = [f for f in flags if f[0] >= now.level.t]
        if now is not None and end > now.level.t:
            self._close(now, Boundary(end, None), accounts, flags)
        return accounts

    def end(self, now: float) -> float:
        """Time up to which this device counts at `now`: its newest reading, or `now` if it fell silent."""
        newest = max([self.last_t, *(b.t for b in self.pending), self.open.level.t if self.open else -math.inf])
        silent = now - self.last_t > max(self._signal().gap_limit(), 3.0)
        return now if silent else min(newest, max(now, self.last_t))

    def newest_power(self, now: float) -> float | None:
        """Newest power reading, or None if it is older than a few seconds."""
        entries = self._signal().entries
        if entries and now - entries[-1].t <= max(3.0, self._signal().gap_limit()):
            return entries[-1].watts
        ticks = self.counter.ticks
        if entries or len(ticks) < 2 or now - ticks[-1].high > 5.0:
            return None
        span = ticks[-1].t - ticks[-2].t
        return (ticks[-1].joules - ticks[-2].joules) / span if span > 0 else None

    def _prune(self) -> None:
        self._prune_at = self.last_t + max(KEPT_S / 3, SPARE * self._signal().period_s)
        before = self.last_t - KEPT_S
        if self.pending:
            before = min(before, self.pending[0].t - KEPT_S)
        if self.open is not None:
            account = self.accounts.owner(self.open.owner)
            account.see_peak(self._signal().highest(max(self.open.level.t, self._peak_to), before))
            self._peak_to = max(self._peak_to, before)
            for t, code in self._flags:
                if t <= before:
                    account.flag(code)
            self._flags = [f for f in self._flags if f[0] > before]
        for track in (self.counter, self.power, self.average, self.correction):
            if track is not None:
                track.prune(before)
        self.dark.prune(before)

    # -- state

    def state(self) -> dict[str, Any]:
        """Everything, as JSON; `restore` of a fresh track continues from it."""
        return {
            "power": self.power.state(),
            "average": self.average.state(),
            "counter": self.counter.state(),
            "correction": self.correction.state() if self.correction else None,
            "dark": self.dark.state(),
            "last_t": None if self.first_t is None else self.last_t,
            "first_t": self.first_t,
            "accounts": [[k, asdict(a)] for k, a in self.accounts.of.items()],
            "shared_j": self.accounts.shared_j,
            "pending": [asdict(b) for b in self.pending],
            "open": [list(self.open.level), self.open.owner, list(self.open.shared)] if self.open else None,
            "flags": self._flags,
            "peak_to": None if self._peak_to == -math.inf else self._peak_to,
            "prune_at": None if self._prune_at == -math.inf else self._prune_at,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.power.restore(state["power"])
        self.average.restore(state["average"])
        self.counter.restore(state["counter"])
        if self.correction is not None and state["correction"]:
            self.correction.restore(state["correction"])
        if state.get("dark"):
            self.dark.restore(state["dark"])
        self.first_t = state["first_t"]
        self.last_t = -math.inf if state["last_t"] is None else float(state["last_t"])
        self.accounts = Accounts({k: Account(**a) for k, a in state["accounts"]}, dict(state["shared_j"]))
        self.pending = [Boundary(**{**b, "shared": tuple(b["shared"])}) for b in state["pending"]]
        if state["open"]:
            level, owner, shared = state["open"]
            self.open = Open(Level(*level), owner, tuple(shared))
        self._flags = [(float(t), str(code)) for t, code in state["flags"]]
        self._peak_to = -math.inf if state["peak_to"] is None else float(state["peak_to"])
        self._prune_at = -math.inf if state["prune_at"] is None else float(state["prune_at"])
        self._due = self.pending[0].t + HORIZON_S if self.pending else math.inf


def positive(value: Any) -> float | None:
    """A finite number above 0, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0.0 < value < math.inf else None
