"""CPU packages and their memory through the kernel's powercap counters (RAPL)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kdwatch.meters.base import Device, Reading, SensorEvent
from kdwatch.meters.processes import read_text
from kdwatch.meters.rapl_mirrors import MirrorWatch, sockets
from kdwatch.meters.rapl_zones import Zone

MICRO = 1e-6
LONGEST = 20
"""Digits of the largest 64-bit counter."""
SYSTEMATIC = 0.05


class Counter(Protocol):
    """One open energy counter."""

    device: Device

    def read_j(self) -> float | None:
        """Joules, or None where it cannot be read now."""

    def close(self) -> None:
        """Release it."""


class ZoneCounter:
    """The counter of one powercap zone. The file is opened for each read: once a second that costs nothing, and a
    file that was replaced, or a container's mount that changed, is seen."""

    def __init__(self, device: Device, zone: Zone) -> None:
        self.device = device
        self._path = str(zone.energy_path)

    def read_j(self) -> float | None:
        """Joules; None where the file cannot be read or holds no number, also at a second look."""
        for _ in range(2):
            text = (read_text(self._path) or "").strip(" \n\0")
            if text.isascii() and text.isdigit() and len(text) <= LONGEST:
                return int(text) * MICRO
        return None

    def close(self) -> None:
        """Nothing is kept open."""


class RaplMeter:
    """All packages and memories, mirrors among them, which events tell. One read that fails costs that zone that poll,
    nothing else."""

    name = "rapl"
    period_s = 1.0

    def __init__(self, counters: Sequence[Counter], clock: Callable[[], float] = time.monotonic) -> None:
        self._counters = list(counters)
        self.devices: Sequence[Device] = [c.device for c in counters]
        self._clock = clock
        self._events: list[SensorEvent] = []
        self._lost: set[str] = set()
        self._mirrors = MirrorWatch([c for c in counters if c.device.kind == "cpu"], sockets)

    def poll(self) -> Sequence[Reading]:
        """Read every zone once."""
        readings = [self._read(counter) for counter in self._counters]
        for found in self._mirrors.look({r.key: r.counter_j for r in readings}):
            self._events.append(SensorEvent(found.device.key, self._clock(), found.what, found.text))
        return readings

    def _read(self, counter: Counter) -> Reading:
        key = counter.device.key
        joules, t = counter.read_j(), self._clock()
        if joules is None and key not in self._lost:
            self._lost.add(key)
            self._events.append(SensorEvent(key, t, "lost", f"{counter.device.id} cannot be read"))
        elif joules is not None and key in self._lost:
            self._lost.discard(key)
            self._events.append(SensorEvent(key, t, "recovered", f"{counter.device.id} can be read again"))
        return Reading(key, t, joules)

    def edge(self) -> Sequence[Reading]:
        """One poll: the registers are renewed about every millisecond."""
        return self.poll()

    def info(self) -> dict[str, dict[str, Any]]:
        """Nothing slower than the counters."""
        return {}

    def drain_events(self) -> Sequence[SensorEvent]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Close the files."""
        for counter in self._counters:
            counter.close()


def device_of(zone: Zone, number: int) -> Device:
    """A zone as a device; `number` counts packages."""
    dram = zone.name == "dram"
    return Device(
        key=f"{'dram' if dram else 'cpu'}{number}",
        id=zone.id,
        name=f"{zone.package} {zone.name}" if dram else zone.name,
        kind="dram" if dram else "cpu",
        scope="dram" if dram else "package",
        source="counter",
        index=number,
        wrap_j=zone.range_j(),
        systematic=SYSTEMATIC,
        details={"interface": "powercap", "control": zone.control},
    )
