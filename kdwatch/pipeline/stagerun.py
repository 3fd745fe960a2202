"""One stage of a recipe, from the look into the store to the artifact it leaves."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdwatch.pipeline import attempts
from kdwatch.pipeline.artifacts import Artifact
from kdwatch.pipeline.locks import MakerLock
from kdwatch.pipeline.resolve import ResolvedStage, environment, stored
from kdwatch.pipeline.stageproc import StageCommand, StageOutcome, StageProcess
from kdwatch.rundir.errors import UsageProblem

if TYPE_CHECKING:
    from kdwatch.pipeline.runner import RecipeRun

log = logging.getLogger("kdwatch.recorder")

WAIT_S = 0.3
EDGE_S = 0.3
"""How long the store waits for the readings after a stage's end, so that an artifact's energy is whole."""
REFRESH_S = 30.0


class StageRun:
    """Runs one stage; lives while it runs."""

    def __init__(self, run: RecipeRun, stage: ResolvedStage) -> None:
        self.run = run
        self.stage = stage
        self.recording = run.recording
        self.recorder = run.recorder
        self.process: StageProcess | None = None
        self.running = False
        self.asked: str | None = None
        """`stopped` or `skipped` on request, `timeout`."""
        self.lock: MakerLock | None = None
        self.staging: Path | None = None
        self.alone = True
        """Whether no other run makes the same output now; else this one works in a directory of its own."""
        self._timeout_at: float | None = None
        self._refresh_due = 0.0

    # -- from outside

    def stop(self, status: str, now: bool = False) -> None:
        """End the stage as `stopped` or `skipped`."""
        self.asked = self.asked or status
        if self.process:
            self.process.stop(now)
        self.recorder.loop.wake()

    def tick(self) -> None:
        """Timeout, escalation, and who belongs to the stage."""
        if self.process is None or not self.running:
            return
        now = time.monotonic()
        if self._timeout_at is not None and now >= self._timeout_at and self.asked is None:
            text = f"ended after its timeout of {self.stage.recipe.timeout:g} s"
            self.recording.warn("timeout", text, stage=self.stage.name)
            self.stop("timeout")
        self.process.tick()
        if self.lock and now >= self._refresh_due:
            self._refresh_due = now + REFRESH_S
            self.lock.refresh()

    # -- the stage's life

    def execute(self) -> str:
        """Run or reuse; returns the stage's status. What cannot be started is a failure, said in the record."""
        name = self.stage.name
        try:
            found = self._find_or_lock()
            if found is not None:
                return self._reuse(found)
            if self.asked:
                return self._not_started("asked to stop while it waited")
            return self._launch()
        except (UsageProblem, OSError) as problem:
            log.exception("stage %s", name)
            self.recording.warn("stage_problem", str(problem), stage=name)
            return self._not_started(str(problem))
        finally:
            if self.lock:
                self.lock.release()

    def _not_started(self, reason: str) -> str:
        self.recording.event("stage_skipped", stage=self.stage.name, reason=reason)
        return "skipped" if self.asked else "failed"

    def _find_or_lock(self) -> Artifact | None:
        """A stored output, waiting for another run that makes it now; None with the lock held where there is none."""
        stage = self.stage
        found = stored(self.run.store, stage)
        if found is not None or not (stage.artifact and stage.builtin and stage.builtin.makes):
            return found
        self.lock = self.run.store.lock(stage.builtin.makes, stage.artifact)
        while not self.lock.try_acquire():
            if not stage.reuse:
                self.alone = False
                return None
            text = "waits for another run that makes the same output now"
            self.recording.warn("waits", text, stage=stage.name)
            self.recorder.loop.run_until(lambda: self.asked is not None, WAIT_S)
            if self.asked:
                return None
        return stored(self.run.store, stage)

    def _reuse(self, artifact: Artifact) -> str:
        made = artifact.made_by
        source = {
            "run": made.get("run"),
            "artifact": artifact.id,
            "energy_j": artifact.energy_j,
            "estimated": artifact.estimated,
        }
        self.recording.event("stage_reused", stage=self.stage.name, reused_from=source)
        self._count_use(artifact)
        return "reused"

    def _count_use(self, artifact: Artifact) -> None:
        count = artifact.add_use(self.recorder.run.name)
        if self.stage.kind == "teacher":
            self.recording.event(
                "teacher_reuse",
                artifact=artifact.id,
                reuse_count=count,
                teacher_j=artifact.energy_j,
                estimated=artifact.estimated,
            )

    def _launch(self) -> str:
        stage, recorder = self.stage, self.recorder
        process = StageProcess(self._command())
        self.process = process
        if not process.prepare():
            self.asked = None
            return self._end(process)
        recorder.samplers.set_active(True)
        recorder.samplers.own_processes([process.shim_pid])
        recorder.samplers.edge()
        recorder.loop.watch(process.fd, process.hear)
        self.running = True
        if stage.recipe.timeout is not None:
            self._timeout_at = time.monotonic() + stage.recipe.timeout
        self._start(process)
        if self.asked:
            process.stop()
        recorder.loop.run_until(lambda: process.done or process.outcome.main_exit_t is not None)
        recorder.samplers.edge()
        if not process.done:
            recorder.loop.run_until(lambda: process.done)
            recorder.samplers.edge()
        recorder.loop.unwatch(process.fd)
        self.running = False
        return self._end(process)

    def _start(self, process: StageProcess) -> None:
        """Event, then the fork: the ledger sees the start before any reading of the stage."""
        stage = self.stage
        self.recording.event("stage_started", stage=stage.name, kind=stage.kind, pid=process.pid, pgid=process.pid)
        process.go()

    def _command(self) -> StageCommand:
        stage, recorder = self.stage, self.recorder
        env = environment(self.run.recipe, stage.recipe, self.run.env)
        env |= {
            "KDWATCH_EVENTS": str(recorder.follow(stage.name)),
            "KDWATCH_RUN_DIR": str(recorder.run),
            "KDWATCH_STAGE": stage.name,
        }
        if stage.builtin:
            env["KDWATCH_STAGE_CONFIG"] = str(self._write_config())
        env.setdefault("PYTHONUNBUFFERED", "1")  # the log is for watching
        return StageCommand(
            stage=stage.name,
            argv=stage.argv,
            cwd=stage.workdir,
            env=env,
            log=recorder.run / "logs" / f"{stage.name}.log",
            events=recorder.run / "events.jsonl",
            origin=recorder.origin,
            grace_s=stage.grace_s,
            log_cap_b=self.run.recipe.log_cap,
        )

    def _write_config(self) -> Path:
        """The configuration of a built-in stage: settings, where its inputs lie, where its output goes."""
        stage = self.stage
        if stage.artifact and stage.builtin and stage.builtin.makes:
            owner = None if self.alone else self.recorder.run.name
            self.staging = self.run.store.staging(stage.builtin.makes, stage.artifact, owner)
            attempts.note(self.staging, self.recorder.run.name, stage.name)
        inputs = {n: str(self.run.store.path(kind, id)) for n, (kind, id) in stage.input_artifacts.items()}
        config = {
            "name": stage.name,
            "settings": stage.settings,
            "inputs": inputs,
            "output": str(self.staging) if self.staging else None,
        }
        folder = self.recorder.run / "stages" / stage.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "config.json"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as f:
            json.dump(config, f, indent=1)
        return path

    # -- its end

    def _end(self, process: StageProcess) -> str:
        stage, outcome = self.stage, process.outcome
        self.recorder.unfollow(stage.name)
        self._warn_of(outcome)
        status = self._status(outcome)
        t = self.recording.run_time(outcome.ended_t) if outcome.ended_t else None
        self.recording.event(
            "stage_ended",
            t=t,
            stage=stage.name,
            status="failed" if status == "timeout" else status,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            cpu_s=outcome.cpu_s,
            max_rss_b=outcome.max_rss_b,
        )
        self.recorder.samplers.set_active(False)
        if status == "completed" and self.staging:
            return self._keep_or_fail(self.staging, t)
        return "failed" if status == "timeout" else status

    def _keep_or_fail(self, staging: Path, t: float | None) -> str:
        """Put the output into the store; a stage whose output cannot be kept has failed after all."""
        try:
            return self._keep(staging)
        except (UsageProblem, OSError) as problem:
            name = self.stage.name
            log.exception("output of %s", name)
            self.recording.warn("output_lost", f"its output could not be stored: {problem}", stage=name)
            self.recording.event("stage_ended", t=t, stage=name, status="failed", exit_code=0, signal=None)
            return "failed"

    def _status(self, outcome: StageOutcome) -> str:
        if self.asked and not (self.asked != "timeout" and outcome.exit_code == 0):
            return self.asked
        if outcome.exit_code == 0 and not outcome.failure:
            return "completed"
        return "failed"

    def _warn_of(self, outcome: StageOutcome) -> None:
        name = self.stage.name
        if outcome.failure:
            self.recording.warn("not_started", f"could not be started: {outcome.failure}", stage=name)
        if outcome.left:
            text = f"left processes behind: {listed(outcome.left)}; they were waited for, then ended"
            self.recording.warn("leftover", text, stage=name)
        if outcome.unkillable:
            self.recording.warn("orphan", f"could not be killed: {listed(outcome.unkillable)}", stage=name)
        if outcome.shim_lost:
            self.recording.warn("shim_lost", "its parent process was killed, so the stage was ended", stage=name)
        if outcome.log_dropped_b:
            self.recording.warn("log_capped", f"{outcome.log_dropped_b} bytes of its output were not kept", stage=name)

    def _keep(self, staging: Path) -> str:
        """Put the output into the store."""
        stage = self.stage
        assert stage.artifact and stage.builtin and stage.builtin.makes
        self.recorder.samplers.edge(wait_s=EDGE_S)
        energy_j, estimated = self._energy_j()
        before = attempts.earlier(staging, self.recorder.run.name)
        if any(a.energy_j is None for a in before):
            text = "its energy lacks that of earlier runs which began it and are gone"
            self.recording.warn("energy_incomplete", text, stage=stage.name)
        if energy_j is not None:
            energy_j = round(energy_j + sum(a.energy_j or 0.0 for a in before), 3)
        meta: dict[str, Any] = {
            "id": stage.artifact,
            "kind": stage.builtin.makes,
            "made_by": {"run": self.recorder.run.name, "stage": stage.name, "uses": stage.recipe.uses},
            "energy_j": energy_j,
            "estimated": estimated,
            "attempts": [asdict(a) for a in before],
            "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "inputs": {name: id for name, (_, id) in stage.input_artifacts.items()},
            "settings": stage.settings,
            "code_version": stage.builtin.code_version,
        }
        artifact = self.run.store.commit(staging, meta)
        self.recording.event("artifact", stage=stage.name, artifact=artifact.id, kind=artifact.kind, energy_j=energy_j)
        self._count_use(artifact)
        return "completed"

    def _energy_j(self) -> tuple[float | None, bool]:
        """Energy that the stage took, as far as it is known now, and whether a model told a part of it."""
        totals = self.recording.totals()
        for found in totals.stages if totals else ():
            if found.name == self.stage.name:
                total = found.energy_j.get("total")
                return None if total is None else round(total, 3), bool(found.energy_j.get("estimated"))
        return None, False


def listed(found: list[tuple[int, str]]) -> str:
    """`123 (sleep), 124 (python)`."""
    shown = ", ".join(f"{pid} ({name})" for pid, name in found[:10])
    return shown + (", ..." if len(found) > 10 else "")
