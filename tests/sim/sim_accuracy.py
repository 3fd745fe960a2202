"""Energy of windows on simulated boards: what a method says, beside what the board truly used.

A campaign runs one trace on several boards at once, each at its own phase, with one stage after another. Readings
go the recorder's way: meter, recording to disk, ledger. Time is virtual, so hours of windows take seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from sim_nvml import FakeBoard, FakeNvml
from sim_traces import Trace

from kdwatch.ledger.load import load_ledger
from kdwatch.meters.discover import discover
from kdwatch.meters.nvml import NvmlMeter
from kdwatch.pipeline.recording import Recording
from kdwatch.rundir.writer import RunWriter

PHASES = 8
TICK_S = 0.5


@dataclass(frozen=True)
class Campaign:
    """One cell of the table."""

    trace: Trace
    counter_s: float
    """Update period of the energy counter; 0 for a board without one."""
    window_s: float
    windows: int = 208
    seed: int = 20260401


@dataclass
class Errors:
    """Signed relative errors of all windows, and how often the bound held."""

    relative: list[float] = field(default_factory=list)
    held: int = 0
    bounds: list[float] = field(default_factory=list)

    def quantile(self, q: float) -> float:
        """Quantile of the absolute errors."""
        ordered = sorted(abs(e) for e in self.relative)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

    @property
    def worst(self) -> float:
        """Largest absolute error."""
        return max(abs(e) for e in self.relative)

    @property
    def held_share(self) -> float:
        """Share of windows whose error lay within the stated bound (its systematic part left out)."""
        return self.held / len(self.relative)


def boards(campaign: Campaign) -> list[FakeBoard]:
    """Eight boards at eight phases of the trace; the phases of their sensors' ticks are random."""
    draw = random.Random(campaign.seed)
    period = campaign.counter_s
    return [
        FakeBoard(
            trace=campaign.trace,
            counter_s=period,
            counter_phase_s=draw.uniform(0, period) if period else 0.0,
            instant_phase_s=draw.uniform(0, 0.02),
            average_phase_s=draw.uniform(0, 0.1),
            noise_w=0.5,
            shift_s=campaign.trace.period_s * (i + draw.random()) / PHASES,
            limit_w=750.0,
        )
        for i in range(PHASES)
    ]


