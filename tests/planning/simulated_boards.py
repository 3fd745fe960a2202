"""Boards whose power depends on phase and batch, for probes: watts are not a constant times the clock.

Loading draws little; training draws by size and batch; a forward pass is near full power; decoding is bound by memory,
so its power is lower and rises with the batch while its throughput rises faster. A long run warms the board up: power
creeps up by some percent over the first minutes.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from kdwatch.stages.pace import Pace
from planners.probes import Kind, Probe


@dataclass(frozen=True)
class Board:
    """A board: watts at rest and at full power, effective FLOP/s, memory bandwidth in billions of weights a second."""

    idle_w: float
    full_w: float
    flops: float
    weights_per_s: float
    warm_up: float
    noise: float

    def speed_and_power(self, kind: Kind, params_b: float, batch: float, length: float) -> tuple[float, float]:
        """Tokens a second and watts of a phase."""
        busy, room = batch / (batch + 2.0), self.full_w - self.idle_w
        if kind == "student":
            return self.flops * busy / (6e9 * params_b + 4e8), self.idle_w + room * (0.5 + 0.4 * busy)
        if kind in ("forward", "evaluate"):
            return self.flops * busy / (2e9 * params_b + 1e8), self.idle_w + room * (0.6 + 0.4 * busy)
        read = params_b / self.weights_per_s * (1 + length / 4000.0)
        seconds_per_step = read + batch * 2e9 * params_b / self.flops
        return batch / seconds_per_step, self.idle_w + room * (0.35 + 0.4 * batch / (batch + 16.0))

    def run(
        self,
        kind: Kind,
        params_b: float,
        batch: float,
        length: float,
        tokens: float,
        source: random.Random,
        *,
        stop: bool,
    ) -> Probe:
        """A stage: 8 s of loading, then work that reports twice a second; with `stop` it ends as a probe does."""
        pace = Pace(least_s=2.0, most_s=30.0)
        pace.report({"type": "phase", "name": "work", "t": 0.0})
        startup = 8.0 * (self.idle_w + 0.2 * (self.full_w - self.idle_w)) * source.uniform(0.9, 1.1)
        speed, watts = self.speed_and_power(kind, params_b, batch, length)
        points, done, joules, t = [(0.0, 0.0)], 0.0, 0.0, 0.0
        tick = max(0.5, tokens / speed / 400) if not stop else 0.5
        while done < tokens:
            step = min(tick, (tokens - done) / speed)
            warm = 1.0 + self.warm_up * (1.0 - math.exp(-t / 120.0))
            t += step
            done += speed * step
            joules += watts * warm * step * source.gauss(1, self.noise / math.sqrt(tick / 0.5))
            points.append((done, joules))
            pace.report({"type": "progress", "t": t, "tokens": int(done)})
            if stop and pace.over(t):
                break
        return Probe(kind, tuple(points), startup, startup + joules, params_b, batch, length)


def draw_board(source: random.Random) -> Board:
    """Anything between a workstation's board and a data centre's."""
    full = source.uniform(200, 700)
    return Board(
        idle_w=source.uniform(0.08, 0.2) * full,
        full_w=full,
        flops=source.uniform(0.3e14, 3e14),
        weights_per_s=source.uniform(200, 1200),
        warm_up=source.uniform(0.0, 0.06),
        noise=source.uniform(0.01, 0.05),
    )
