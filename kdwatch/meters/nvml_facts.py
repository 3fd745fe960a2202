"""Slow facts of one NVIDIA board: memory, utilisation, clocks, temperature, limit, throttling, who computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pynvml

from kdwatch.meters.nvml_probe import MILLI, ask
from kdwatch.meters.nvml_sensor import GpuSensor

THROTTLE_NAMES = {
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power_cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hw_slowdown",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "thermal",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hw_thermal",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power_brake",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "sync_boost",
}
"""Reasons that slow work down; idle and application clocks are none."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read; a value that the board does not give is None."""

    values: dict[str, float | str | None]
    limit_w: float | None = None
    pids: frozenset[int] = field(default=frozenset())
    """Processes with a compute context, as NVML numbers them."""


def facts(sensor: GpuSensor) -> Facts:
    """Ask one board. Never raises."""
    handle = sensor.handle
    if sensor.lost:
        return Facts(dict.fromkeys(NAMES))
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    values: dict[str, float | str | None] = {
        "memory_b": None if memory is None else memory.used,
        "utilization": None if rates is None else rates.gpu,
        "clock_mhz": ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "temperature_c": ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "limit_w": limit * MILLI if limit else None,
        "throttle": throttle(handle),
    }
    return Facts(values, values["limit_w"], frozenset(compute_pids(handle)))  # type: ignore[arg-type]


NAMES = ("memory_b", "utilization", "clock_mhz", "temperature_c", "limit_w", "throttle")
"""Keys of `Facts.values`."""


def throttle(handle: Any) -> str | None:
    """Names of the reasons that slow the clocks, joined by `+`; `none` where nothing does."""
    mask = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if mask is None:
        return None
    return "+".join(name for bit, name in THROTTLE_NAMES.items() if mask & bit) or "none"


def compute_pids(handle: Any) -> list[int]:
    """Processes with a compute context on the board; on MIG boards NVML lists those of all slices."""
    found = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    if found is None:  # drivers before 510
        found = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle)
    return [p.pid for p in found or ()]
