"""The machine's NVIDIA boards and MIG slices, as NVML lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pynvml

from kdwatch.meters import visible
from kdwatch.meters.lanes import within
from kdwatch.meters.nvml_late import LateSensor
from kdwatch.meters.nvml_probe import ask
from kdwatch.meters.nvml_sensor import GpuSensor
from kdwatch.meters.nvml_survey import Answer, Survey, numbered

LIMIT_S = 15.0
"""How long the driver may take to start. Without persistence mode that takes about a second a board."""
BOARDS_S = 5.0
"""How long the first board may take to answer all questions, or the one that CUDA_VISIBLE_DEVICES names."""
PATIENCE_S = 2.0
"""How long the others wait for a board after the first one's answer. Whoever is later joins when it answers."""
NAMES = ("GPU-", "MIG-")


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


def find(
    value: str | None,
    order: str | None,
    clock: Callable[[], float],
    limit_s: float = LIMIT_S,
    patience_s: float = PATIENCE_S,
) -> Found:
    """Initialise NVML and open the boards that a value of `CUDA_VISIBLE_DEVICES` selects (None: all). NVML stays
    initialised if any sensor is returned. A driver that hangs costs `limit_s`; a board that does, `patience_s` if
    another one answers, else `BOARDS_S`: it is among the sensors, and reads nothing until it has answered."""
    started = within([("NVML", _start)], limit_s)
    if not started:
        text = f"NVML gives no answer within {limit_s:g} s"
        return Found([], [], 0, text, "see whether nvidia-smi hangs too; if so reset the GPU or reboot")
    count = started["NVML"]
    if isinstance(count, pynvml.NVMLError):
        return Found([], [], 0, *_explain(count))
    survey = Survey(count)
    limit_s = min(limit_s, BOARDS_S)
    answers = survey.wait(limit_s, min(patience_s, limit_s), lambda found: _settled(found, count, value, order))
    found = _select(survey, answers, value, order, clock)
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


def _known(answers: Mapping[int, Answer | str]) -> dict[int, Answer]:
    return {i: a for i, a in sorted(answers.items()) if isinstance(a, Answer)}


def _settled(answers: Mapping[int, Answer | str], count: int, value: str | None, order: str | None) -> bool:
    """Whether silent boards cannot be meant by a name that none of the others has."""
    chosen = visible.select(value, numbered(_known(answers), count), order)
    return chosen.unknown is None or not chosen.unknown.startswith(NAMES)


def _select(
    survey: Survey,
    answers: Mapping[int, Answer | str],
    value: str | None,
    order: str | None,
    clock: Callable[[], float],
) -> Found:
    notes: list[str] = []
    chosen = visible.select(value, numbered(_known(answers), survey.count), order)
    sensors: list[GpuSensor] = []
    for index in sorted(b.index for b in chosen.boards):
        answer = answers.get(index)
        if answer is None:
            late = LateSensor(index, survey.answer, clock)
            sensors.append(late)
            notes.append(late.text)
        elif isinstance(answer, str) or isinstance(answer.described, str):
            notes.append(answer if isinstance(answer, str) else str(answer.described))
        else:
            device, sources = answer.described
            sensors.append(GpuSensor(device, answer.handle, sources, clock))
    notes += chosen.notes
    nothing = None if sensors else "; ".join(notes) or "NVML finds no GPU"
    return Found(sensors, notes, survey.count, nothing)


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
