"""NVIDIA GPUs through NVML: energy counters, instantaneous and averaged power."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller

import pynvml

from kdwatch.meters.base import Reading
from kdwatch.meters.board_meter import BoardMeter
from kdwatch.meters.burst import TickWatch, thin
from kdwatch.meters.nvml_facts import Facts, facts
from kdwatch.meters.nvml_late import LateSensor
from kdwatch.meters.nvml_sensor import GpuSensor
from kdwatch.meters.processes import exists, tree

EDGE_S = 0.15
"""Longest burst around an edge: a counter that updates every 100 ms ticks within it."""
READ: Callable[[GpuSensor], Reading] = methodcaller("read")
EDGE_STEP_S = 0.001
"""Pause between two rounds of a burst."""


class NvmlMeter(BoardMeter[GpuSensor, Reading | tuple[GpuSensor, Facts]]):
    """All selected boards. One device's failure or slowness costs no other device a sample."""

    name = "nvml"
    deadline_s = 0.08
    """A call longer than this leaves the other boards to another thread."""
    period_s = 0.097

    def __init__(
        self,
        sensors: Sequence[GpuSensor],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(sensors, self.deadline_s)
        self.own_pids: Iterable[int] = (os.getpid(),)
        """Roots of the process trees that belong to the run: whoever else computes on a GPU is foreign."""
        self._clock = clock
        self._sleep = sleep
        self._late = [s for s in sensors if isinstance(s, LateSensor)]
        self._facts: dict[str, Facts] = {}
        self._foreign: dict[str, set[int]] = defaultdict(set)
        self._lock = threading.Lock()

    def poll(self) -> Sequence[Reading]:
        """Read every board once. A board whose call is not back in time is missing here and comes with a later
        poll, its counter only."""
        with self._lock:
            return self._read()

    def _read(self) -> list[Reading]:
        readings = []
        for result in self._crew.run(READ):
            if isinstance(result, Reading):
                readings.append(result)
            else:
                self._keep(*result)
        if self._late:
            self._renew()
        return readings

    def _renew(self) -> None:
        """Take over what boards that were silent at first have said of themselves."""
        answered = [s for s in self._late if s.answered]
        if answered:
            self._late = [s for s in self._late if not s.answered]
            self.devices = [s.device for s in self._sensors]

    def edge(self) -> Sequence[Reading]:
        """Read until every counter was seen to tick, 0.15 s at most; boards without a counter are read once, or as
        often as the others need."""
        with self._lock:
            by_key: dict[str, list[Reading]] = defaultdict(list)
            watches = {s.device.key: TickWatch() for s in self._sensors if s.sources.counter and not s.lost}
            end = self._clock() + EDGE_S
            while True:
                for reading in self._read():
                    by_key[reading.key].append(reading)
                    if reading.key in watches:
                        watches[reading.key].see(reading)
                if all(w.enough for w in watches.values()) or self._clock() >= end:
                    break
                self._sleep(EDGE_STEP_S)
        return sorted((r for found in by_key.values() for r in thin(found)), key=lambda r: r.t)

    def info(self) -> dict[str, dict[str, float | str | None]]:
        """Memory, utilisation, clocks, temperature, limits, throttling of each board as last known; looks for
        foreign processes too."""
        with self._lock:
            for result in self._crew.run(lambda sensor: (sensor, facts(sensor))):
                if not isinstance(result, Reading):
                    self._keep(*result)
            return {key: found.values for key, found in self._facts.items()}

    def _keep(self, sensor: GpuSensor, found: Facts) -> None:
        self._facts[sensor.device.key] = found
        sensor.limit_w = found.limit_w or sensor.limit_w
        if found.pids or self._foreign[sensor.device.key]:
            self._judge(sensor, found.pids)

    def _judge(self, sensor: GpuSensor, pids: Iterable[int]) -> None:
        """Flag compute processes that are not the run's, once each. A pid that does not exist here belongs to another
        pid namespace: nothing can be said of it."""
        own = {p.pid for p in tree(self.own_pids)}
        found = {pid for pid in pids if pid not in own and exists(pid)}
        for pid in found - self._foreign[sensor.device.key]:
            text = f"process {pid}, which is not this run's, computes on {sensor.device.name}"
            sensor.say("contended", text, self._clock())
        self._foreign[sensor.device.key] = found

    def foreign_pids(self) -> set[int]:
        """Processes that are not the run's and compute on one of the boards now."""
        self.info()
        return set().union(*self._foreign.values())

    def _shut_down(self) -> None:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
