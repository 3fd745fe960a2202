"""Running a recipe: its stages one after the other, stored outputs reused, until done, stopped or out of budget."""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import Totals
from kdwatch.pipeline import builtins, setup
from kdwatch.pipeline.answers import answer
from kdwatch.pipeline.artifacts import ArtifactStore
from kdwatch.pipeline.guard import BudgetGuard
from kdwatch.pipeline.housekeeping import Recorder
from kdwatch.pipeline.manifest import stage_entry
from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.pipeline.resolve import ResolvedStage, measured_gpus, resolve
from kdwatch.pipeline.stagerun import StageRun
from kdwatch.rundir import control
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.redact import mask_mapping

log = logging.getLogger("kdwatch.recorder")

TICK_S = 0.5
GUARD_TICK_S = 0.1
"""With a budget: about a sampling period."""
CONTROL_S = 0.5
EXIT_CODES = {"completed": 0, "failed": 1, "over_budget": 3, "stopped": 143}


class RecipeRun:
    """State of a run of a recipe: what is asked of it, what runs now."""

    def __init__(
        self,
        recorder: Recorder,
        recipe: Recipe,
        env: Mapping[str, str],
        expected: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.recorder = recorder
        self.recording = recorder.recording
        self.recipe = recipe
        self.env = env
        self.store = ArtifactStore()
        self.budget_j = recipe.budget
        self.expected = expected
        """(mean, standard deviation) in joules that the cost model expects of stages."""
        self.guard = self._make_guard()
        self._told: set[str] = set()
        """Kinds of warning that the guard has given for this budget."""
        self.current: StageRun | None = None
        self.skipped: set[str] = set()
        self.without_output: set[str] = set()
        """Stages that made no output that later ones could take."""
        self.end_status: str | None = None
        """Why the run ends before its time: `stopped` or `over_budget`."""
        self.end_code = 0
        self.end_reason: str | None = None
        self._control_due = 0.0
        self._guard_due = 0.0

    def _make_guard(self) -> BudgetGuard | None:
        if self.budget_j is None:
            return None
        return BudgetGuard(self.budget_j, self.recipe.stop_over_budget, self.expected)

    # -- the run

    def execute(self) -> tuple[str, int, str | None]:
        """Run all stages; returns status, exit code and reason of the run.

        Raises UsageProblem where an input of a stage cannot be read.
        """
        loop = self.recorder.loop
        loop.catch((signal.SIGTERM, signal.SIGINT), self.on_signal)
        for number in self.recorder.early_signals:
            self.on_signal(number)
        loop.every(GUARD_TICK_S if self.guard else TICK_S, self.tick)
        if self.recipe.idle_baseline:
            setup.idle_baseline(self.recorder, self.recipe.idle_baseline, lambda: self.end_status is not None)
        failed: str | None = None
        stopped: str | None = None
        for stage in resolve(self.recipe):
            reason = self._why_not(stage, failed)
            if reason:
                self.recording.event("stage_skipped", stage=stage.name, reason=reason)
                self.without_output.add(stage.name)
                continue
            status = self._run_stage(stage)
            if status not in ("completed", "reused"):
                self.without_output.add(stage.name)
            if status == "failed":
                failed = stage.name
            elif status == "stopped":
                stopped = stage.name
        return self._verdict(failed, stopped)

    def _why_not(self, stage: ResolvedStage, failed: str | None) -> str | None:
        if self.end_status:
            return self.end_reason or self.end_status
        if failed:
            return f"stage {failed} failed"
        if stage.name in self.skipped:
            return "skipped on request"
        missing = sorted(set(stage.recipe.inputs.values()) & self.without_output)
        return f"needs the output of {missing[0]}, which there is not" if missing else None

    def _run_stage(self, stage: ResolvedStage) -> str:
        self.current = StageRun(self, stage)
        try:
            return self.current.execute()
        finally:
            self.current = None

    def _verdict(self, failed: str | None, stopped: str | None) -> tuple[str, int, str | None]:
        if self.end_status:
            return self.end_status, self.end_code, self.end_reason
        if failed:
            return "failed", EXIT_CODES["failed"], f"stage {failed} failed"
        if stopped:
            return "stopped", EXIT_CODES["stopped"], f"stage {stopped} was stopped on request"
        return "completed", 0, None

    # -- what is asked of it

    def on_signal(self, number: int) -> None:
        """TERM and INT stop the run; a second one kills."""
        if number in (signal.SIGTERM, signal.SIGINT):
            name = signal.Signals(number).name
            self.stop(f"{name} to the recorder", 128 + number, now=self.end_status is not None)

    def stop(self, reason: str, code: int, status: str = "stopped", now: bool = False) -> None:
        """End the run: the stage gets TERM, and KILL after its grace (now: KILL at once)."""
        if self.end_status is None:
            self.end_status, self.end_code, self.end_reason = status, code, reason
        if self.current:
            self.current.stop("stopped", now)

    def tick(self) -> None:
        """Requests, escalation, budget."""
        now = self.recording.now()
        if now >= self._control_due:
            self._control_due = now + CONTROL_S
            for request in control.take(self.recorder.run):
                self._obey(request)
        if self.current:
            self.current.tick()
        if self.guard and self.current and self.current.running and now >= self._guard_due:
            totals = self.recording.totals()
            if totals is not None:
                self._guard_due = now + self.guard.pause_s(totals)
                self._guard(self.guard, totals)

    def _guard(self, guard: BudgetGuard, totals: Totals) -> None:
        verdict = guard.check(totals)
        if verdict.action != "none" and verdict.code not in self._told:
            self._told.add(verdict.code)
            self.recording.warn(verdict.code, verdict.text)
        if verdict.action == "stop" and self.end_status is None:
            self.stop(verdict.text, EXIT_CODES["over_budget"], "over_budget")

    def _obey(self, request: Mapping[str, Any]) -> None:
        action, stage = request.get("action"), request.get("stage")
        now = bool(request.get("now"))
        taken: dict[str, Any] = {"stage": stage} if isinstance(stage, str) else {}
        if action == "extend_budget" and self._extend(request.get("value")):
            taken |= {"value": self.budget_j, "budget_j": self.budget_j}
        self.recording.event("control", action=action, **taken)
        if action == "stop":
            code = request.get("exit_code")
            self.stop("stopped on request", code if code in (130, 143) else EXIT_CODES["stopped"], now=now)
        elif action == "kill":
            self.stop("killed on request", EXIT_CODES["stopped"], now=True)
        elif action == "skip":
            self._skip(stage, now)
        elif action == "stop_stage" and self.current and stage in (None, self.current.stage.name):
            self.current.stop("stopped", now)

    def _skip(self, stage: Any, now: bool) -> None:
        """Skip a stage that is still to come, or end the one that runs as skipped."""
        if self.current and stage in (None, self.current.stage.name):
            self.current.stop("skipped", now)
        elif isinstance(stage, str):
            self.skipped.add(stage)

    def _extend(self, value: Any) -> bool:
        """A new budget in joules; only upwards. Whether it was taken."""
        ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not ok or self.budget_j is None or value <= self.budget_j:
            return False
        self.budget_j = float(value)
        if self.guard:
            self.guard.budget_j = self.budget_j
        self._told.clear()
        return True


def open_run(spec: Mapping[str, Any], recipe: Recipe) -> Recorder:
    """Make the run directory of a recipe's run."""
    entries = [
        stage_entry(
            s.name,
            s.kind or (builtins.get(s.uses).kind if s.uses else "other"),
            s.uses,
            s.argv,
            s.gpu_list,
            sorted(set(s.inputs.values())),
        )
        for s in recipe.stages
    ]
    accounting: dict[str, Any] = {
        "budget_j": recipe.budget,
        "pue": recipe.pue,
        "region": recipe.region,
        "intensity_g_per_kwh": recipe.intensity,
    }
    if spec.get("expected"):
        accounting["expected_j"] = {name: round(mean, 3) for name, (mean, _) in spec["expected"].items()}
    if spec.get("sweep"):
        accounting["sweep"] = mask_mapping(spec["sweep"])
    env = {**os.environ, **recipe.env, **{k: v for s in recipe.stages for k, v in s.env.items()}}
    return setup.open_run(
        spec,
        gpus=measured_gpus(recipe, os.environ),
        name=recipe.name,
        regime=recipe.regime,
        stages=entries,
        recipe=spec["recipe"],
        environment=env,
        workdir=recipe.folder,
        accounting=accounting,
    )


def record(spec: Mapping[str, Any]) -> int:
    """Record a run of a recipe (the recorder's main). Returns its exit code."""
    recipe = Recipe.model_validate(spec["recipe"])
    recipe._path = Path(spec["recipe_path"]) if spec.get("recipe_path") else None
    recorder = open_run(spec, recipe)
    answer(run=str(recorder.run), pid=os.getpid())
    setup.leave_launcher()
    recorder.begin()
    try:
        status, code, reason = RecipeRun(recorder, recipe, os.environ, spec.get("expected")).execute()
    except UsageProblem as problem:
        status, code, reason = "failed", 2, str(problem)
        recorder.recording.warn("recipe", str(problem))
    except Exception as error:
        log.exception("run")
        status, code, reason = "failed", 1, f"the recorder failed: {type(error).__name__}"
    recorder.end(status, code, reason)
    setup.note_tdp(recorder)
    return code
