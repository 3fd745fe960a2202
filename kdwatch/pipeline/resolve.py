"""From a recipe to what will be run: whole settings, environment, identity of each output, what is there already."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.pipeline import builtins
from kdwatch.pipeline.artifacts import Artifact, ArtifactStore, artifact_id
from kdwatch.pipeline.hashing import HashMemory
from kdwatch.pipeline.recipe_model import Recipe, StageRecipe
from kdwatch.rundir.errors import UsageProblem

COMMAND_GRACE_S = 10.0


@dataclass(frozen=True)
class ResolvedStage:
    """One stage, ready to run but for the paths of its inputs."""

    recipe: StageRecipe
    kind: str
    builtin: builtins.Builtin | None
    settings: dict[str, Any]
    """Settings of a built-in with defaults filled in."""
    artifact: str | None
    """Identity of what it makes; None for commands and stages without an output."""
    input_artifacts: dict[str, tuple[str, str]]
    """Input name: (kind, id) of the artifact it takes."""
    reuse: bool
    """Whether a stored output is taken."""
    workdir: Path

    @property
    def name(self) -> str:
        """Name of the stage."""
        return self.recipe.name

    @property
    def grace_s(self) -> float:
        """Seconds between TERM and KILL."""
        if self.recipe.grace is not None:
            return self.recipe.grace
        return self.builtin.grace_s if self.builtin else COMMAND_GRACE_S

    @property
    def argv(self) -> list[str]:
        """What to start."""
        return [sys.executable, "-P", "-m", self.builtin.module] if self.builtin else self.recipe.argv


def resolve(recipe: Recipe, memory: HashMemory | None = None) -> list[ResolvedStage]:
    """All stages in order. Input files and models are hashed here, so this can take a while the first time.

    Raises UsageProblem where an input file cannot be read.
    """
    memory = memory or HashMemory()
    made: dict[str, tuple[str, str]] = {}
    resolved = []
    for stage in recipe.stages:
        found = _resolve_stage(recipe, stage, made, memory)
        if found.artifact and found.builtin and found.builtin.makes:
            made[stage.name] = (found.builtin.makes, found.artifact)
        resolved.append(found)
    memory.save()
    return resolved


def _resolve_stage(
    recipe: Recipe, stage: StageRecipe, made: Mapping[str, tuple[str, str]], memory: HashMemory
) -> ResolvedStage:
    workdir = recipe.workdir_of(stage)
    if stage.uses is None:
        return ResolvedStage(stage, stage.kind or "other", None, {}, None, {}, False, workdir)
    builtin = builtins.get(stage.uses)
    settings = builtins.check_settings(builtin, stage.settings)
    inputs = {name: made[source] for name, source in stage.inputs.items()}
    identity = None
    if builtin.makes:
        files = hash_paths(stage, builtin, settings, workdir, memory)
        matter = {k: v for k, v in settings.items() if k not in builtin.ignored and k not in files}
        ids = {name: id for name, (_, id) in inputs.items()}
        identity = artifact_id(stage.uses, matter, ids, files, builtin.code_version)
    reuse = builtin.reuse if stage.reuse is None else stage.reuse
    return ResolvedStage(
        stage, stage.kind or builtin.kind, builtin, settings, identity, inputs, reuse and identity is not None, workdir
    )


def hash_paths(
    stage: StageRecipe, builtin: builtins.Builtin, settings: dict[str, Any], workdir: Path, memory: HashMemory
) -> dict[str, str]:
    """Content hashes of the settings that name something on this disk; hub names stay what they are."""
    hashes = {}
    for name in sorted(builtin.paths):
        value = settings.get(name)
        if not isinstance(value, str):
            continue
        path = workdir / os.path.expanduser(value)  # noqa: PTH111
        if not path.exists():
            continue
        try:
            hashes[name] = memory.of_path(path)
        except OSError as error:
            raise UsageProblem(
                f"stage {stage.name}: {name}: {path} cannot be read ({error.strerror}): check the file's rights"
            ) from None
    return hashes


def stored(store: ArtifactStore, stage: ResolvedStage, verify: bool = True) -> Artifact | None:
    """The stored output that this stage would take instead of running."""
    if not (stage.reuse and stage.artifact and stage.builtin and stage.builtin.makes):
        return None
    find = store.open if verify else store.peek
    return find(stage.builtin.makes, stage.artifact)


def environment(recipe: Recipe, stage: StageRecipe, caller: Mapping[str, str]) -> dict[str, str]:
    """The stage's environment: the caller's, the recipe's over it, the stage's over that, its GPUs last.

    kdwatch's own variables of an outer run do not reach the stage.
    """
    inner = ("KDWATCH_EVENTS", "KDWATCH_RUN_DIR", "KDWATCH_STAGE", "KDWATCH_STAGE_CONFIG")
    env = {k: v for k, v in caller.items() if k not in inner}
    env |= recipe.env
    env |= stage.env
    if stage.cuda_devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = stage.cuda_devices
    return env


def measured_gpus(recipe: Recipe, caller: Mapping[str, str]) -> str | None:
    """The GPUs that a run measures, as CUDA_VISIBLE_DEVICES has them: those of its stages together, where every stage
    says which; else the caller's. None: all. Boards that only others use are not the run's energy."""
    shown: list[str] = []
    for stage in recipe.stages:
        value = environment(recipe, stage, {}).get("CUDA_VISIBLE_DEVICES")
        if value is None:
            return caller.get("CUDA_VISIBLE_DEVICES")
        shown += [word for word in value.split(",") if word not in shown]
    indices = {word.isdigit() for word in shown if word}
    return ",".join(shown) if len(indices) < 2 else None
