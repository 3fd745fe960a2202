"""What a sweep finds done: runs whose manifest carries the key of one of its points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.pipeline.hashing import HashMemory, hash_value
from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.pipeline.resolve import ResolvedStage, hash_paths, resolve
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import list_runs
from kdwatch.rundir.reader import RunReader, load_manifest


def point_key(recipe: Recipe, memory: HashMemory | None = None) -> str:
    """Identity of what a recipe does: settings, inputs and contents of every stage, its commands and environment.

    Names, budget and region are no part of it. The files that a command reads are not known and not part of it.
    Raises UsageProblem where an input file cannot be read.
    """
    memory = memory or HashMemory()
    stages = [_stage_key(stage, memory) for stage in resolve(recipe, memory)]
    memory.save()
    return hash_value({"env": recipe.env, "stages": stages})


def _stage_key(stage: ResolvedStage, memory: HashMemory) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": stage.kind, "env": stage.recipe.env}
    if stage.builtin is None:
        return found | {"argv": stage.argv, "workdir": str(stage.workdir)}
    builtin = stage.builtin
    if stage.artifact:
        return found | {"artifact": stage.artifact}
    files = hash_paths(stage.recipe, builtin, stage.settings, stage.workdir, memory)
    matter = {k: v for k, v in stage.settings.items() if k not in builtin.ignored and k not in files}
    inputs = {name: id for name, (_, id) in stage.input_artifacts.items()}
    return found | {
        "uses": builtin.uses,
        "settings": matter,
        "inputs": inputs,
        "files": files,
        "code_version": builtin.code_version,
    }


class KnownRuns:
    """Runs of this home that were points of sweeps, newest first."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[Path]] = {}
        for run in list_runs():
            key = _key_of(run)
            if key:
                self._by_key.setdefault(key, []).append(run)

    def find(self, key: str) -> tuple[Path, str] | None:
        """A run of this key that is whole (`completed`), else one that still goes on (`running`)."""
        known = [(run, RunReader(run).status()) for run in self._by_key.get(key, [])]
        for wanted in ("completed", "running"):
            for run, status in known:
                if status == wanted:
                    return run, status
        return None


def _key_of(run: Path) -> str | None:
    try:
        manifest: Mapping[str, Any] = load_manifest(run)
    except UsageProblem:
        return None
    sweep = manifest.get("sweep")
    key = sweep.get("key") if isinstance(sweep, Mapping) else None
    return key if isinstance(key, str) else None
