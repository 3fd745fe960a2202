"""A sweep: the grid that a recipe declares, as recipes to run one after the other.

    sweep:                                 # one grid: every combination of the values
      student.alpha: [0.3, 0.5, 0.8]       # STAGE.SETTING: a setting below the stage's `with:`
      train.env.SEED: [1, 2]               # STAGE.env.NAME: a variable of the stage's environment

    sweep:                                 # several grids, each over this recipe's stages or over those of `recipe:`
      - recipe: kd.yaml
        student.alpha: [0.3, 0.5]

One cache of logits serves all temperatures: those that students use are declared to the stage that makes the cache.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.pipeline.recipe import Recipe, checked
from kdwatch.pipeline.recipe_yaml import Location, PlacedYaml, read_yaml
from kdwatch.pipeline.sweep_grid import Grid, read_grid
from kdwatch.pipeline.sweep_names import point_name, unique_names, varying_keys
from kdwatch.pipeline.sweep_temperatures import declare_temperatures
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

MOST_POINTS = 10_000
"""More points than anyone runs: a slip in the file."""
_FOR_ALL = (
    "name", "budget", "stop_over_budget", "region", "intensity", "pue", "env", "idle_baseline", "sweep",
)  # fmt: skip
"""Keys of a file that takes its stages from other recipes; they go over those of the recipes."""


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    name: str
    """Name of the run: the recipe's, and the settings that vary."""
    settings: dict[str, Any]
    """What the grid set: `{"student.alpha": 0.3}`."""
    recipe: Recipe


@dataclass(frozen=True)
class Sweep:
    """All points of a file, in running order."""

    name: str
    path: Path
    points: tuple[Point, ...]


@dataclass
class _Draft:
    """A point before it is checked."""

    base: PlacedYaml
    data: dict[str, Any]
    """The recipe's document, without `sweep`, with the grid's values in it."""
    settings: dict[str, Any]


def load_sweep(path: Path | str) -> Sweep:
    """Read a sweep file; every point is checked as a recipe.

    Raises UsageProblem: `FILE:LINE: KEY: what; what to do`.
    """
    placed = read_yaml(Path(path))
    if not isinstance(placed.data, dict):
        raise placed.problem((), "a sweep is a recipe with the key sweep: a mapping")
    grids = list(_grids(placed))
    count = sum(grid.size for grid in grids)
    if count > MOST_POINTS:
        raise placed.problem(("sweep",), f"has {count} points, at most {MOST_POINTS}: take values out")
    drafts = [draft for grid in grids for draft in _drafts(placed, grid)]
    declare_temperatures([draft.data for draft in drafts])
    recipes = [_recipe(draft) for draft in drafts]
    varying = varying_keys([draft.settings for draft in drafts])
    told = [{k: v for k, v in draft.settings.items() if k in varying} for draft in drafts]
    names = unique_names([point_name(recipe.name, some) for recipe, some in zip(recipes, told, strict=True)])
    points = [
        Point(name, draft.settings, recipe.renamed(name))
        for name, draft, recipe in zip(names, drafts, recipes, strict=True)
    ]
    return Sweep(str(placed.data.get("name") or placed.path.stem), placed.path.absolute(), tuple(points))


def _grids(placed: PlacedYaml) -> Iterator[Grid]:
    found = placed.data.get("sweep")
    if not found:
        raise placed.problem(("sweep",), "is missing: add a grid such as student.alpha: [0.3, 0.5], or use kdwatch run")
    items: list[tuple[Location, Any]] = (
        [(("sweep", i), item) for i, item in enumerate(found)] if isinstance(found, list) else [(("sweep",), found)]
    )
    for here, item in items:
        yield read_grid(placed, here, item)
    if not placed.data.get("stages"):
        for key in placed.data:
            if key not in _FOR_ALL:
                raise placed.problem((str(key),), f"belongs into the recipes; here may stand: {', '.join(_FOR_ALL)}")


def _drafts(placed: PlacedYaml, grid: Grid) -> Iterator[_Draft]:
    base, shared = _base(placed, grid)
    for values in grid.combinations():
        data = copy.deepcopy({**base.data, **shared, **_joined_env(base.data, shared)})
        data.pop("sweep", None)
        for axis, i in values:
            axis.set(placed, data, i)
        settings = {axis.key: axis.values[i] for axis, i in values}
        yield _Draft(base, data, settings)


def _base(placed: PlacedYaml, grid: Grid) -> tuple[PlacedYaml, dict[str, Any]]:
    """The document that gives the stages, and the keys of the sweep's file that go over it."""
    if grid.recipe is None:
        if not placed.data.get("stages"):
            raise placed.problem(grid.here, "no stages to vary: add `recipe: FILE`, or `stages:` to this file")
        return placed, {}
    if placed.data.get("stages"):
        raise placed.problem((*grid.here, "recipe"), "this file has stages of its own: take one of both out")
    path = placed.path.parent / Path(grid.recipe).expanduser()
    if not path.is_file():
        raise placed.problem((*grid.here, "recipe"), f"{path}: no such file: give a recipe, relative to this file")
    base = read_yaml(path)
    if not isinstance(base.data, dict) or base.data.get("sweep"):
        raise placed.problem((*grid.here, "recipe"), f"{path} is no plain recipe: give one without `sweep:`")
    return base, {key: value for key, value in placed.data.items() if key not in ("name", "sweep")}


def _joined_env(recipe: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """`env` as at every other level: single variables go over those below, the others stay."""
    below, over = recipe.get("env"), shared.get("env")
    return {"env": {**below, **over}} if isinstance(below, dict) and isinstance(over, dict) else {}


def _recipe(draft: _Draft) -> Recipe:
    try:
        return checked(PlacedYaml(draft.base.path, draft.data, draft.base.lines))
    except UsageProblem as problem:
        if not draft.settings:
            raise
        point = ", ".join(f"{key}={value}" for key, value in draft.settings.items())
        raise UsageProblem(f"{problem} (at the point {clean(point, 300)})") from None
