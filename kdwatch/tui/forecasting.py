"""Where the running stage will end: its steps and energy so far, extrapolated by the planner's forecast."""

from __future__ import annotations

from collections.abc import Sequence

from kdwatch.tui.frame import Forecast, StageRow
from planners.forecast import MOST_POINTS
from planners.forecast import forecast as extrapolate


class StepEnergies:
    """Points (step, joules) of each stage, thinned as they come."""

    def __init__(self) -> None:
        self._points: dict[str, list[tuple[float, float]]] = {}

    def due(self, stage: str, step: float, total_steps: float) -> bool:
        """True if this step is far enough from the last one that was noted."""
        points = self._points.get(stage)
        return not points or step - points[-1][0] >= total_steps / MOST_POINTS

    def note(self, stage: str, step: float, joules: float) -> None:
        """The stage had used so much at that step; a step that went back begins anew."""
        points = self._points.setdefault(stage, [])
        if points and step <= points[-1][0]:
            points.clear()
        points.append((step, joules))

    def forecast(self, stages: Sequence[StageRow], total_j: float | None) -> Forecast | None:
        """Time to go of the running stage; its final energy, or the run's if it is the last one.

        None where no stage runs, several do, or it does not say how far it is.
        """
        running = [s for s in stages if s.status == "running"]
        if len(running) != 1:
            return None
        row = running[0]
        if not row.done or not row.total_steps or row.duration_s is None:
            return None
        remaining_s = row.duration_s / row.done - row.duration_s
        found = extrapolate(self._points.get(row.name, ()), float(row.total_steps))
        last = not any(s.status == "pending" for s in stages)
        before = total_j - row.energy_j if total_j is not None and row.energy_j is not None else None
        if found.final is None or found.low is None or found.high is None or (last and before is None):
            return Forecast(remaining_s, None, whole=last)
        base = before if last and before is not None else 0.0
        return Forecast(remaining_s, base + found.final, base + found.low, base + found.high, whole=last)
