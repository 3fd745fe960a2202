"""CPU time of the whole machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kdwatch.meters.processes import TICKS_PER_S, read_text


class CpuTime(NamedTuple):
    """Cumulative seconds over all CPUs, exited processes included."""

    busy_s: float
    total_s: float


def machine_cpu_time(path: str = "/proc/stat") -> CpuTime | None:
    """CPU time since boot; None where the system does not tell. Guest time is part of user time already, and waiting
    for a disk is idle."""
    text = read_text(path)
    if text is None:
        return _portable()
    try:
        values = [int(x) for x in text.partition("\n")[0].split()[1:9]]
    except ValueError:
        return None
    if len(values) < 5:
        return None
    total = sum(values)
    return CpuTime((total - values[3] - values[4]) / TICKS_PER_S, total / TICKS_PER_S)


def _portable() -> CpuTime | None:
    try:
        import psutil

        times = psutil.cpu_times()
    except (ImportError, OSError):
        return None
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return CpuTime(total - times.idle - getattr(times, "iowait", 0.0), total)


CpuClock = Callable[[], CpuTime | None]
