"""What the control keys do to a run: each asks first and names what it will hit. Only requests are written; the
recorder, which may be detached, obeys them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdwatch.ledger.units import parse_energy
from kdwatch.rundir.control import request
from kdwatch.rundir.errors import UsageProblem
from kdwatch.tui.fmt import Units
from kdwatch.tui.frame import Frame, StageRow
from kdwatch.tui.screens.dialogs import AskScreen, ConfirmScreen


def stage_process(path: Path, stage: str) -> int | None:
    """Process id of a stage's newest start, for the question; None where no event names it."""
    from kdwatch.rundir import layout
    from kdwatch.tui.replay import lazy_events

    found = None
    for event in lazy_events(path / layout.EVENTS, 0):
        if event["type"] == "stage_started" and event.get("stage") == stage and isinstance(event.get("pid"), int):
            found = event["pid"]
    return found


class Controls:
    """Asks, then requests. `app` shows dialogs and messages."""

    def __init__(self, app: Any, path: Path, frame: Frame) -> None:
        self._app, self._path, self._frame = app, path, frame

    def stop_stage(self) -> None:
        """Stop the running stage."""
        row = self._frame.running
        if not self._frame.live or row is None:
            self._app.tell("no stage is running", "warning")
            return
        end = "SIGTERM, SIGKILL after the grace time. Later stages that need it do not run."
        detail = f"{self._stage_hit(row)} {end}"
        self._ask(f"Stop the stage {row.name}?", detail, "stop_stage", stage=row.name)

    def skip_stage(self, selected: StageRow | None) -> None:
        """Skip the selected stage, or the running one."""
        row = selected or self._frame.running
        if not self._frame.live or row is None or row.status not in ("pending", "running"):
            self._app.tell("select a stage that waits or runs", "warning")
            return
        hit = (
            f"{self._stage_hit(row)} SIGTERM. " if row.status == "running" else f"{self._recorder} Nothing is killed. "
        )
        detail = hit + "The stage counts as skipped; the run goes on with the next."
        self._ask(f"Skip the stage {row.name}?", detail, "skip", stage=row.name)

    def stop_run(self) -> None:
        """Stop the run."""
        frame = self._frame
        if not frame.live:
            self._app.tell("this run is not running", "warning")
            return
        row = frame.running
        hit = f"{self._stage_hit(row)} SIGTERM." if row else "No stage is running."
        detail = f"{self._recorder} {hit} The other stages do not start."
        self._ask(f"Stop the whole run {frame.run.name}?", detail, "stop")

    def extend(self) -> None:
        """Ask for a new budget, then whether it is meant."""
        frame = self._frame
        if not frame.live:
            self._app.tell("this run is not running", "warning")
            return
        if not frame.budget_j:
            self._app.tell("this run has no energy budget", "warning")
            return
        now = Units("J").energy(frame.budget_j)
        question = f"New energy budget for {frame.run.name} (now {now})? {self._recorder}"
        ask = AskScreen(question, "25kWh or 90MJ", self._check_budget)
        self._app.push_screen(ask, self._extend)

    def _check_budget(self, text: str) -> str | None:
        try:
            joules = parse_energy(text)
        except UsageProblem as problem:
            return str(problem)
        if self._frame.budget_j and joules <= self._frame.budget_j:
            return "more than now, please: a budget is only ever extended"
        return None

    def _extend(self, text: str | None) -> None:
        if text is None:
            return
        joules = parse_energy(text)
        question = f"Extend the budget of {self._frame.run.name} to {Units('J').energy(joules)}?"
        self._ask(question, self._recorder, "extend_budget", value=joules)

    @property
    def _recorder(self) -> str:
        """Who obeys."""
        return f"Recorder: process {self._frame.run.recorder_pid}."

    def _stage_hit(self, row: StageRow) -> str:
        """Whose processes a signal will hit; where no event names one, who will send it."""
        pid = stage_process(self._path, row.name)
        if pid is None:
            return f"{self._recorder} All processes of the stage get"
        return f"Process {pid} and its group get"

    def _ask(self, question: str, detail: str, action: str, **fields: Any) -> None:
        self._app.push_screen(ConfirmScreen(question, detail), self._answered(action, fields))

    def _answered(self, action: str, fields: dict[str, Any]) -> Callable[[bool | None], None]:
        def done(yes: bool | None) -> None:
            if not yes:
                return
            try:
                request(self._path, action, **fields)
            except UsageProblem as problem:
                self._app.tell(str(problem), "error")
                return
            self._app.tell(f"asked the recorder: {action.replace('_', ' ')}")

        return done
