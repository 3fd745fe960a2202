"""One grid of a sweep: which settings vary over which values, checked key by key."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kdwatch.pipeline import builtins
from kdwatch.pipeline.hashing import canonical
from kdwatch.pipeline.recipe_yaml import Location, PlacedYaml
from kdwatch.rundir.text import clean

HOW = "name it STAGE.SETTING (below the stage's `with:`) or STAGE.env.NAME"


@dataclass(frozen=True)
class Axis:
    """One key of a grid and its values."""

    key: str
    values: tuple[Any, ...]
    here: Location
    """Where its list stands."""

    def set(self, placed: PlacedYaml, data: dict[str, Any], i: int) -> None:
        """Put value `i` into a recipe's document. Raises UsageProblem where it cannot be a setting of that stage."""
        stage, rest = self._stage(placed, data)
        value = self.values[i]
        if rest[0] == "env":
            if len(rest) != 2:
                raise placed.problem(self.here, f"{HOW}: a variable's name has no dot")
            stage["env"] = {**(stage.get("env") or {}), rest[1]: value}
            return
        if not stage.get("uses"):
            raise placed.problem(self.here, f"stage {stage['name']} is a command: vary {stage['name']}.env.NAME")
        stage["with"] = _with(stage.get("with"), rest, value)
        self._check(placed, stage, rest, i)

    def _stage(self, placed: PlacedYaml, data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The stage that the key names, and the parts after its name. Stage names may hold dots."""
        stages = [s for s in data.get("stages") or [] if isinstance(s, dict) and isinstance(s.get("name"), str)]
        fitting = [s for s in stages if self.key.startswith(s["name"] + ".")]
        if not fitting:
            names = [s["name"] for s in stages]
            near = get_close_matches(self.key.split(".")[0], names, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"stages: {clean(', '.join(names), 200)}"
            raise placed.problem(self.here, f"no stage of this name: {HOW}; {hint}")
        stage = max(fitting, key=lambda s: len(s["name"]))
        rest = self.key[len(stage["name"]) + 1 :].split(".")
        if not all(rest):
            raise placed.problem(self.here, f"{HOW}: no name may be empty")
        return stage, rest

    def _check(self, placed: PlacedYaml, stage: dict[str, Any], rest: list[str], i: int) -> None:
        """What this value alone makes wrong is told at its own place; what is missing besides comes later."""
        try:
            builtin = builtins.get(str(stage["uses"]))
            builtins.check_settings(builtin, stage["with"])
        except KeyError:
            return
        except builtins.SettingsProblem as problem:
            if problem.location[: len(rest)] == tuple(rest):
                raise placed.problem((*self.here, i), f"{clean(self.values[i], 60)}: {problem.text}") from None


def _with(settings: Any, parts: list[str], value: Any) -> dict[str, Any]:
    """`settings` with one value put at a path."""
    found = dict(settings) if isinstance(settings, dict) else {}
    found[parts[0]] = value if len(parts) == 1 else _with(found.get(parts[0]), parts[1:], value)
    return found


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of its axes."""

    here: Location
    recipe: str | None
    """File of the recipe that varies; None: the file that holds the grid."""
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(len(axis.values) for axis in self.axes)

    def combinations(self) -> Iterator[tuple[tuple[Axis, int], ...]]:
        """(axis, number of its value) of each point; the last axis varies fastest."""
        for numbers in itertools.product(*(range(len(axis.values)) for axis in self.axes)):
            yield tuple(zip(self.axes, numbers, strict=True))


def read_grid(placed: PlacedYaml, here: Location, item: Any) -> Grid:
    """Check the form of a grid. Raises UsageProblem."""
    if not isinstance(item, dict) or not item:
        raise placed.problem(here, "give a mapping such as student.alpha: [0.3, 0.5]")
    recipe = item.get("recipe")
    if recipe is not None and (not isinstance(recipe, str) or not recipe):
        raise placed.problem((*here, "recipe"), "give the path of a recipe")
    axes = tuple(_axis(placed, (*here, str(key)), value) for key, value in item.items() if key != "recipe")
    if not axes and recipe is None:
        raise placed.problem(here, "give at least one key with its values")
    return Grid(here, recipe, axes)


def _axis(placed: PlacedYaml, here: Location, values: Any) -> Axis:
    if not isinstance(values, list) or not values:
        raise placed.problem(here, "give a list of values: [0.3, 0.5]")
    for i, value in enumerate(values):
        try:
            canonical(value)
        except (TypeError, ValueError):
            text = f"{clean(value, 60)} cannot be a setting: give a text, a finite number, true, false, null or a list"
            raise placed.problem((*here, i), text) from None
    texts = [repr(value) for value in values]
    for i, text in enumerate(texts):
        if text in texts[:i]:
            raise placed.problem((*here, i), f"{clean(text, 60)} stands twice: name each value once")
    return Axis(str(here[-1]), tuple(values), here)
