"""An NVIDIA board that has not said what it gives when the others begin to be read."""

from __future__ import annotations

import math
from collections.abc import Callable

from kdwatch.meters.base import Device, Reading
from kdwatch.meters.nvml_probe import AVERAGE_WINDOW_S, Sources
from kdwatch.meters.nvml_sensor import GpuSensor
from kdwatch.meters.nvml_survey import Answer

ANSWERED = "answered"
"""In a device's details, False: the board was silent so far, and all else that is said of it is a guess."""


def unknown_board(index: int) -> Device:
    """A device that holds a board's place: with all readings that boards may have."""
    return Device(
        key=f"g{index}",
        id=f"unknown-{index}",
        name=f"GPU {index}",
        kind="gpu",
        scope="gpu",
        source="counter",
        index=index,
        average_window_s=AVERAGE_WINDOW_S,
        details={ANSWERED: False},
    )


class LateSensor(GpuSensor):
    """Reads nothing, as a lost board does, until the board has answered; from then on it is a sensor like others."""

    def __init__(self, index: int, answer: Callable[[int], Answer | str | None], clock: Callable[[], float]) -> None:
        super().__init__(unknown_board(index), None, Sources(), clock)
        self._answer: Callable[[int], Answer | str | None] | None = answer
        self._index = index
        self.lost = True
        self.text = f"GPU {index} gives no answer yet: it is read from when it does"
        self.say("lost", self.text, clock())

    @property
    def answered(self) -> bool:
        """Whether the board has said what it gives, or that it gives nothing."""
        return self._answer is None

    def read(self) -> Reading:
        """One reading; nothing in it while the board is silent, or where it gives nothing."""
        if self._answer is not None:
            found = self._answer(self._index)
            if found is None:
                return Reading(self.device.key, self.clock())
            self._answer = None
            self._take(found)
        return super().read()

    def _take(self, found: Answer | str) -> None:
        described = found if isinstance(found, str) else found.described
        if isinstance(found, str) or isinstance(described, str):
            self._retry_at = math.inf
            self.say("lost", str(described), self.clock())
        else:
            self.become(described[0], found.handle, described[1])