def windows(campaign: Campaign) -> Iterator[tuple[float, float]]:
    """(pause before, length) of each window in seconds; lengths carry a random fraction."""
    draw = random.Random(campaign.seed + 1)
    for _ in range(-(-campaign.windows // PHASES)):
        yield 1.3 + draw.uniform(0, 0.4), campaign.window_s * draw.uniform(1.0, 1.1)


class Recorder:
    """The recorder's sampling schedule on a virtual clock: polls at the meter's period, edges when asked."""

    def __init__(self, fake: FakeNvml, folder: Path, stages: int, seed: int) -> None:
        assert fake.clock is not None
        self.clock = fake.clock
        found = discover(powercap_root=folder / "none", clock=fake.clock, sleep=fake.clock.sleep)
        (self.meter,) = (m for m in found.meters if isinstance(m, NvmlMeter))
        self.draw = random.Random(seed)
        manifest = {
            "name": "accuracy",
            "devices": [{**asdict(d), "stream": "nvml", "period_s": self.meter.period_s} for d in self.meter.devices],
            "stages": [{"name": f"s{i}", "kind": "other"} for i in range(stages)],
            "clock": {"monotonic_origin": fake.origin, "wall_origin": 0.0, "boottime_origin": fake.origin},
        }
        self.recording = Recording(RunWriter.create(folder / "run", manifest))
        first = self.meter.edge()
        self.recording.open_stream("nvml", self.meter.devices, first)
        self.recording.readings("nvml", first)
        self.due = self.clock()
        self.on_tick: Callable[[], None] | None = None
        """Called every `TICK_S` once `next_tick` is set: for methods that sample at that period."""
        self.next_tick = math.inf

    def advance(self, seconds: float) -> None:
        """Let time pass, polling."""
        end = self.clock() + seconds
        while self.on_tick is not None and self.next_tick <= end:
            self._poll_until(self.next_tick)
            self.on_tick()
            self.next_tick += TICK_S
        self._poll_until(end)

    def _poll_until(self, end: float) -> None:
        while self.due <= end:
            # a thread wakes up late by some tenths of a millisecond, now and then by more
            late = self.draw.expovariate(1 / 0.0005)
            self.clock.set(max(self.clock(), self.due + late))
            self.recording.readings("nvml", self.meter.poll())
            self.due += self.meter.period_s
        self.clock.set(max(self.clock(), end))

    def edge(self, event: str, at: float | None = None, **fields: object) -> float:
        """Something happens now (or happened at `at`, during an earlier burst); the burst begins a little later, as a
        thread takes to wake up."""
        t = self.clock() if at is None else at
        self.recording.event(event, t=t - self.recording._origin, **fields)
        self.clock.sleep(self.draw.uniform(0.0002, 0.002))
        self.recording.readings("nvml", self.meter.edge())
        return t

    def close(self) -> Path:
        """End the run; returns its directory."""
        self.advance(1.5)
        self.recording.event("run_ended", t=self.clock() - self.recording._origin, status="completed")
        self.recording.close()
        self.meter.close()
        return self.recording.writer.path


class Method(Protocol):
    """Another way to tell the energy of windows, which sees the same boards at the same time."""

    name: str

    def begin(self) -> None:
        """A window begins now."""

    def tick(self) -> None:
        """Half a second has passed."""

    def end(self) -> list[float] | None:
        """The window ends now: joules by board, None where the method cannot tell."""

    def close(self) -> None:
        """The campaign is over."""


def measure(campaign: Campaign, library: Path, folder: Path, patch: pytest.MonkeyPatch) -> Errors:
    """Run a campaign and compare each window of each board with the truth."""
    return compare(campaign, library, folder, patch, ())["kdwatch"]


def compare(
    campaign: Campaign,
    library: Path,
    folder: Path,
    patch: pytest.MonkeyPatch,
    methods: Sequence[Callable[[FakeNvml], Method]],
) -> dict[str, Errors]:
    """Run a campaign; errors by method, ours as `kdwatch`. Other methods read at the very edge of a window, which no
    process outside could do: their best case."""
    fake = FakeNvml(library, folder, boards(campaign), virtual=True)
    fake.load(patch)
    plan = list(windows(campaign))
    recorder = Recorder(fake, folder, len(plan), campaign.seed + 2)
    others = [make(fake) for make in methods]
    found: dict[str, Errors] = {m.name: Errors() for m in others}

    def tick() -> None:
        for method in others:
            method.tick()

    recorder.on_tick = tick if others else None
    spans = []
    for i, (pause, length) in enumerate(plan):
        recorder.advance(pause)
        for method in others:
            method.begin()
        recorder.next_tick = recorder.clock() + TICK_S
        start = recorder.edge("stage_started", stage=f"s{i}", kind="other")
        recorder.advance(start + length - recorder.clock())
        recorder.next_tick = math.inf
        end = recorder.clock()
        for method in others:
            told = method.end()
            true = [fake.joules(n, start, end) for n in range(PHASES)]
            found[method.name].relative += [j / t - 1.0 for j, t in zip(told or (), true, strict=bool(told))]
        recorder.edge("stage_ended", stage=f"s{i}", status="completed", exit_code=0)
        spans.append((start, end))
    for method in others:
        method.close()
    return {"kdwatch": _ours(recorder.close(), fake, spans), **found}


def _ours(run: Path, fake: FakeNvml, spans: Sequence[tuple[float, float]]) -> Errors:
    totals = load_ledger(run).totals()
    errors = Errors()
    for stage, (start, end) in zip(totals.stages, spans, strict=True):
        for number, device in enumerate(stage.devices):
            true = fake.joules(number, start, end)
            assert device.energy_j is not None and device.bound is not None
            errors.relative.append(device.energy_j / true - 1.0)
            bound = device.bound.edge_j + device.bound.gap_j
            errors.bounds.append(bound / true)
            errors.held += abs(device.energy_j - true) <= bound
    return errors
