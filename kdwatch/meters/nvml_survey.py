"""Asking every NVIDIA board what it is and gives, side by side, so that one's silence is not another's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from kdwatch.meters import visible
from kdwatch.meters.base import Device
from kdwatch.meters.nvml_probe import Sources, ask, describe, mig_enabled


@dataclass(frozen=True)
class Answer:
    """What one board said of itself."""

    handle: Any
    board: visible.Board
    described: tuple[Device, Sources] | str
    """Or a line that says why it gives nothing."""


class Survey:
    """One thread a board. Those that hang go on by themselves, and their answers are there once they come."""

    def __init__(self, count: int, ask_board: Callable[[int], Answer | str] | None = None) -> None:
        self.count = count
        self._ask = ask_board or survey_board
        self._answers: dict[int, Answer | str] = {}
        """By number; a line where a board cannot be opened."""
        self._news = threading.Condition()
        for index in range(count):
            threading.Thread(target=self._work, args=(index,), name="sensor-survey", daemon=True).start()

    def _work(self, index: int) -> None:
        answer = self._ask(index)
        with self._news:
            self._answers[index] = answer
            self._news.notify_all()

    def answer(self, index: int) -> Answer | str | None:
        """What a board said; None while it is silent."""
        return self._answers.get(index)

    def wait(
        self, limit_s: float, patience_s: float, enough: Callable[[Mapping[int, Answer | str]], bool]
    ) -> dict[int, Answer | str]:
        """Answers once all are there; or those of the moment `patience_s` after the first board's if they are
        `enough`; or those at the limit."""
        end = time.monotonic() + limit_s
        first: float | None = None
        with self._news:
            while len(self._answers) < self.count and (now := time.monotonic()) < end:
                if first is None and any(isinstance(a, Answer) for a in self._answers.values()):
                    first = now
                if first is not None and now >= first + patience_s and enough(self._answers):
                    break
                until = end if first is None or now >= first + patience_s else min(end, first + patience_s)
                self._news.wait(until - now)
            return dict(self._answers)


def survey_board(index: int) -> Answer | str:
    """Everything about one board, or a line that says why it cannot be opened."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as problem:
        return f"GPU {index} cannot be opened: NVML: {problem}"
    return Answer(handle, board(index, handle), describe(handle, index))


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
