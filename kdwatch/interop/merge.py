"""Files that belong together: CodeCarbon's file and its backups, a trainer's log and the power of the same run."""

from __future__ import annotations

import math

from kdwatch.interop.model import ImportedLog, LoggedStage

CODECARBON = "codecarbon-emissions-csv"
REWRITTEN = 1e-6
"""Rows that CodeCarbon wrote again have fewer digits: equal within this, relatively."""


def merge_codecarbon(logs: list[ImportedLog]) -> None:
    """Count each run_id once over all files: the longest row wins, `.bak` files only add what is missing."""
    best: dict[str, tuple[float, int]] = {}
    files = [log for log in logs if log.format == CODECARBON]
    for number, log in enumerate(files):
        for stage in log.stages:
            run, seconds = stage.details.get("run_id"), stage.duration_s or 0.0
            if run and (run not in best or seconds > best[run][0] * (1 + REWRITTEN)):
                best[run] = (seconds, number)
    for number, log in enumerate(files):
        kept = [s for s in log.stages if s.details.get("run_id") is None or best[s.details["run_id"]][1] == number]
        if len(kept) == len(log.stages):
            continue
        log.note("repeated_runs", f"{len(log.stages) - len(kept)} runs are in another of the files too and count there")
        log.stages = kept
        _sum_again(log)


def _sum_again(log: ImportedLog) -> None:
    """Totals of the stages that stayed."""
    for device in log.devices:
        values = [v for stage in log.stages if (v := stage.energy_j.get(device.key)) is not None]
        device.energy_j = math.fsum(values) if values else None
    totals = [t for stage in log.stages if (t := stage.details.get("total_reported_j")) is not None]
    log.total_j = math.fsum(totals) if totals else None
    log.kwh = None if log.total_j is None else log.total_j / 3.6e6
    grams = [kg for stage in log.stages if (kg := stage.details.get("kg_co2e")) is not None]
    log.kg_co2e = math.fsum(grams) if grams else None
    log.duration_s = math.fsum(stage.duration_s or 0.0 for stage in log.stages) if log.stages else None


def attach_progress(logs: list[ImportedLog]) -> list[str]:
    """Give a trainer's tokens, steps and loss to the one power log or stage beside it; says what was done."""
    trainers = [log for log in logs if log.format.startswith("trainer-")]
    others = [log for log in logs if not log.format.startswith("trainer-") and log.duration_s is not None]
    notes = []
    for trainer in trainers:
        stage = trainer.stages[0]
        target = _only_stage(others)
        if target is None:
            if others:
                notes.append(f"{trainer.path.name}: several stages with energy: whose tokens these are is unknown")
            continue
        _copy(stage, target)
        logs.remove(trainer)
        notes.append(f"{trainer.path.name}: joined to stage {target.name}; its times count from that stage's start")
    return notes


def _only_stage(logs: list[ImportedLog]) -> LoggedStage | None:
    if len(logs) != 1:
        return None
    log = logs[0]
    if not log.stages:
        energy = {device.key: device.energy_j for device in log.devices}
        log.stages.append(LoggedStage(log.path.stem, "student", None, log.duration_s, energy))
    return log.stages[0] if len(log.stages) == 1 else None


def _copy(source: LoggedStage, target: LoggedStage) -> None:
    target.kind = "student"
    target.points = source.points
    target.tokens = source.tokens if source.tokens is not None else target.tokens
    target.step, target.total_steps, target.loss = source.step, source.total_steps, source.loss
