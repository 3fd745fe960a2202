"""The machine's NVIDIA boards and MIG slices, as NVML lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from kdwatch.meters import visible
from kdwatch.meters.nvml_sensor import GpuSensor, ask, describe, mig_enabled


@dataclass(frozen=True)
class Found:
    """What NVML offers here."""

    sensors: list[GpuSensor]
    notes: list[str]
    boards: int = 0
    """Boards seen, selected or not."""
    problem: str | None = None
    """Why there is nothing."""
    fix: str | None = None
    """What to do about it."""


def find(value: str | None, order: str | None, clock: Callable[[], float]) -> Found:
    """Initialise NVML and open the boards that a value of `CUDA_VISIBLE_DEVICES` selects (None: all). NVML stays
    initialised if any sensor is returned."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return Found([], [], 0, *_explain(problem))
    handles, notes = _handles()
    boards = [board(index, handle) for index, handle in handles.items()]
    chosen = visible.select(value, boards, order)
    sensors = []
    for selected in sorted(chosen.boards, key=lambda b: b.index):
        described = describe(handles[selected.index], selected.index)
        if isinstance(described, str):
            notes.append(described)
            continue
        device, sources = described
        sensors.append(GpuSensor(device, handles[selected.index], sources, clock))
    if not sensors:
        pynvml.nvmlShutdown()
    notes += chosen.notes
    nothing = None if sensors else "; ".join(notes) or "NVML finds no GPU"
    return Found(sensors, notes, len(boards), nothing)


def _handles() -> tuple[dict[int, Any], list[str]]:
    """Handle by NVML index; a board that cannot be opened is a note, and no other board's loss."""
    handles, notes = {}, []
    for index in range(ask(pynvml.nvmlDeviceGetCount) or 0):
        try:
            handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as problem:
            notes.append(f"GPU {index} cannot be opened: NVML: {problem}")
    return handles, notes


def board(index: int, handle: Any) -> visible.Board:
    """A board as `CUDA_VISIBLE_DEVICES` needs it."""
    bus = getattr(ask(pynvml.nvmlDeviceGetPciInfo, handle), "busId", "") or ""
    cores = ask(pynvml.nvmlDeviceGetNumGpuCores, handle)
    clock = ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM)
    return visible.Board(
        index=index,
        uuid=str(ask(pynvml.nvmlDeviceGetUUID, handle) or f"unknown-{index}"),
        bus_id=bus if isinstance(bus, str) else bus.decode(errors="replace"),
        speed=float(cores) * float(clock) if cores and clock else 0.0,
        slices=tuple(_slices(handle)) if mig_enabled(handle) else (),
    )


def _slices(handle: Any) -> list[visible.MigSlice]:
    found = []
    for i in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        mig = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i)
        uuid = ask(pynvml.nvmlDeviceGetUUID, mig) if mig is not None else None
        if uuid is None:
            continue
        gpu_instance = ask(pynvml.nvmlDeviceGetGpuInstanceId, mig)
        compute_instance = ask(pynvml.nvmlDeviceGetComputeInstanceId, mig)
        if gpu_instance is not None and compute_instance is not None:
            found.append(visible.MigSlice(str(uuid), int(gpu_instance), int(compute_instance)))
    return found


def _explain(problem: pynvml.NVMLError) -> tuple[str, str | None]:
    code = problem.value
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "libnvidia-ml.so.1 is not installed: no NVIDIA driver here", None
    if code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "NVML: the NVIDIA driver is not loaded", "load it (modprobe nvidia), or run on a GPU node"
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return "NVML: no permission on /dev/nvidia*", "ask for access to the GPU's device files"
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "NVML: driver and library versions differ", "reboot, or reload the driver after its update"
    return f"NVML: {problem}", None
