"""Which sensors this machine has, what each gives, and what to do about those that are closed."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kdwatch.meters import amd, nvml_boards, visible
from kdwatch.meters.base import Meter
from kdwatch.meters.estimate import EstimateMeter
from kdwatch.meters.models import NoModel, power_model
from kdwatch.meters.nvml import NvmlMeter
from kdwatch.meters.nvml_late import ANSWERED
from kdwatch.meters.rapl import RaplMeter
from kdwatch.meters.rapl_open import open_rapl

FROM_ENVIRONMENT = "\0environment"
"""Default of `select_gpus`: the value of CUDA_VISIBLE_DEVICES."""


@dataclass(frozen=True, slots=True)
class SensorStatus:
    """One sensor in words."""

    stream: str
    """`nvml`, `rapl`, `estimate`, `amd`, `apple`."""
    status: str
    """`ok`, `warn` (gives less than it could), `unavailable`, `unsupported`."""
    text: str
    fix: str | None = None
    """What to do about it; None where there is nothing to do."""


@dataclass(frozen=True)
class Discovery:
    """Open meters and the state of every sensor."""

    meters: list[Meter] = field(default_factory=list)
    sensors: list[SensorStatus] = field(default_factory=list)

    def close(self) -> None:
        """Close all meters."""
        for meter in self.meters:
            meter.close()


def discover(
    select_gpus: str | None = FROM_ENVIRONMENT,
    powercap_root: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Discovery:
    """Open every sensor that can be read.

    `select_gpus` has the grammar of CUDA_VISIBLE_DEVICES; None means all GPUs. Never raises for a sensor.
    """
    found = Discovery()
    if add_gpus(found, select_gpus, clock, sleep):
        text = "the GPU module's counter covers the CPU and its memory: they are not measured again"
        found.sensors.append(SensorStatus("rapl", "unavailable", text))
    else:
        add_cpu(found, powercap_root, clock)
    return found


def add_gpus(
    found: Discovery,
    select_gpus: str | None = FROM_ENVIRONMENT,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    limit_s: float = nvml_boards.LIMIT_S,
) -> bool:
    """Add the GPUs' meter and state; returns whether a counter covers a whole module, CPU included."""
    _add_amd(found, clock)
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        text = "Apple silicon: the GPU's energy is missing; CPU and memory are estimated"
        found.sensors.append(SensorStatus("apple", "unsupported", text))
    value, order = visible.from_environment()
    if select_gpus != FROM_ENVIRONMENT:
        value = select_gpus
    boards = nvml_boards.find(value, order, clock, limit_s)
    if not boards.sensors:
        status = "unavailable" if boards.problem else "ok"
        found.sensors.append(SensorStatus("nvml", status, boards.problem or "; ".join(boards.notes), boards.fix))
        return False
    meter = NvmlMeter(boards.sensors, clock, sleep)
    found.meters.append(meter)
    answered = [d for d in meter.devices if d.details.get(ANSWERED, True)]
    counters = sum(d.source == "counter" for d in answered)
    text = f"{len(answered)} of {boards.boards} GPUs, {counters} with an energy counter"
    found.sensors.append(SensorStatus("nvml", "warn" if boards.notes else "ok", "; ".join([text, *boards.notes])))
    return any(d.scope == "module" for d in meter.devices)


def _add_amd(found: Discovery, clock: Callable[[], float]) -> None:
    """Add AMD's GPUs where their compute driver is loaded."""
    if not amd.KFD.exists():
        return
    try:
        gpus = amd.find(os.environ, amd.load(), clock)
    except ImportError as problem:
        text = f"an AMD driver is loaded, but amdsmi is not usable ({problem}): these GPUs' energy is missing"
        found.sensors.append(SensorStatus("amd", "unsupported", text, "install amdsmi of the ROCm release here"))
        return
    if gpus.sensors:
        found.meters.append(amd.AmdMeter(gpus.sensors))
    text = gpus.problem or "; ".join([f"{len(gpus.sensors)} GPUs", *gpus.notes])
    status = "unavailable" if gpus.problem else "warn" if gpus.notes else "ok"
    found.sensors.append(SensorStatus("amd", status, text))


def add_cpu(found: Discovery, powercap_root: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
    """Add RAPL where it can be read, else the model's CPU and memory."""
    opened = open_rapl(powercap_root)
    found.sensors.append(SensorStatus("rapl", opened.status, opened.text, opened.fix))
    kinds = {c.device.kind for c in opened.counters}
    if opened.counters:
        found.meters.append(RaplMeter(opened.counters, clock))
    if "cpu" not in kinds:
        _add_estimate(found, clock, with_ram="dram" not in kinds)


def _add_estimate(found: Discovery, clock: Callable[[], float], with_ram: bool) -> None:
    try:
        model = power_model()
    except NoModel as problem:
        found.sensors.append(SensorStatus("estimate", "unavailable", str(problem), "pip install codecarbon"))
        return
    found.meters.append(EstimateMeter(model, with_ram, clock=clock))
    what = f"CPU by its load and {model.tdp_w:.0f} W TDP" + (f", RAM as {model.ram_w:.0f} W" if with_ram else "")
    text = f"{what}: estimated, not measured ({model.tdp_source})"
    found.sensors.append(SensorStatus("estimate", "ok", text))
