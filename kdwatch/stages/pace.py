"""When a probe has seen enough: its reports are read as they are written, by a thread beside the work."""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LOOK_S = 0.1
"""Seconds between two looks at the reports."""
LEAST_INTERVALS = 4
"""Intervals between reports after which a speed is believed."""
PRECISE = 0.02
"""Relative standard error of the speed at which a part has been seen enough."""


@dataclass
class Pace:
    """Tokens over time of one part, since its work began."""

    least_s: float
    most_s: float
    least_steps: int = 0
    """Steps that must be done before the part may end."""
    steps: int = 0
    begun: float | None = None
    points: list[tuple[float, float]] = field(default_factory=list)
    """(CLOCK_MONOTONIC s, tokens so far)."""

    def report(self, event: dict[str, object]) -> None:
        """Take one event that the part reported."""
        t, tokens, step = event.get("t"), event.get("tokens"), event.get("step")
        self.steps = step if isinstance(step, int) else self.steps
        if not isinstance(t, int | float):
            return
        if event.get("type") == "phase" and event.get("name") == "work":
            self.begun = float(t)
        elif self.begun is not None and isinstance(tokens, int) and event.get("type") == "progress":
            self.points += [(float(t), float(tokens))] if not self.points or tokens > self.points[-1][1] else []

    def over(self, now: float) -> bool:
        """Whether the part may end: its speed is known, or its time is over."""
        if self.begun is None or now < self.begun + self.least_s or self.steps < self.least_steps:
            return False
        return now >= self.begun + self.most_s or self._error() <= PRECISE

    def _error(self) -> float:
        """Relative standard error of the mean speed; the first interval holds warm-up and is left out."""
        later = self.points[1:]
        speeds = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(later) if b[0] > a[0]]
        if len(speeds) < LEAST_INTERVALS:
            return math.inf
        mean = sum(speeds) / len(speeds)
        squares = sum((speed - mean) ** 2 for speed in speeds)
        return math.sqrt(squares / (len(speeds) - 1) / len(speeds)) / mean


class Pacer:
    """Reads the stage's own reports while a part works, and calls `enough` once when it may end."""

    def __init__(self, part: str, pace: Pace, enough: Callable[[], None]) -> None:
        self._part, self._pace, self._enough = part, pace, enough
        self._path = Path(os.environ.get("KDWATCH_EVENTS") or os.devnull)
        self._taken = 0
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Pacer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._left.wait(LOOK_S):
            self._read()
            if self._pace.over(time.monotonic()):
                self._enough()
                return

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._taken)
                lines = file.read()
        except OSError:
            return
        whole = lines[: lines.rfind(b"\n") + 1]
        self._taken += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            if event.get("part") == self._part:
                self._pace.report(event)
