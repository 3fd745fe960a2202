"""One NVIDIA board, read again and again, and how it fares."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import pynvml

from kdwatch.meters.base import Device, Reading, SensorEvent
from kdwatch.meters.nvml_fields import FieldReader
from kdwatch.meters.nvml_probe import MILLI, Sources

SLOW_CALL_S = 0.1
"""A call longer than this says nothing of when its power was taken."""
LIMIT_SLACK = 1.2
"""Power above this share of the enforced limit is a fault of the sensor."""
RETRY_S = 1.0
"""Time between attempts to reach a lost board."""

GONE = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_UNKNOWN,
    }
)
"""Errors after which the handle is of no use."""


class GpuSensor:
    """Reads one board and remembers how it fares. Used by one thread at a time."""

    def __init__(self, device: Device, handle: Any, sources: Sources, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.events: deque[SensorEvent] = deque()
        self.lost = False
        self._last_mj = -1.0
        self._retry_at = 0.0
        self._said: set[str] = set()
        self.become(device, handle, sources)

    def become(self, device: Device, handle: Any, sources: Sources) -> None:
        """Read this board from now on."""
        self.device = device
        self.handle = handle
        self.sources = sources
        self.limit_w = device.limit_w
        self._reader = FieldReader(sources.fields)
        self._all_fields = len(sources.fields) == 3

    @property
    def limit_w(self) -> float | None:
        """Enforced power limit in watts, as last known."""
        return self._limit_w

    @limit_w.setter
    def limit_w(self, watts: float | None) -> None:
        self._limit_w = watts
        self._most_mw = LIMIT_SLACK * watts / MILLI if watts else math.inf

    def read(self) -> Reading:
        """One reading. Never raises: what could not be read is None, and an event says why, once for each cause."""
        began = self.clock()
        if self.lost and began < self._retry_at:
            return Reading(self.device.key, began)
        try:
            if self.lost:
                self._reach()
            counter, instant, average = self._raw()
        except pynvml.NVMLError as problem:
            return self._failed(problem)
        ended = self.clock()
        if counter is None or instant is None or average is None or ended - began > SLOW_CALL_S:
            return self._checked(counter, instant, average, began, ended)
        if not self._sound(counter, instant, average):
            return self._checked(counter, instant, average, began, ended)
        self._last_mj = counter
        t = (began + ended) / 2
        return Reading(self.device.key, t, counter * MILLI, instant * MILLI, average * MILLI)

    def _reach(self) -> None:
        """Get a new handle for a lost board, starting NVML again where that is what it says."""
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(self.device.id)
        except pynvml.NVMLError as problem:
            if problem.value != pynvml.NVML_ERROR_UNINITIALIZED:
                raise
            pynvml.nvmlInit()
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(self.device.id)

    def _sound(self, counter: float, instant: float, average: float) -> bool:
        """Whether all three are beyond doubt: the usual case, in few steps."""
        most = self._most_mw
        return counter >= self._last_mj and 0 < instant <= most and 0 < average <= most and not self.lost

    def _raw(self) -> tuple[float | None, float | None, float | None]:
        """Counter in mJ, instantaneous and averaged power in mW."""
        if self._all_fields:
            counter, instant, average = self._reader.read(self.handle)
            return counter, instant, average
        sources, handle = self.sources, self.handle
        values = iter(self._reader.read(handle) if sources.fields else ())
        counter = next(values) if sources.counter == "field" else None
        instant = next(values) if sources.instant == "field" else None
        average = next(values) if sources.average == "field" else None
        if sources.counter == "call":
            counter = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        if sources.instant == "legacy":
            instant = self._legacy()
        if sources.average == "legacy":
            average = self._legacy()
        return counter, instant, average

    def _legacy(self) -> float | None:
        try:
            return pynvml.nvmlDeviceGetPowerUsage(self.handle)
        except pynvml.NVMLError as problem:
            if problem.value in GONE:
                raise
            return None

    def _checked(
        self, counter: float | None, instant: float | None, average: float | None, began: float, ended: float
    ) -> Reading:
        if counter is None and instant is None and average is None:
            return self._failed(pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN))
        if self.lost:
            self.lost = False
            self.say("recovered", "answers again", ended)
        t = (began + ended) / 2
        joules = None if counter is None else counter * MILLI
        if joules is None and self.sources.counter:
            self._once("counter", "discarded", "energy counter gives no value: integrated power bridges the gap", t)
        if counter is not None:
            self._watch_counter(counter, ended)
        if ended - began > SLOW_CALL_S:
            text = f"a call took {ended - began:.1f} s: its power readings are left out"
            self._once("slow", "discarded", text, ended)
            return Reading(self.device.key, ended, joules)
        return Reading(self.device.key, t, joules, self._power(instant, t, True), self._power(average, t, False))

    def _watch_counter(self, millijoules: float, t: float) -> None:
        if millijoules < self._last_mj:
            fall = f"from {self._last_mj * MILLI:.0f} J to {millijoules * MILLI:.0f} J"
            self.say("reset", f"energy counter fell {fall} (driver reload?)", t)
        self._last_mj = millijoules

    def _power(self, milliwatts: float | None, t: float, instant: bool) -> float | None:
        kind = "instantaneous" if instant else "averaged"
        expected = self.sources.instant if instant else self.sources.average
        if milliwatts is None:
            if expected:
                self._once(f"na-{kind}", "discarded", f"{kind} power gives no value (N/A)", t)
            return None
        if milliwatts <= 0:
            self._once(f"zero-{kind}", "discarded", f"{kind} power reads 0 W: taken as missing", t)
            return None
        watts = milliwatts * MILLI
        if self.limit_w is not None and watts > LIMIT_SLACK * self.limit_w:
            text = f"{kind} power reads {watts:.0f} W with a limit of {self.limit_w:.0f} W: left out"
            self._once(f"high-{kind}", "discarded", text, t)
            return None
        return watts

    def _failed(self, problem: pynvml.NVMLError) -> Reading:
        t = self.clock()
        self._retry_at = t + RETRY_S
        if not self.lost:
            self.lost = True
            self.say("lost", f"NVML: {problem}", t)
        return Reading(self.device.key, t)

    def say(self, what: str, text: str, t: float) -> None:
        """Add an event."""
        self.events.append(SensorEvent(self.device.key, t, what, text))

    def _once(self, cause: str, what: str, text: str, t: float) -> None:
        if cause not in self._said:
            self._said.add(cause)
            self.say(what, text, t)
