"""CPU and memory power where nothing can be measured: CodeCarbon's models on CPU time that the kernel counts.

CPU, whole machine: P = TDP (0.1 + 0.9 load^3). CPU, one process tree: E = TDP x CPU seconds / CPUs. Memory: a
constant. Source: CodeCarbon's methodology page and its `external/hardware.py`, `external/ram.py`, release 3.3.2.
All of it is an estimate and is labelled so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from kdwatch.meters.base import Device, Reading, SensorEvent
from kdwatch.meters.cpu_time import CpuClock, CpuTime, machine_cpu_time
from kdwatch.meters.models import PowerModel
from kdwatch.meters.processes import tree_cpu_s

SHORTEST_S = 0.25
"""Load over less than this is mostly the kernel's 10 ms ticks."""
IDLE_SHARE = 0.1


def cpu_load_w(tdp_w: float, load: float) -> float:
    """CodeCarbon's machine model: watts at a load of 0 to 1."""
    return tdp_w * (IDLE_SHARE + (1.0 - IDLE_SHARE) * load**3)


def process_share_j(model: PowerModel, cpu_s: float) -> float:
    """CodeCarbon's process model: joules of CPU seconds."""
    return model.tdp_w * cpu_s / model.cpus


class EstimateMeter:
    """Cumulative energy of the models, so that a stage's share is a difference at its edges."""

    name = "estimate"
    period_s = 1.0

    def __init__(
        self,
        model: PowerModel,
        with_ram: bool = True,
        with_cpu: bool = True,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: CpuClock = machine_cpu_time,
        tree_clock: Callable[[Iterable[int]], float] = tree_cpu_s,
    ) -> None:
        self.model = model
        self.devices: Sequence[Device] = [
            *([cpu_device(model)] if with_cpu else []),
            *([ram_device(model)] if with_ram else []),
        ]
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._tree_clock = tree_clock
        self._roots: Sequence[int] = ()
        self._tree_s = 0.0
        self._history: deque[tuple[float, CpuTime]] = deque()
        self._last_t: float | None = None
        self._cpu_j = 0.0
        self._ram_j = 0.0
        self._events: list[SensorEvent] = []
        self._blind = False

    def watch_pids(self, roots: Sequence[int]) -> None:
        """Process trees whose share `info` gives: the roots and all their descendants."""
        self._roots = tuple(roots)

    def poll(self) -> Sequence[Reading]:
        """Energy of the models so far, and their power since the last poll."""
        t = self._clock()
        elapsed = 0.0 if self._last_t is None else max(0.0, t - self._last_t)
        load = self._load(t)
        self._last_t = t
        readings = []
        for device in self.devices:
            if device.kind == "cpu":
                readings.append(self._cpu(t, elapsed, load))
            else:
                self._ram_j += self.model.ram_w * elapsed
                readings.append(Reading(device.key, t, self._ram_j, self.model.ram_w))
        return readings

    def _cpu(self, t: float, elapsed: float, load: float | None) -> Reading:
        if load is None and (self._blind or not elapsed):
            return Reading("cpu0", t, None if self._blind else self._cpu_j)
        watts = cpu_load_w(self.model.tdp_w, load or 0.0)  # None: no tick of the kernel's clock yet
        self._cpu_j += watts * elapsed
        return Reading("cpu0", t, self._cpu_j, watts)

    def _load(self, t: float) -> float | None:
        """Share of all CPUs' time that was busy since the last poll, or over `SHORTEST_S` where that is longer."""
        now = self._cpu_clock()
        if now is None:
            self._say_blind(t)
            return None
        history = self._history
        history.append((t, now))
        while len(history) > 2 and t - history[1][0] >= SHORTEST_S:
            history.popleft()
        then = history[0][1]
        span = now.total_s - then.total_s
        return min(1.0, max(0.0, (now.busy_s - then.busy_s) / span)) if span > 0 else None

    def _say_blind(self, t: float) -> None:
        if not self._blind:
            self._blind = True
            self._events.append(SensorEvent("cpu0", t, "lost", "the system does not tell its CPU time"))

    def edge(self) -> Sequence[Reading]:
        """One poll: the models know no finer time."""
        return self.poll()

    def info(self) -> dict[str, dict[str, float | str | None]]:
        """CPU seconds of the watched process trees so far, exited children included, and the model's joules."""
        if not self._roots or not any(d.kind == "cpu" for d in self.devices):
            return {}
        self._tree_s = max(self._tree_s, self._tree_clock(self._roots))
        return {"cpu0": {"tree_cpu_s": self._tree_s, "tree_j": process_share_j(self.model, self._tree_s)}}

    def drain_events(self) -> Sequence[SensorEvent]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Nothing to release."""


def cpu_device(model: PowerModel) -> Device:
    """The machine's CPUs as the model knows them."""
    return Device(
        key="cpu0",
        id="estimate:cpu",
        name=model.cpu_model or "CPU",
        kind="cpu",
        scope="machine",
        source="estimated",
        systematic=0.5,
        details={
            "model": "codecarbon cpu_load: TDP (0.1 + 0.9 load^3)",
            "tdp_w": model.tdp_w,
            "tdp_source": model.tdp_source,
            "cpus": model.cpus,
            "sockets": model.sockets,
        },
    )


def ram_device(model: PowerModel) -> Device:
    """The machine's memory as the model knows it."""
    return Device(
        key="ram",
        id="estimate:ram",
        name="RAM",
        kind="ram_estimated",
        scope="machine",
        source="estimated",
        systematic=0.5,
        details={"model": f"codecarbon {model.version} RAM: watts by guessed DIMMs", "power_w": model.ram_w},
    )
