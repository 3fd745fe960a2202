"""The machine's NVIDIA boards and MIG slices, as NVML lists them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pynvml

from kdwatch.meters import visible
from kdwatch.meters.base import Device
from kdwatch.meters.nvml_probe import Sources, ask, describe, mig_enabled
from kdwatch.meters.nvml_sensor import GpuSensor

LIMIT_S = 15.0
"""A board that has not answered all questions by then is left out. Without persistence mode the driver's start takes
about a second a board."""


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


@dataclass(frozen=True)
class Answer:
    """What one board said of itself."""

    handle: Any
    board: visible.Board
    described: tuple[Device, Sources] | str


def find(value: str | None, order: str | None, clock: Callable[[], float], limit_s: float = LIMIT_S) -> Found:
    """Initialise NVML and open the boards that a value of `CUDA_VISIBLE_DEVICES` selects (None: all). NVML stays
    initialised if any sensor is returned. A driver that hangs costs `limit_s` each for its start and its boards."""
    started = _within([("NVML", _start)], limit_s)
    if not started:
        text = f"NVML gives no answer within {limit_s:g} s"
        return Found([], [], 0, text, "see whether nvidia-smi hangs too; if so reset the GPU or reboot")
    count = started["NVML"]
    if isinstance(count, pynvml.NVMLError):
        return Found([], [], 0, *_explain(count))
    answers = _within([(i, partial(_survey, i)) for i in range(count)], limit_s)
    found = _select(answers, count, value, order, clock, limit_s)
    if not found.sensors:
        pynvml.nvmlShutdown()
    return found


def _start() -> int | pynvml.NVMLError:
    """Number of boards, or why there is none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return problem
    return ask(pynvml.nvmlDeviceGetCount) or 0


def _within(calls: list[tuple[Any, Callable[[], Any]]], limit_s: float) -> dict[Any, Any]:
    """Results by name of those calls that end in time, made side by side."""
    results: dict[Any, Any] = {}

    def work(name: Any, call: Callable[[], Any]) -> None:
        results[name] = call()

    threads = [threading.Thread(target=work, args=c, daemon=True) for c in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(results)


def _survey(index: int) -> Answer | str:
    """Everything about one board, or a line that says why it cannot be opened."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as problem:
        return f"GPU {index} cannot be opened: NVML: {problem}"
    return Answer(handle, board(index, handle), describe(handle, index))


def _select(
    answers: dict[int, Answer | str],
    count: int,
    value: str | None,
    order: str | None,
    clock: Callable[[], float],
    limit_s: float,
) -> Found:
    notes: list[str] = []
    known = {i: a for i, a in sorted(answers.items()) if isinstance(a, Answer)}
    chosen = visible.select(value, numbered(known, count), order)
    sensors = []
    for index in sorted(b.index for b in chosen.boards):
        answer = answers.get(index, f"GPU {index} gives no answer within {limit_s:g} s: left out")
        described = answer if isinstance(answer, str) else answer.described
        if isinstance(answer, str) or isinstance(described, str):
            notes.append(str(described))
        else:
            sensors.append(GpuSensor(described[0], answer.handle, described[1], clock))
    notes += chosen.notes
    nothing = None if sensors else "; ".join(notes) or "NVML finds no GPU"
    return Found(sensors, notes, count, nothing)


def numbered(known: dict[int, Answer], count: int) -> list[visible.Board]:
    """All boards, silent ones included: they keep their place, so that a number means the same board. A silent one is
    taken to be like its neighbours."""
    speed = max((a.board.speed for a in known.values()), default=0.0)
    boards: list[visible.Board] = []
    for index in range(count):
        before = boards[-1].bus_id if boards else ""
        silent = visible.Board(index, f"unknown-{index}", before + "~", speed)
        boards.append(known[index].board if index in known else silent)
    return boards


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
