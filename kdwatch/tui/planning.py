"""From what was typed on the Plan screen to a plan. Imports the planner only when called."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.ledger.grid import intensity
from kdwatch.rundir.errors import UsageProblem

OPTIONS = {
    "budget": "--budget",
    "quality": "--min-quality",
    "co2": "--co2",
    "region": "--region",
    "reuse": "--reuse",
    "serve": "--serve-tokens",
    "batch": "--teacher-batch",
    "answers": "--max-new-tokens",
}
"""Fields of the form and the option of `kdwatch plan` that each stands for."""


def request_of(values: Mapping[str, str]) -> Any:
    """The planner's request. Raises UsageProblem naming the field."""
    from planners import PlanRequest

    intensity(values.get("region") or None)
    request = PlanRequest(
        budget_kwh=_energy(values.get("budget", "")),
        min_quality=_number(values, "quality"),
        co2e_kg=_number(values, "co2", unit="kg"),
        region=values.get("region") or None,
        reuse_n=_whole(values, "reuse"),
        serve_tokens=_number(values, "serve"),
        teacher_batch=_number(values, "batch"),
        max_new_tokens=_number(values, "answers"),
    )
    return request.checked()


def _energy(text: str) -> float | None:
    from planners.quantities import energy_kwh

    return energy_kwh(text, OPTIONS["budget"]) if text else None


def _number(values: Mapping[str, str], name: str, unit: str = "") -> float | None:
    text = values.get(name, "")
    if not text:
        return None
    try:
        return float(text.removesuffix(unit).strip() if unit else text)
    except ValueError:
        raise UsageProblem(f"{OPTIONS[name]} {text}: not a number") from None


def _whole(values: Mapping[str, str], name: str) -> int | None:
    value = _number(values, name)
    if value is None:
        return None
    if not value.is_integer():
        raise UsageProblem(f"{OPTIONS[name]} {values[name]}: a whole number, please")
    return int(value)


def scaled_budget(text: str, factor: float) -> str | None:
    """A budget times a factor, as it would be typed; None where there is none above 0."""
    from kdwatch.ledger.units import KWH_J, parse_energy

    try:
        return f"{parse_energy(text) / KWH_J * factor:.3g}kWh"
    except UsageProblem:
        return None


def problem_of(values: Mapping[str, str]) -> str | None:
    """What is wrong with the form's values, or None."""
    try:
        request_of(values)
    except UsageProblem as problem:
        return str(problem)
    return None


def command_of(values: Mapping[str, str]) -> str:
    """The command that gives the same plan and writes its recipe."""
    parts = ["kdwatch", "plan"]
    for name, option in OPTIONS.items():
        if values.get(name):
            parts += [option, values[name]]
    return shlex.join([*parts, "--emit", "recipe.yaml"])


class Planner:
    """Observations read once, plans made from them as often as asked."""

    def __init__(self) -> None:
        self._observations: Any = None

    def forget(self) -> None:
        """Read the observations again next time."""
        self._observations = None

    def write(self, values: Mapping[str, str], path: Path) -> list[str]:
        """Write the recipe of the plan; returns the inputs that are not there. Raises UsageProblem."""
        import planners
        from planners.emit import missing_paths, write_recipe

        write_recipe(planners.plan(request_of(values), self._read()), path)
        return missing_paths(path)[1]

    def _read(self) -> Any:
        import planners

        if self._observations is None:
            self._observations = planners.load()
        return self._observations

    def plan(self, values: Mapping[str, str]) -> dict[str, Any]:
        """The object of `kdwatch plan --json`. Raises UsageProblem."""
        import planners

        return planners.plan(request_of(values), self._read()).to_json()


def start(recipe: Path) -> Path:
    """Start a recorder for a written recipe; returns the run's directory. Raises UsageProblem."""
    from kdwatch.pipeline.launch import start_run
    from kdwatch.pipeline.recipe import load_recipe

    return start_run(load_recipe(recipe))
