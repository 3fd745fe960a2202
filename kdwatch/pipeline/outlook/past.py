"""Stages of earlier runs on this kind of machine: what each handled and used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.ledger.report import build_report
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import list_runs
from kdwatch.rundir.reader import RunReader

MOST_RUNS = 100
"""Newest runs that are looked at."""


@dataclass(frozen=True)
class PastStage:
    """One stage that ran."""

    name: str
    uses: str | None
    command: tuple[str, ...]
    settings: Mapping[str, Any]
    params_b: float | None
    """Billions of parameters of the model it ran (a student's evaluation: the student)."""
    tokens: float | None
    energy_j: float
    scope: str
    """What its energy covers (`planners.schema.SCOPES`)."""
    missing: tuple[str, ...] = ()
    """Parts of that which are unknown."""


def this_hardware() -> str | None:
    """This machine as `planners` names hardware: its GPUs, else its CPU."""
    from kdwatch.meters.discover import Discovery, add_gpus
    from kdwatch.pipeline.manifest import hardware
    from planners.runinfo import hardware_name

    found = Discovery()
    try:
        add_gpus(found)
        gpus = [device.name for meter in found.meters for device in meter.devices if device.kind == "gpu"]
    finally:
        found.close()
    return hardware_name({"hardware": hardware(gpus)})


def past_stages(hardware: str | None) -> list[PastStage]:
    """Stages of the newest runs on this hardware, newest first; of the newest's scope only, with the same parts
    known. Runs that cannot be read are left out.
    """
    found: list[PastStage] = []
    for run in list_runs()[:MOST_RUNS]:
        try:
            found += _of_run(run, hardware)
        except UsageProblem:
            continue
    return [stage for stage in found if (stage.scope, stage.missing) == (found[0].scope, found[0].missing)]


def _of_run(run: Path, hardware: str | None) -> Iterator[PastStage]:
    from planners.runinfo import hardware_name, recipe_stages, stage_settings
    from planners.runs import scope_of

    reader = RunReader(run)
    if hardware is None or hardware_name(reader.manifest) != hardware:
        return
    report = build_report(run)
    recipes = {str(stage.get("name")): stage for stage in recipe_stages(reader.manifest)}
    sizes = _sizes(reader)
    scope = scope_of(report)
    for stage in report["stages"]:
        energy = stage["energy_j"]["total"]
        recipe = recipes.get(stage["name"])
        if not _tells(stage) or not energy or recipe is None:
            continue
        command = recipe.get("run")
        yield PastStage(
            stage["name"],
            recipe.get("uses"),
            tuple(map(str, command)) if isinstance(command, list) else (),
            stage_settings(recipe),
            sizes.get(stage["name"]) or (sizes.get("") if recipe.get("uses") == "evaluate" else None),
            stage["tokens"],
            energy,
            scope,
            tuple(sorted(stage["energy_j"]["missing"])),
        )


def _tells(stage: Mapping[str, Any]) -> bool:
    """Whether its energy stands for its tokens: it ended, or was stopped (a probe is) after work that it counted."""
    return stage["status"] == "completed" or (stage["status"] == "stopped" and bool(stage["tokens"]))


def _sizes(reader: RunReader) -> dict[str, float]:
    """Billions of parameters by stage; under "" those of the student."""
    found: dict[str, float] = {}
    for event in reader.iter_events():
        params = event.get("params")
        if event.get("type") != "model" or not isinstance(params, int | float) or isinstance(params, bool):
            continue
        if params > 0:
            found[str(event.get("stage"))] = params / 1e9
            if event.get("role") == "student":
                found[""] = params / 1e9
    return found
