"""Warnings of a run: those that were recorded, and those that follow from clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SUSPEND_S = 1.0
"""The boot clock runs on while the machine sleeps, the monotonic clock stands."""
CLOCK_STEP_S = 2.0


class Warnings:
    """Each distinct warning once, in order."""

    def __init__(self, clock: Mapping[str, Any]) -> None:
        self._origin = dict(clock)
        self._asleep_s = 0.0
        self._offset_s: float | None = 0.0 if "wall_origin" in clock else None
        self.found: list[dict[str, Any]] = []

    def add(self, code: str, text: str, **where: Any) -> None:
        """Add a warning unless it is there already."""
        entry = {"code": code, "text": text, **{k: v for k, v in where.items() if v is not None}}
        if entry not in self.found and len(self.found) < 1000:
            self.found.append(entry)

    def clock(self, event: Mapping[str, Any], t: float) -> None:
        """Compare the anchors of an event with the run's origin."""
        asleep = self._asleep(event.get("boottime"), t)
        if asleep is not None and asleep - self._asleep_s > SUSPEND_S:
            self.add("suspend", f"the machine slept for {asleep - self._asleep_s:.0f} s before {t:.0f} s of run time")
            self._asleep_s = asleep
        wall, origin = event.get("wall"), self._origin.get("wall_origin")
        if not isinstance(wall, int | float) or not isinstance(origin, int | float) or self._offset_s is None:
            return
        offset = wall - origin - t - self._asleep_s
        step = offset - self._offset_s
        if abs(step) > CLOCK_STEP_S:
            self.add("clock_step", f"the wall clock was set by {step:+.0f} s before {t:.0f} s; durations do not use it")
            self._offset_s = offset

    def _asleep(self, boottime: Any, t: float) -> float | None:
        origin = self._origin.get("boottime_origin")
        if isinstance(boottime, int | float) and isinstance(origin, int | float):
            return boottime - origin - t
        return None

    def state(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {"found": self.found, "asleep_s": self._asleep_s, "offset_s": self._offset_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.found = list(state["found"])
        self._asleep_s, self._offset_s = state["asleep_s"], state["offset_s"]
