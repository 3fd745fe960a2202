"""Starting the run of a recipe."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.pipeline.resolve import resolve
from kdwatch.pipeline.spawn import check_home, spawn, wait_for_answer

log = logging.getLogger("kdwatch")

Z90 = 1.645
"""Half the width of a 90 % interval in standard deviations."""


def recipe_spec(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON that validates again."""
    data = recipe.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    data["name"] = recipe.name
    if recipe.budget is not None:
        data["budget"] = f"{recipe.budget!r}J"
    if "log_cap" in data:
        data["log_cap"] = f"{recipe.log_cap / 1000!r}kB"
    return data


def expected_energy(recipe: Recipe) -> dict[str, tuple[float, float]]:
    """(mean, standard deviation) in joules that the cost model expects of each stage that it knows from runs here, for
    the budget's forecast. A fault of the model costs the forecast, not the run."""
    try:
        from kdwatch.pipeline.outlook.stages import Machine, outlook

        found = [(s.stage.name, s.energy) for s in outlook(recipe, Machine.look()) if s.energy is not None]
    except Exception as error:
        log.warning("no forecast for stages that have not begun: %s", error)
        return {}
    return {name: (e.mean_j, (e.high_j - e.low_j) / (2.0 * Z90)) for name, e in found if e.label == "predicted"}


def start_run(
    recipe: Recipe,
    *,
    name: str | None = None,
    run_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Path:
    """Start a recorder for a recipe; returns the run directory once its manifest is written.

    `name` replaces the recipe's; `env` is added to this process's environment for recorder and stages; `sweep` goes
    into the manifest as it is: which point of which sweep this run is.
    Raises UsageProblem where the recipe's files or the home cannot be used.
    """
    if name is not None:
        recipe = recipe.renamed(name)
    check_home()
    resolve(recipe)
    spec: dict[str, Any] = {
        "mode": "recipe",
        "recipe": recipe_spec(recipe),
        "recipe_path": str(recipe._path) if recipe._path else None,
        "run_dir": str(run_dir) if run_dir else None,
        "sweep": dict(sweep) if sweep else None,
    }
    if recipe.budget is not None and any(stage.uses for stage in recipe.stages):
        spec["expected"] = expected_energy(recipe)
    process = spawn(spec, env)
    try:
        return Path(wait_for_answer(process)["run"])
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
