"""What an NVIDIA board gives, found by asking it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from kdwatch.meters.base import Device
from kdwatch.meters.nvml_fields import FieldReader

ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
INSTANT = pynvml.NVML_FI_DEV_POWER_INSTANT
AVERAGE = pynvml.NVML_FI_DEV_POWER_AVERAGE
GPU_SCOPE = 0
MODULE_SCOPE = 1
AVERAGE_WINDOW_S = 1.0
"""Window of the averaged power, NVML API reference on nvmlDeviceGetPowerUsage and NVML_FI_DEV_POWER_AVERAGE."""
MILLI = 1e-3
SAME_MJ = 2_000_000
"""Two reads of one counter differ by less, unless a board used 2 kJ between them."""
REFUSALS = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, UnicodeDecodeError)
"""What pynvml raises where an answer cannot be had: the last two where the library is older than the binding."""
INSTANT_NAMES = ("A100", "A800", "A30", "V100", "P100", "T4")
"""Boards whose nvmlDeviceGetPowerUsage is instantaneous."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What one board answered to when it was asked."""

    counter: str | None = None
    """`field` or `call`."""
    instant: str | None = None
    """`field`, or `legacy` where nvmlDeviceGetPowerUsage is instantaneous (GA100 and older)."""
    average: str | None = None
    """`field`, or `legacy` where nvmlDeviceGetPowerUsage is a mean of 1 s."""
    scope: int = GPU_SCOPE
    fields: tuple[tuple[int, int], ...] = field(default=())
    """(field, scope) of each value read in the one call, in order."""

    @property
    def best(self) -> str | None:
        """Source in the words of `Device.source`; None where the board gives nothing."""
        if self.counter:
            return "counter"
        return "integrated" if self.instant or self.average else None


def ask(call: Callable[..., Any], *args: Any) -> Any:
    """Result of an NVML call; None where board, driver or library version does not offer it."""
    try:
        return call(*args)
    except REFUSALS:
        return None


def probe(handle: Any, name: str) -> Sources:
    """Find out what a board gives by asking it, never from its name or architecture alone."""
    scope = MODULE_SCOPE if is_module(handle, name) else GPU_SCOPE
    instant, average = _ask_fields(handle, ((INSTANT, scope), (AVERAGE, scope)))
    counter = _counter(handle)
    how_instant = "field" if instant else None
    how_average = "field" if average else None
    if scope == GPU_SCOPE and ask(pynvml.nvmlDeviceGetPowerUsage, handle) is not None:
        if legacy_is_instant(handle, name):
            how_instant = how_instant or "legacy"
        else:
            how_average = how_average or "legacy"
    wanted = ((counter, ENERGY, GPU_SCOPE), (how_instant, INSTANT, scope), (how_average, AVERAGE, scope))
    fields = tuple((number, where) for how, number, where in wanted if how == "field")
    return Sources(counter, how_instant, how_average, scope, fields)


def _counter(handle: Any) -> str | None:
    """How to read the energy counter: as a field, in one call with power, where that is the number that the call of
    its own gives (within what a board can use in between)."""
    (field_mj,) = _ask_fields(handle, ((ENERGY, GPU_SCOPE),))
    call_mj = ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    if field_mj is not None and (call_mj is None or abs(call_mj - field_mj) <= SAME_MJ):
        return "field"
    return "call" if call_mj is not None else None


def _ask_fields(handle: Any, fields: tuple[tuple[int, int], ...]) -> list[float | None]:
    found = ask(FieldReader(fields).read, handle)
    return found if found is not None else [None] * len(fields)


def is_module(handle: Any, name: str) -> bool:
    """Whether counter and power cover a whole module, CPU included (Grace Hopper and its successors)."""
    mode = ask(pynvml.nvmlDeviceGetC2cModeInfoV, handle)
    return bool(mode is not None and mode.isC2cEnabled) or "GH200" in name or "GB200" in name


def legacy_is_instant(handle: Any, name: str) -> bool:
    """Whether nvmlDeviceGetPowerUsage is instantaneous: on GA100 (compute capability 8.0) and older. Newer boards
    give a mean of 1 s (NVML API reference). The name decides only where the driver does not tell."""
    capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    if capability is None:
        return any(word in name for word in INSTANT_NAMES)
    return tuple(capability) <= (8, 0)


def describe(handle: Any, index: int) -> tuple[Device, Sources] | str:
    """A board as a Device and its sources; or, where it gives nothing, a line that says so."""
    name = str(ask(pynvml.nvmlDeviceGetName, handle) or "NVIDIA GPU")
    uuid = ask(pynvml.nvmlDeviceGetUUID, handle)
    if uuid is None:
        return f"GPU {index} ({name}) does not tell its UUID: it is lost; reset it or reboot"
    sources = probe(handle, name)
    if sources.best is None:
        return f"GPU {index} ({name}) gives neither energy nor power"
    module = sources.scope == MODULE_SCOPE
    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    device = Device(
        key=f"g{index}",
        id=str(uuid),
        name=name,
        kind="other" if module else "gpu",
        scope="module" if module else "gpu",
        source=sources.best,
        index=index,
        limit_w=limit * MILLI if limit else None,
        average_window_s=AVERAGE_WINDOW_S if sources.average else 0.0,
        details=_details(handle, name, sources),
    )
    return device, sources


def _details(handle: Any, name: str, sources: Sources) -> dict[str, Any]:
    found = {
        "counter": sources.counter,
        "instant": sources.instant,
        "average": sources.average,
        "legacy_power": "instant" if legacy_is_instant(handle, name) else "average",
        "driver": ask(pynvml.nvmlSystemGetDriverVersion),
        "memory_b": getattr(ask(pynvml.nvmlDeviceGetMemoryInfo, handle), "total", None),
        "mig": mig_enabled(handle),
    }
    return {k: v for k, v in found.items() if v is not None}


def mig_enabled(handle: Any) -> bool:
    """Whether the board is cut into MIG slices; its readings are the whole board's all the same."""
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    return bool(mode and mode[0])
