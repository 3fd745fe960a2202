"""What the prerun checks: the hardware against what the recipe asserts, counters against integrated power."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kdwatch.meters.base import Device
from kdwatch.meters.nvml_late import ANSWERED
from kdwatch.meters.processes import read_text
from kdwatch.meters.trial import Trial
from kdwatch.stages.prerun_settings import Expected

MISMATCH = 0.10
"""Difference between counter and integrated power that is a warning (docs/protocol.md)."""
SHORTEST_TICKS = 4
"""Updates of a counter that a comparison needs."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine apart from its sensors."""

    cpus: int
    memory_b: int | None


def this_host() -> Host:
    """Logical CPUs and memory here."""
    for line in (read_text("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return Host(os.cpu_count() or 1, int(line.split()[1]) * 1024)
    return Host(os.cpu_count() or 1, None)


def differences(expected: Expected, devices: Sequence[Device], host: Host) -> list[str]:
    """One line for each assertion that does not hold."""
    gpus = [d for d in devices if d.kind == "gpu" or d.scope == "module"]
    found = []
    if expected.gpus is not None and len(gpus) != expected.gpus:
        found.append(f"expect.gpus: {expected.gpus}, found {len(gpus)}")
    if expected.gpu_name is not None:
        found += [
            f"expect.gpu_name: {expected.gpu_name}, {g.key} is {g.name}"
            for g in gpus
            if expected.gpu_name.lower() not in g.name.lower()
        ] or ([] if gpus else [f"expect.gpu_name: {expected.gpu_name}, found no GPU"])
    found += [line for g in gpus for line in _of_gpu(expected, g)]
    measured = any((d.kind == "cpu" and d.source == "counter") or d.scope == "module" for d in devices)
    if expected.cpu_measured is not None and measured != expected.cpu_measured:
        found.append(f"expect.cpu_measured: {expected.cpu_measured}, found {measured}; see `kdwatch doctor`")
    if expected.cpus is not None and host.cpus < expected.cpus:
        found.append(f"expect.cpus: {expected.cpus} or more, found {host.cpus}")
    if expected.memory_gb is not None and (host.memory_b or 0) < expected.memory_gb * 1e9:
        have = "unknown" if host.memory_b is None else f"{host.memory_b / 1e9:.1f}"
        found.append(f"expect.memory_gb: {expected.memory_gb:g} or more, found {have}")
    return found


def _of_gpu(expected: Expected, gpu: Device) -> list[str]:
    asked = expected.gpu_memory_gb is not None or expected.gpu_counter is not None
    if asked and gpu.details.get(ANSWERED) is False:
        return [f"expect: {gpu.key} gives no answer yet, so what it has is not known"]
    found = []
    memory = gpu.details.get("memory_b")
    if expected.gpu_memory_gb is not None and (memory or 0) < expected.gpu_memory_gb * 1e9:
        have = "unknown" if memory is None else f"{memory / 1e9:.1f}"
        found.append(f"expect.gpu_memory_gb: {expected.gpu_memory_gb:g} or more, {gpu.key} has {have}")
    if expected.gpu_counter is not None and (gpu.source == "counter") != expected.gpu_counter:
        found.append(f"expect.gpu_counter: {expected.gpu_counter}, {gpu.key} gives {gpu.source}")
    return found


def mismatch(trial: Trial, seconds: float) -> float | None:
    """Relative difference of the counter from instantaneous power integrated over the same time; None where either
    is missing or the time too short to tell."""
    if trial.counter_w is None or not trial.beside_counter_w or trial.counter_period_s is None:
        return None
    if seconds < SHORTEST_TICKS * trial.counter_period_s:
        return None
    return trial.counter_w / trial.beside_counter_w - 1.0


def sampling_line(device: Device, trial: Trial) -> str:
    """Which sampling rate this device supports, in words."""
    periods = {"counter": trial.counter_period_s, "power": trial.power_period_s, "mean": trial.average_period_s}
    known = [f"{name} new every {1e3 * p:.0f} ms" for name, p in periods.items() if p is not None]
    fastest = min((p for p in periods.values() if p is not None), default=None)
    if fastest is None:
        return f"{device.key}: no reading changed during the check; its rate is unknown"
    return f"{device.key}: {', '.join(known)}: sampling faster than {1 / fastest:.0f} Hz only repeats values"
