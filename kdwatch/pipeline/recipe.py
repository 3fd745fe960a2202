"""Reading a recipe, with errors that name file, line and key."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kdwatch.pipeline.recipe_checks import check_recipe
from kdwatch.pipeline.recipe_model import Recipe, StageRecipe
from kdwatch.pipeline.recipe_yaml import Location, PlacedYaml, parse_yaml, read_yaml
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

__all__ = ["Recipe", "StageRecipe", "checked", "load_recipe", "parse_recipe"]


def load_recipe(path: Path | str) -> Recipe:
    """Read and check a recipe file.

    Raises UsageProblem: `FILE:LINE: KEY: what; what to do`.
    """
    return checked(read_yaml(Path(path)))


def parse_recipe(text: str, path: Path | str = "recipe.yaml") -> Recipe:
    """Check a recipe that is text; `path` gives relative paths their base and messages their name."""
    return checked(parse_yaml(text, Path(path)))


def checked(placed: PlacedYaml) -> Recipe:
    """The recipe of a document. Raises UsageProblem."""
    if not isinstance(placed.data, dict):
        raise placed.problem((), "a recipe is a mapping with the keys name, regime, stages, ...")
    if placed.data.get("sweep") and not placed.data.get("stages"):
        raise placed.problem(("sweep",), f"is a grid of runs: use `kdwatch sweep {placed.path}`")
    try:
        recipe = Recipe.model_validate(placed.data)
    except ValidationError as error:
        raise _first_problem(placed, error) from None
    recipe._path = placed.path.absolute()
    check_recipe(recipe, placed)
    return recipe


def _first_problem(placed: PlacedYaml, error: ValidationError) -> UsageProblem:
    """The first error as one line; how many more there are."""
    details = error.errors(include_url=False, include_input=False)
    first = details[0]
    location = _in_file(first["loc"], placed.data)
    text = _sentence(first, location)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return placed.problem(location, text + more)


def _in_file(location: Location, data: Any) -> Location:
    """An error's location without the parts that pydantic adds for unions."""
    found: list[str | int] = []
    for part in location:
        if isinstance(data, dict) and (part in data or not found):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            if isinstance(data, dict):
                found.append(part)
            break
        found.append(part)
    return tuple(found)


def _sentence(detail: Any, location: Location) -> str:
    if detail["type"] == "extra_forbidden":
        model = StageRecipe if len(location) > 1 and location[0] == "stages" else Recipe
        names = [field.alias or name for name, field in model.model_fields.items()]
        near = get_close_matches(str(location[-1]), names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known keys: {', '.join(names)}"
        return f"unknown key: {hint}"
    if detail["type"] == "missing":
        return "is missing: add it"
    text = clean(detail["msg"].removeprefix("Value error, "), 300)
    return text[:1].lower() + text[1:] if text[:5] == "Input" else text
