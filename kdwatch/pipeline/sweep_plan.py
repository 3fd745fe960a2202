"""A sweep before it runs: which points are done, what is made once for several, what it will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kdwatch.pipeline.outlook.stages import Machine, StageOutlook, as_json, outlook, total
from kdwatch.pipeline.sweep import Point, Sweep
from kdwatch.pipeline.sweep_run import found_points

SCHEMA = 1


def sweep_plan(sweep: Sweep, again: bool = False, machine: Machine | None = None) -> dict[str, Any]:
    """The object of `kdwatch sweep --dry-run --json`. Runs nothing.

    Raises UsageProblem where an input file cannot be read.
    """
    machine = machine or Machine.look()
    made: dict[str, str] = {}
    points, running = [], []
    for point, _, found in found_points(sweep, again):
        status = found[1] if found else "to run"
        stages = [] if status == "completed" else outlook(point.recipe, machine)
        points.append(_point(point, status, found[0].name if found else None, stages, made))
        running += [s for s in stages if not _shared(s, point, made)]
    whole = total(running)
    sizes = [s.amounts.disk_b for s in running if s.reused is None and s.amounts.disk_b is not None]
    return {
        "schema": SCHEMA,
        "name": sweep.name,
        "hardware": machine.hardware,
        "points": points,
        "stages_to_run": sum(s.reused is None for s in running),
        "disk_b": sum(sizes) if sizes else None,
        "energy_j": whole.mean_j if whole else None,
        "energy_low_j": whole.low_j if whole else None,
        "energy_high_j": whole.high_j if whole else None,
        "energy_labels": list(whole.labels) if whole else [],
        "energy_without": _names(whole.unknown) if whole else _names([s.stage.name for s in running]),
    }


def _shared(found: StageOutlook, point: Point, made: dict[str, str]) -> bool:
    """Whether an earlier point makes this output; notes the first that does."""
    artifact = found.stage.artifact
    if found.reused is not None or artifact is None or not found.stage.reuse:
        return False
    return made.setdefault(artifact, point.name) != point.name


def _point(
    point: Point, status: str, run: str | None, stages: Sequence[StageOutlook], made: dict[str, str]
) -> dict[str, Any]:
    listed = []
    for found in stages:
        shared = _shared(found, point, made)
        plain = as_json(replace(found, energy=None, why="made by an earlier point") if shared else found)
        listed.append(plain | {"made_by_point": made[found.stage.artifact or ""] if shared else None})
    return {"name": point.name, "settings": point.settings, "status": status, "run": run, "stages": listed}


def _names(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
