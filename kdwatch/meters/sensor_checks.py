"""Checks of the sensors: what each gives now, tried for a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kdwatch.meters.base import Device, Meter
from kdwatch.meters.checks import Check
from kdwatch.meters.discover import Discovery, SensorStatus, add_cpu, add_gpus
from kdwatch.meters.nvml import NvmlMeter
from kdwatch.meters.trial import Trial, try_meter

TRIAL_S = {"nvml": 0.45, "rapl": 0.05, "estimate": 0.3}
BOARD_LIMIT_S = 1.2
"""Each for the driver's start and for its boards, so that the whole stays below 3 s."""
IDS = {"nvml": "gpu", "rapl": "cpu.rapl", "estimate": "cpu.estimate", "amd": "gpu.amd", "apple": "gpu.apple"}
"""Check of each stream."""


def gpu_checks() -> list[Check]:
    """Discover the GPUs and try each."""
    found = Discovery()
    add_gpus(found, limit_s=BOARD_LIMIT_S)
    try:
        return [*_states(found), *_devices(found), *_processes(found.meters)]
    finally:
        found.close()


def cpu_checks() -> list[Check]:
    """Discover the CPU's counters, else the model, and try each."""
    found = Discovery()
    add_cpu(found)
    try:
        return [*_states(found), *_devices(found)]
    finally:
        found.close()


def _states(found: Discovery) -> list[Check]:
    return [Check(IDS.get(s.stream, s.stream), _status(s), s.text, s.fix) for s in found.sensors]


def _status(sensor: SensorStatus) -> str:
    """A sensor that is closed but could be opened is a warning; one that is not there is no fault."""
    if sensor.status in ("ok", "warn"):
        return sensor.status
    return "warn" if sensor.fix or sensor.status == "unsupported" else "info"


def _devices(found: Discovery) -> list[Check]:
    checks = []
    for meter in found.meters:
        trials = {t.key: t for t in try_meter(meter, TRIAL_S.get(meter.name, 0.1))}
        checks += [device_check(d, trials[d.key]) for d in meter.devices]
    return checks


def device_check(device: Device, trial: Trial) -> Check:
    """What a device gave during its trial."""
    name = f"sensor.{device.key}"
    head = f"{device.name} ({device.scope})"
    data = {"device": asdict(device), "trial": asdict(trial)}
    if trial.counter_j is None and trial.power_w is None and trial.average_w is None:
        return Check(
            name,
            "fail",
            f"{head}: no reading",
            "see the check of its interface above, then the driver's messages (dmesg)",
            data,
        )
    if device.source == "estimated":
        text = f"{head}: {_watts(trial.power_w)}, estimated by a model, not measured"
        return Check(name, "ok", text, None, data)
    return Check(name, "ok", f"{head}: {', '.join(_readings(device, trial))}", None, data)


def _readings(device: Device, trial: Trial) -> list[str]:
    parts = []
    if trial.counter_j is not None:
        parts.append("energy counter" + _every(trial.counter_period_s))
    if trial.power_w is not None:
        parts.append(f"power {_watts(trial.power_w)}" + _every(trial.power_period_s))
    if trial.average_w is not None:
        window = f"{device.average_window_s:g} s mean "
        parts.append(window + _watts(trial.average_w) + _every(trial.average_period_s))
    if device.kind == "gpu" and device.source != "counter":
        parts.append("no energy counter: power is integrated")
    return parts


def _watts(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f} W"


def _every(period_s: float | None) -> str:
    return "" if period_s is None else f" (new every {period_s * 1e3:.0f} ms)"


def _processes(meters: Sequence[Meter]) -> list[Check]:
    """Who computes on the GPUs now."""
    checks = []
    for meter in meters:
        if isinstance(meter, NvmlMeter):
            pids = sorted(meter.foreign_pids())
            text = f"in use by process {', '.join(map(str, pids))}" if pids else "no process computes on them"
            fix = "a run started now would be flagged contended" if pids else None
            checks.append(Check("gpu.processes", "warn" if pids else "ok", text, fix))
    return checks


def energy_check(checks: Sequence[Check]) -> Check:
    """Whether anything at all tells the energy here, from the checks of all devices."""
    devices = [c.data["device"] for c in checks if c.data and "device" in c.data and c.status != "fail"]
    if not devices:
        return Check("energy", "fail", "no sensor and no model: no energy can be told", "see the checks above")
    measured = sorted({d["kind"] for d in devices if d["source"] != "estimated"})
    estimated = sorted({d["kind"] for d in devices if d["source"] == "estimated"})
    text = f"measured: {', '.join(measured) or 'nothing'}; estimated: {', '.join(estimated) or 'nothing'}"
    return Check("energy", "ok" if measured else "warn", text)
