"""What the user should be told once: a stage ended or failed, the budget's marks, a lost sensor, the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kdwatch.rundir.text import clean
from kdwatch.tui.fmt import ratio
from kdwatch.tui.frame import Frame, Notice, StageRow

BUDGET_MARKS = ((1.0, "budget_100", "error"), (0.8, "budget_80", "warning"))
"""Share of the budget, kind of notice, severity; the highest first."""

ENDED = ("completed", "failed", "stopped", "interrupted", "over_budget")


class Notices:
    """Compares frames and hands out each notice once."""

    def __init__(self) -> None:
        self._stages: dict[str, str] = {}
        self._budget = ""
        self._status = ""
        self._waiting: list[Notice] = []

    def event(self, event: Mapping[str, Any]) -> None:
        """Note an event that the totals do not carry."""
        if event["type"] == "sensor" and event.get("what") == "lost":
            text = clean(event.get("text") or "no more readings", 120)
            self._waiting.append(
                Notice("sensor_lost", f"sensor lost: {clean(event.get('device'), 20)}: {text}", "warning")
            )

    def on(self, frame: Frame, quiet: bool = False) -> Frame:
        """The frame with what is new since the last one; `quiet` takes the state as known already."""
        found = [
            *self._waiting,
            *self._stage_notices(frame),
            *self._budget_notices(frame),
            *self._status_notices(frame),
        ]
        self._waiting = []
        return frame if quiet or not found else replace(frame, notices=tuple(found))

    def _stage_notices(self, frame: Frame) -> list[Notice]:
        found = []
        for row in frame.stages:
            before = self._stages.get(row.name)
            self._stages[row.name] = row.status
            if before is not None and before != row.status and (notice := _stage_notice(row)):
                found.append(notice)
        return found

    def _budget_notices(self, frame: Frame) -> list[Notice]:
        share = frame.budget_share
        if share is None:
            return []
        for mark, kind, severity in BUDGET_MARKS:
            if share >= mark:
                if self._budget in (kind, "budget_100"):
                    return []
                self._budget = kind
                return [Notice(kind, f"{ratio(share)} of the energy budget is used", severity)]
        self._budget = ""
        return []

    def _status_notices(self, frame: Frame) -> list[Notice]:
        before, self._status = self._status, frame.status
        if frame.status not in ENDED or before != "running":
            return []
        severity = "information" if frame.status == "completed" else "error"
        return [Notice("run_ended", f"run {frame.run.name} {frame.status.replace('_', ' ')}", severity)]


def _stage_notice(row: StageRow) -> Notice | None:
    if row.status == "failed":
        return Notice("stage_failed", f"stage {row.name} failed, exit code {row.exit_code}", "error")
    if row.status in ("completed", "reused", "skipped", "stopped"):
        return Notice("stage_ended", f"stage {row.name} {row.status}")
    return None
