"""Energy of a device up to a moment, by sections 3 and 4 of docs/protocol.md alone.

Nothing of kdwatch is imported: this is the other team of the protocol's first sentence. It states each rule once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import Any, NamedTuple

FINE_S, HELD_S = 0.006, 0.0205


class Level(NamedTuple):
    """E(t), seconds uncovered so far, variance of this edge, variance of the samples (or bridges) so far."""

    j: float
    dark: float = 0.0
    edge: float = 0.0
    samples: float = 0.0


class Power:
    """Section 3: samples of one field and their integral."""

    def __init__(self, age: float = 0.0, shift: float = 0.0, backward: bool = False) -> None:
        self.age, self.shift, self.backward = age, shift, backward
        self.t, self.w, self.sums = list[float](), list[float](), list[Level]()
        self.read, self.period = -math.inf, 0.0

    def add(self, read: float, w: float) -> None:
        since, self.read = read - self.read, read
        t = read - min(self.age, since / 2)
        if self.age and since <= HELD_S:
            if w == self.w[-1]:
                if t - self.t[-1] <= HELD_S:
                    return
            else:
                if len(self.t) > 1 and self.t[-1] > t - HELD_S and self.w[-1] == self.w[-2]:
                    del self.t[-1], self.w[-1], self.sums[-1]
                if self.t[-1] < t - HELD_S:
                    self._append(t - HELD_S, self.w[-1])
        dt = t - self.t[-1] if self.t else 0.0
        self._append(t, w)
        if dt > 0.05:
            self.period += (0.1 if self.period else 1.0) * (min(dt, 10 * self.period or dt) - self.period)

    @property
    def limit(self) -> float:
        return max(2.0, 5 * self.period)

    def _append(self, t: float, w: float) -> None:
        s, dt, step = (self.sums[-1], t - self.t[-1], w - self.w[-1]) if self.t else (Level(0.0), 0.0, 0.0)
        if dt > self.limit:
            s = s._replace(dark=s.dark + dt)
        elif self.backward:
            s = s._replace(j=s.j + w * dt)
        else:
            s = s._replace(j=s.j + (w - step / 2) * dt, samples=s.samples + (step * dt) ** 2 / 12)
        self.t.append(t), self.w.append(w), self.sums.append(s)

    def upto(self, t: float) -> Level:
        t += self.shift
        i = bisect_right(self.t, t)
        if i in (0, len(self.t)):
            i = max(0, i - 1)
            held = max(-self.limit, min(t - self.t[i], self.limit))
            s = self.sums[i]
            return s._replace(j=s.j + held * self.w[i], dark=s.dark + (t - self.t[i] - held))
        a, b, dt = self.sums[i - 1], self.sums[i], t - self.t[i - 1]
        if b.dark > a.dark:
            return a._replace(dark=a.dark + dt)
        share = dt / (self.t[i] - self.t[i - 1])
        mean = self.w[i] if self.backward else self.w[i - 1] + (self.w[i] - self.w[i - 1]) * share / 2
        return a._replace(j=a.j + mean * dt, samples=a.samples + share * (b.samples - a.samples))

    def at(self, t: float) -> float:
        return self.w[max(0, bisect_right(self.t, t + self.shift) - 1)]

    def spread(self, a: float, b: float) -> float:
        low, high = (bisect_right(self.t, t + self.shift) for t in (a, b))
        w = self.w[max(0, low - 1) : high + 1]
        return max(w) - min(w)

    def sparse(self, a: float, b: float) -> float:
        a, b = a + self.shift, b + self.shift
        return sum(max(0.0, min(y, b) - max(x, a)) for x, y in pairwise(self.t) if y - x > 0.03)


class Missed:
    """Section 3, "Point samples and bursts": c and its integral."""

    def __init__(self, power: Power, window: float) -> None:
        self.power, self.window, self.square = power, window, 0.0
        self.t, self.c, self.j = list[float](), list[float](), list[float]()

    def add(self, read: float, average: float) -> None:
        t, half = read - 0.05 - self.window / 2, self.window / 2
        if not self.power.t or t - half < self.power.t[0]:
            return
        low, high = self.power.upto(t - half), self.power.upto(t + half)
        if high.dark == low.dark:
            c = average - (high.j - low.j) / self.window
            dt = t - self.t[-1] if self.t else 0.0
            self.j.append(self.j[-1] + (c + self.c[-1]) / 2 * dt * (dt <= self.power.limit) if self.t else 0.0)
            self.square += min(1.0, dt / self.window) * (c * c - self.square)
            self.t.append(t), self.c.append(c)

    def upto(self, t: float) -> tuple[float, float]:
        edge = self.square * self.window**2 / 6 + (0.1 * self.power.spread(t - 0.1, t + 0.1)) ** 2 / 12
        i = bisect_right(self.t, t)
        if i in (0, len(self.t)):
            i = max(0, i - 1)
            return self.j[i] + self.c[i] * max(-self.window, min(t - self.t[i], self.window)), edge
        share = (t - self.t[i - 1]) / (self.t[i] - self.t[i - 1])
        return self.j[i - 1] + share * (self.j[i] - self.j[i - 1]), edge


class Tick(NamedTuple):
    """The counter changed in (low, high]; seconds uncovered and variance of what was bridged so far."""

    low: float
    high: float
    j: float
    dark: float = 0.0
    samples: float = 0.0

    @property
    def t(self) -> float:
        return (self.low + self.high) / 2

    @property
    def u(self) -> float:
        return self.high - self.low


class Counter:
    """Section 4."""

    def __init__(self, update: float, wrap: float | None, watts: float, model: bool) -> None:
        self.update, self.wrap, self.watts, self.model = update, wrap or 0.0, watts, model
        self.ticks: list[Tick] = []
        self.odd: tuple[float, float] | None = None
        self.period = self.doubt = self.raw = self.read = 0.0

    def add(self, t: float, raw: float, power: Power) -> None:
        if not self.ticks:
            self.ticks, self.raw, self.read = [Tick(t - self.update, t, 0.0)], raw, t
            return
        step = self._step(self.raw, raw, self.ticks[-1].high, t)
        if step is None and self.odd and (step := self._step(self.odd[1], raw, self.odd[0], t)) is not None:
            self._bridge(self.odd[0], 0.0, power)
            self.read, self.raw = self.odd
        self.odd = (t, raw) if step is None else None
        if step is None:
            return
        last, since, low = self.ticks[-1], self.read, max(self.read, t - self.update)
        stood = since - last.high
        self.raw, self.read = raw, t
        if not step:
            if self.model:
                self.ticks.append(last._replace(low=t - self.update, high=t))
            return
        if t - last.high > 2:
            j, dark, _ = self._by_power(t, power)
            fresh = step <= self.watts * (t - since + self.update)
            if step < j / 2 if dark < (t - last.high) / 10 else stood > 2 and not self.model and fresh:
                self._bridge(t, step, power)
                return
        new = last._replace(low=low, high=t, j=last.j + step)
        self.ticks.append(new)
        doubt, apart = (new.u + last.u) / 2, new.t - last.t
        if doubt <= FINE_S and 0.005 <= apart <= 0.15:
            ratio = apart / self.period if self.period else 0.0
            if ratio < 0.75 or (ratio < 1.25 and doubt < self.doubt):
                self.period, self.doubt, self.update = apart, doubt, min(self.update, apart + doubt)

    def _step(self, base: float, raw: float, since: float, t: float) -> float | None:
        step = raw - base + (self.wrap if raw < base else 0.0)
        return step if 0 <= step <= self.watts * (t - since + 0.25) + 5 else None

    def _by_power(self, t: float, power: Power) -> tuple[float, float, float]:
        last = self.ticks[-1]
        if not power.t:
            return 0.0, t - last.t, 0.0
        a, b = power.upto(last.t), power.upto(t)
        ends = ((0.03 * power.at(last.t)) ** 2 + (0.03 * power.at(t)) ** 2) / 12
        return max(0.0, b.j - a.j), b.dark - a.dark, b.samples - a.samples + ends

    def _bridge(self, t: float, step: float, power: Power) -> None:
        last, (j, dark, samples) = self.ticks[-1], self._by_power(t, power)
        j, samples = (j, samples) if j > step else (step, 0.0)
        self.ticks.append(Tick(t - 0.001, t, last.j + j, last.dark + dark, last.samples + samples))

    def level(self, t: float, power: Power) -> Level:
        i = bisect_right([k.high for k in self.ticks], t)
        if i in (0, len(self.ticks)):
            return self._beyond(max(0, i - 1), t, power)
        near = self.ticks[max(0, i - 3) : i + 3]
        if self.period and any(k.u <= FINE_S for k in near):
            near = [self._placed(k, [n for n in near if n.u <= FINE_S]) for k in near]
        before, after = near[: min(i, 3)][::-1], near[min(i, 3) :]
        found = self._one_step(near, t, power) if power.t and not power.shift else None
        found = found or self._merged(before, after, t, power)
        a, b = before[0], after[0]
        x = (found.j - a.j) / (b.j - a.j) if power.t and b.j > a.j else 0.0 if power.t else (t - a.t) / (b.t - a.t)
        x = x if power.t else min(1.0, max(0.0, x))
        return found._replace(dark=a.dark + x * (b.dark - a.dark), samples=a.samples + x * (b.samples - a.samples))

    def _merged(self, before: list[Tick], after: list[Tick], t: float, power: Power) -> Level:
        ways = []
        for side in (before, after):
            lit = [k for k in side if power.t and abs(power.upto(k.t).dark - power.upto(t).dark) < 1e-6]
            ways += [min((self._lead(k, t, power) for k in lit), key=lambda e: e.edge)] if lit else []
        ways = ways or [self._line(before[0], after[0], t)]
        weight = sum(1 / way.edge for way in ways)
        j = sum(way.j / way.edge for way in ways) / weight
        low = before[0].j if before[0].high <= t else -math.inf
        high = next((k.j for k in after if k.low >= t), math.inf)
        alike = (sum(way.edge**-0.5 for way in ways) / weight) ** 2
        edge = 1 / weight if any(k.u <= FINE_S for k in before + after) else alike
        return Level(min(max(j, low), high), 0.0, edge)

    def _placed(self, tick: Tick, fine: list[Tick]) -> Tick:
        anchor = min(fine, key=lambda k: abs(k.t - tick.t))
        n = round((tick.t - anchor.t) / self.period)
        d = anchor.u / 2 + abs(n) * self.doubt + 0.001
        moments = [anchor.t + k * self.period for k in (n - 1, n, n + 1)]
        fits = [m for m in moments if tick.low - d < m < tick.high + d]
        if tick.u <= FINE_S or d > self.period / 4 or len(fits) != 1:
            return tick
        return tick._replace(low=max(tick.low, fits[0] - d), high=min(tick.high, fits[0] + d))

    def _lead(self, tick: Tick, t: float, power: Power) -> Level:
        a, b, here, there = min(t, tick.t), max(t, tick.t), power.upto(t), power.upto(tick.t)
        timing = (tick.u + 0.002) * max(power.at(tick.t), 1.0)
        age = min(0.02, b - a) * power.spread(a, b)
        hidden = 0.1 * power.sparse(a, b) * power.spread(a - 1, b + 1)
        within = math.sqrt(max(0.0, power.at(tick.t) * (self.watts / 2 - power.at(tick.t)))) if power.shift else 0.0
        noise = abs(here.samples - there.samples) + ((b - a) * max(1.0, within)) ** 2 + 1e-9
        return Level(tick.j + here.j - there.j, 0.0, (timing**2 + age**2) / 12 + hidden**2 + noise)

    def _line(self, a: Tick, b: Tick, t: float) -> Level:
        x, span = min(1.0, max(0.0, (t - a.t) / (b.t - a.t))), b.t - a.t
        error = (b.j - a.j) * (min(x, 1 - x) + min(1.0, (a.u + b.u) / 2 / span))
        return Level(a.j + x * (b.j - a.j), 0.0, error**2 / 12 + 1e-9)

    def _beyond(self, i: int, t: float, power: Power) -> Level:
        tick, other = self.ticks[i], self.ticks[i - 1 if i else 1]
        if power.t:
            lead = self._lead(tick, t, power)
            dark = tick.dark + power.upto(t).dark - power.upto(tick.t).dark
            return lead._replace(j=max(lead.j, tick.j) if t >= tick.t else lead.j, dark=dark, samples=tick.samples)
        held = max(-2.0, min(t - tick.t, 2.0))
        j = held * (tick.j - other.j) / (tick.t - other.t)
        return Level(tick.j + j, tick.dark + t - tick.t - held, j * j / 12, tick.samples)

    def _one_step(self, near: list[Tick], t: float, power: Power) -> Level | None:
        a = next((k for k in reversed(near) if k.t <= t), None)
        b = next((k for k in near if k.t > t), None)
        if not a or not b or max(a.u, b.u) > FINE_S or b.t - a.t > 0.15:
            return None
        w = power.w[max(0, bisect_right(power.t, a.t - 0.005) - 1) : bisect_right(power.t, b.t + 0.025)]
        changes = [abs(y - x) for x, y in pairwise(w)] or [0.0]
        if max(changes) < 20 or sum(changes) - max(changes) > max(changes) / 4:
            return None
        cut = changes.index(max(changes)) + 1
        v0, v1 = sum(w[:cut]) / cut, sum(w[cut:]) / (len(w) - cut)
        step = b.t - (b.j - a.j - v0 * (b.t - a.t)) / (v1 - v0)
        if not a.t - 0.004 <= step <= b.t + 0.004:
            return None
        j = a.j + v0 * (t - a.t) if t <= step else b.j - v1 * (b.t - t)
        return Level(min(max(j, a.j), b.j), 0.0, ((a.u * max(v0, 1.0)) ** 2 + (b.u * max(v1, 1.0)) ** 2) / 12)


def levels(device: dict[str, Any], rows: list[list[Any]], edges: list[float]) -> list[Level]:
    """E at each edge, as it stood when the device's readings were 1 s beyond it."""
    gpu, model, window = device["kind"] == "gpu", device["source"] == "estimated", device.get("average_window_s") or 0.0
    power, average = Power(0.008 if gpu else 0.0, 0.0, model), Power(0.0, window / 2 + 0.05)
    most = 2 * (device.get("limit_w") or 0.0) or (3000.0 if gpu else 2000.0 if device["kind"] == "cpu" else 1000.0)
    missed = Missed(power, window)
    counter = Counter(0.1 if gpu else 0.001, device.get("wrap_j"), most, model)
    found: list[Level] = []

    def level(t: float) -> Level:
        if counter.ticks:
            return counter.level(t, power if power.t else average)
        if not power.t:
            m = average.at(t)
            hidden = m * max(0.0, 1 - m / (0.6 * most)) * window
            return average.upto(t)._replace(edge=((0.03 * m) ** 2 + hidden**2) / 12)
        s, edge = power.upto(t), (0.03 * power.at(t)) ** 2 / 12
        if missed.t:
            j, more = missed.upto(t)
            return Level(s.j + j, s.dark, edge + more)
        return s._replace(edge=edge)

    for t, raw, watts, mean in rows:
        if watts is not None and (watts > 0 or (watts == 0 and not gpu)):
            power.add(t, watts)
        if mean is not None and mean > 0:
            average.add(t, mean)
            if device["source"] != "counter":
                missed.add(t, mean)
        if raw is not None and raw >= 0:
            counter.add(t, raw, power if power.t else average)
        known = t if counter.ticks else power.read if power.t else average.read
        while len(found) < len(edges) and edges[len(found)] + 1 <= known:
            found.append(level(edges[len(found)]))
    return found + [level(t) for t in edges[len(found) :]]
