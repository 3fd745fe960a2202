"""Checks of a recipe that need more than one key: names, built-in stages, inputs, files, region."""

from __future__ import annotations

import os
import shutil
from difflib import get_close_matches
from pathlib import Path

from kdwatch.pipeline import builtins
from kdwatch.pipeline.recipe_model import Recipe, StageRecipe
from kdwatch.pipeline.recipe_yaml import Location, PlacedYaml
from kdwatch.rundir.errors import UsageProblem


def check_recipe(recipe: Recipe, placed: PlacedYaml) -> None:
    """Raise UsageProblem for the first thing that cannot work."""
    if recipe.region is not None:
        _check_region(recipe, placed)
    if recipe.stop_over_budget and recipe.budget is None:
        raise placed.problem(("stop_over_budget",), "needs `budget:`: add one, for example budget: 20kWh")
    earlier: dict[str, StageRecipe] = {}
    for i, stage in enumerate(recipe.stages):
        here: Location = ("stages", i)
        if stage.name in earlier:
            raise placed.problem((*here, "name"), f"two stages are called {stage.name}: give each its own name")
        _check_workdir(recipe, stage, placed, here)
        if stage.uses is not None:
            _check_builtin(stage, earlier, placed, here)
        else:
            _check_command(recipe, stage, placed, here)
        earlier[stage.name] = stage


def _check_region(recipe: Recipe, placed: PlacedYaml) -> None:
    from kdwatch.ledger.grid import intensity

    try:
        intensity(recipe.region)
    except UsageProblem as problem:
        raise placed.problem(("region",), str(problem)) from None


def _check_workdir(recipe: Recipe, stage: StageRecipe, placed: PlacedYaml, here: Location) -> None:
    folder = recipe.workdir_of(stage)
    if not folder.is_dir():
        where = (*here, "workdir") if stage.workdir else (("workdir",) if recipe.workdir else here)
        raise placed.problem(where, f"{folder} is no directory: make it, or change workdir")


def _check_builtin(stage: StageRecipe, earlier: dict[str, StageRecipe], placed: PlacedYaml, here: Location) -> None:
    known = builtins.names()
    if stage.uses not in known:
        near = get_close_matches(str(stage.uses), known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
        raise placed.problem((*here, "uses"), f"no built-in stage {stage.uses}: {hint}")
    builtin = builtins.get(stage.uses)
    try:
        builtins.check_settings(builtin, stage.settings)
    except builtins.SettingsProblem as problem:
        raise placed.problem((*here, "with", *problem.location), problem.text) from None
    _check_inputs(stage, builtin, earlier, placed, here)
    if stage.uses == "student.train":
        _check_logits(stage, earlier, placed, here)


def _check_inputs(
    stage: StageRecipe,
    builtin: builtins.Builtin,
    earlier: dict[str, StageRecipe],
    placed: PlacedYaml,
    here: Location,
) -> None:
    for name, source in stage.inputs.items():
        place = (*here, "inputs", name)
        if name not in builtin.inputs:
            known = ", ".join(builtin.inputs) or "none"
            raise placed.problem(place, f"{stage.uses} has no such input: its inputs are {known}")
        if source not in earlier:
            near = get_close_matches(source, list(earlier), n=2)
            hint = (
                f"did you mean {' or '.join(near)}?" if near else "stages before it: " + (", ".join(earlier) or "none")
            )
            raise placed.problem(place, f"no stage {source} before this one: {hint}")
        maker = earlier[source]
        made = builtins.get(maker.uses).makes if maker.uses else None
        if made not in builtin.accepts(name):
            what = f"makes {made}" if made else "makes no artifact"
            wanted = " or ".join(builtin.accepts(name))
            raise placed.problem(place, f"stage {source} {what}, but {stage.uses} needs {wanted} here")
    for name in builtin.required_inputs(stage.settings):
        if name not in stage.inputs:
            wanted = " or ".join(builtin.accepts(name))
            raise placed.problem(
                (*here, "inputs"), f"{stage.uses} needs the input {name} ({wanted}): name the stage that makes it"
            )


def _check_logits(stage: StageRecipe, earlier: dict[str, StageRecipe], placed: PlacedYaml, here: Location) -> None:
    """What the student's stage would refuse is told before the teacher's energy is spent."""
    kd = stage.settings.get("objective") == "kd"
    source = stage.inputs.get("logits")
    if kd and source is None:
        raise placed.problem(
            (*here, "inputs"), "objective kd needs the input logits: name a teacher.cache_logits stage"
        )
    if source is None:
        return
    if not kd:
        raise placed.problem((*here, "inputs", "logits"), "belongs to objective kd: set it, or take the input out")
    declared = earlier[source].settings.get("temperatures", [1.0])
    wanted = stage.settings.get("temperature", 1.0)
    if wanted not in declared:
        text = f"{wanted} is not among the temperatures of {source}: add it there ({declared})"
        raise placed.problem((*here, "with", "temperature"), text)


def _check_command(recipe: Recipe, stage: StageRecipe, placed: PlacedYaml, here: Location) -> None:
    """A command that cannot be found is told before anything runs."""
    word = stage.argv[0]
    path = {**os.environ, **recipe.env, **stage.env}.get("PATH")
    folder = recipe.workdir_of(stage)
    found = shutil.which(word, path=path) if os.sep not in word else shutil.which(str(folder / Path(word).expanduser()))
    if found is None:
        what = "is no program that can be run" if os.sep in word else "is not on the PATH"
        raise placed.problem((*here, "run"), f"{word} {what}: check the name; a shell line needs: sh -c '...'")
