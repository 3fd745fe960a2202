"""A simulated board in pure Python: exact energy, a counter that ticks, power fields that age.

Power is piecewise linear, so that its integral is exact. The fields are those of an NVIDIA board: a counter that
holds the exact integral at its last update, an instantaneous power point-sampled every 20 ms, a mean of the last
second updated every 100 ms, +-0.5 W of noise on both powers (issue 3, "Done when").
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kdwatch.ledger.core import Ledger

INSTANT_S = 0.02
AVERAGE_S = 0.1
AVERAGE_WINDOW_S = 1.0
NOISE_W = 0.5
BURST_READ_S = 0.0015


@dataclass
class Trace:
    """Corners (t, watts); straight lines between; two corners at one time make a step."""

    corners: list[tuple[float, float]]
    sums: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.times = [t for t, _ in self.corners]
        self.sums = [0.0]
        for (t0, w0), (t1, w1) in zip(self.corners, self.corners[1:], strict=False):
            self.sums.append(self.sums[-1] + 0.5 * (w0 + w1) * (t1 - t0))

    def watts(self, t: float) -> float:
        at = min(max(1, bisect_right(self.times, t)), len(self.times) - 1)
        (t0, w0), (t1, w1) = self.corners[at - 1], self.corners[at]
        return w0 if t1 <= t0 else w0 + (w1 - w0) * (t - t0) / (t1 - t0)

    def energy(self, t: float) -> float:
        """Exact joules since time 0."""
        at = min(max(1, bisect_right(self.times, t)), len(self.times) - 1)
        (t0, w0), _ = self.corners[at - 1], self.corners[at]
        return self.sums[at - 1] + 0.5 * (w0 + self.watts(t)) * (t - t0)


def periodic(period: float, pattern: list[tuple[float, float]], phase: float, length: float) -> Trace:
    """Repeat a pattern of corners, shifted by a phase (0..1)."""
    corners = []
    start = -period * (1 + phase)
    while start < length:
        corners += [(start + t, w) for t, w in pattern]
        start += period
    inside = [c for c in corners if c[0] >= 0.0]
    held = Trace(corners).watts(0.0)
    return Trace([(0.0, held), *inside])


def constant(phase: float, length: float) -> Trace:
    return Trace([(0.0, 300.0), (length + 20, 300.0)])


def square(phase: float, length: float) -> Trace:
    return periodic(0.7, [(0.0, 100.0), (0.35, 100.0), (0.35, 700.0), (0.7, 700.0)], phase, length)


def ramp(phase: float, length: float) -> Trace:
    return periodic(12.0, [(0.0, 100.0), (6.0, 700.0), (12.0, 100.0)], phase, length)


def bursts(phase: float, length: float) -> Trace:
    return periodic(1.0, [(0.0, 90.0), (0.95, 90.0), (0.95, 700.0), (1.0, 700.0)], phase, length)


def training(phase: float, length: float) -> Trace:
    """Steps of 0.4 s (620 W, 480 W for the last 60 ms) with a dip of 0.8 s to 220 W every 5 s."""
    step = [(0.0, 620.0), (0.34, 620.0), (0.34, 480.0), (0.4, 480.0)]
    pattern = [(k * 0.42 + t, w) for k in range(10) for t, w in step]
    pattern += [(4.2, 220.0), (5.0, 220.0)]
    return periodic(5.0, pattern, phase, length)


TRACES: dict[str, Callable[[float, float], Trace]] = {
    "constant": constant, "square": square, "ramp": ramp, "bursts": bursts, "training": training,
}  # fmt: skip


class Board:
    """Fields of a board at a time, as a driver would return them."""

    def __init__(self, trace: Trace, refresh_s: float, rng: random.Random) -> None:
        self.trace = trace
        self.refresh_s = refresh_s
        self.phase = rng.random() * refresh_s
        self.instant_phase = rng.random() * INSTANT_S
        self.average_phase = rng.random() * AVERAGE_S
        self.seed = rng.randrange(1 << 30)

    def _last(self, t: float, period: float, phase: float) -> float:
        return max(0.0, math.floor((t - phase) / period) * period + phase)

    def _noise(self, t: float, salt: int) -> float:
        return random.Random(hash((self.seed, salt, round(t * 1e6)))).uniform(-NOISE_W, NOISE_W)

    def counter(self, t: float) -> float:
        return round(self.trace.energy(self._last(t, self.refresh_s, self.phase)), 3)

    def instant(self, t: float) -> float:
        at = self._last(t, INSTANT_S, self.instant_phase)
        return round(self.trace.watts(at) + self._noise(at, 1), 3)

    def average(self, t: float) -> float:
        at = self._last(t, AVERAGE_S, self.average_phase)
        start = max(0.0, at - AVERAGE_WINDOW_S)
        mean = (self.trace.energy(at) - self.trace.energy(start)) / (at - start) if at > start else 0.0
        return round(mean + self._noise(at, 2), 3)


def polls(edges: list[float], end: float, rng: random.Random, board: Board) -> Iterator[float]:
    """Times of polls: 10 Hz with the jitter of a busy machine, and a burst at each edge, as the NVML meter reads:
    until two ticks are seen, or 30 ms after the first, for 0.15 s at most."""
    t = rng.random() * 0.1
    times = []
    while t < end:
        times.append(t + rng.random() * 0.002)
        t += 0.1
    for edge in edges:
        at = edge + 0.0002
        last, ticks, enough = board.counter(at), 0, edge + 0.15
        while at < enough:
            times.append(at)
            if board.counter(at) != last:
                last, ticks = board.counter(at), ticks + 1
                enough = at if ticks == 2 else min(enough, at + 0.03)
            at += BURST_READ_S + rng.random() * 0.0005
    yield from sorted(times)


def measure(
    trace: Trace,
    refresh_s: float,
    start: float,
    end: float,
    rng: random.Random,
    *,
    counter: bool = True,
    average: bool = True,
    instant: bool = True,
) -> tuple[float, float, Ledger]:
    """Energy and bound (edge and gap terms) that the ledger gives for a stage from `start` to `end`."""
    board = Board(trace, refresh_s, rng)
    spec = {
        "key": "g0", "id": "GPU-0", "name": "simulated", "kind": "gpu", "scope": "gpu", "limit_w": 700.0, "index": 0,
        "source": "counter" if counter else "integrated", "average_window_s": AVERAGE_WINDOW_S, "systematic": 0.0,
    }  # fmt: skip
    ledger = Ledger({"devices": [spec], "stages": [{"name": "s", "kind": "student", "gpus": [0]}]})
    started = ended = False
    for t in polls([start, end], end + 1.5, rng, board):
        if not started and t >= start:
            ledger.event({"t": start, "type": "stage_started", "stage": "s"})
            started = True
        if not ended and t >= end:
            ledger.event({"t": end, "type": "stage_ended", "stage": "s", "status": "completed", "exit_code": 0})
            ended = True
        t = round(t, 6)
        fields = (
            board.counter(t) if counter else None,
            board.instant(t) if instant else None,
            board.average(t) if average else None,
        )
        ledger.sample(t, "g0", *fields)
    device = ledger.totals().stages[0].devices[0]
    assert device.energy_j is not None and device.bound is not None
    return device.energy_j, device.bound.edge_j + device.bound.gap_j, ledger
