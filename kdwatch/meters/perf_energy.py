"""RAPL through the kernel's perf events, for machines where powercap is closed and perf is open.

Source: perf_event_open(2); the `power` PMU's files under /sys/bus/event_source/devices/power. Its counters are 64 bits
wide in software, so they do not wrap. Each begins at 0 when it is opened; so that two which show one socket's energy
also show one value, all begin anew together. Needs CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

from kdwatch.meters.base import Device

PMU = Path("/sys/bus/event_source/devices/power")
EVENTS = {"energy-pkg": ("cpu", "package"), "energy-ram": ("dram", "dram")}
SYSCALL = {"x86_64": 298, "aarch64": 241}
ATTRIBUTE_BYTES = 112
FLAG_CLOEXEC = 8


@dataclass(frozen=True, slots=True)
class Event:
    """One energy event of the PMU on one package."""

    name: str
    """`energy-pkg` or `energy-ram`."""
    package: int
    cpu: int
    """A CPU of that package."""
    config: int
    scale: float
    """Joules of one count."""


class PerfCounter:
    """One open perf event."""

    def __init__(self, device: Device, fd: int, scale: float) -> None:
        self.device = device
        self._fd = fd
        self._scale = scale
        self._begin = 0

    def begin(self) -> None:
        """Count from now on."""
        self._begin = self._count() or 0

    def read_j(self) -> float | None:
        """Joules since it began; None where the read fails."""
        count = self._count()
        return None if count is None else (count - self._begin) * self._scale

    def _count(self) -> int | None:
        try:
            return int(struct.unpack("<Q", os.read(self._fd, 8))[0])
        except (OSError, struct.error):
            return None

    def close(self) -> None:
        """Close the event."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def cpus_of(mask: str) -> list[int]:
    """CPU numbers of a list such as `0,32-33`."""
    found: list[int] = []
    for part in mask.split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            found += range(int(low), int(high or low) + 1)
    return found


def events(pmu: Path = PMU) -> list[Event]:
    """Energy events that the PMU offers: packages and memory, never psys, cores or gpu."""
    cpus = cpus_of(_text(pmu / "cpumask") or "")
    found = []
    for name in EVENTS:
        config = (_text(pmu / "events" / name) or "").removeprefix("event=")
        scale = _text(pmu / "events" / f"{name}.scale")
        if config and scale:
            found += [Event(name, i, cpu, int(config, 0), float(scale)) for i, cpu in enumerate(cpus)]
    return found


def open_event(event: Event, kind: int) -> int:
    """File descriptor of the event on its CPU. Raises OSError."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"perf_event_open is not known on {platform.machine()}")
    attributes = struct.pack("<IIQ", kind, ATTRIBUTE_BYTES, event.config).ljust(ATTRIBUTE_BYTES, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, ctypes.c_char_p(attributes), -1, event.cpu, -1, FLAG_CLOEXEC)
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(fd)


def open_counters(pmu: Path = PMU) -> list[PerfCounter]:
    """Every package and memory counter that perf lets this user open; empty where it lets none. The one door to
    perf: tests replace it."""
    kind = _text(pmu / "type")
    counters = []
    for event in events(pmu) if kind and kind.isdigit() else []:
        try:
            fd = open_event(event, int(kind or 0))
        except OSError:
            continue
        counters.append(PerfCounter(device_of(event), fd, event.scale))
    for counter in counters:
        counter.begin()
    return counters


def device_of(event: Event) -> Device:
    """The event as a device."""
    word, scope = EVENTS[event.name]
    package = f"package-{event.package}"
    return Device(
        key=f"{word}{event.package}",
        id=f"rapl:{package}" + ("/dram" if word == "dram" else ""),
        name=package + (" dram" if word == "dram" else ""),
        kind=word,
        scope=scope,
        source="counter",
        index=event.package,
        details={"interface": "perf_event", "event": event.name},
    )
