"""`kdwatch plan`: a method and hyperparameters for an energy budget, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kdwatch.cli.errors import one_line_errors

_NUMBERS = {
    "min_quality": "Lowest Q that will do, such as 0.9.",
    "cost": "Money per student, in --currency; needs a price.",
    "energy_price": "Price of a kWh.",
    "gpu_hour_price": "Rent of a GPU-hour.",
    "gpu_hours": "GPU-hours per student.",
    "mean_gpu_w": "Mean power of a GPU while it works, W: turns energy into GPU-hours.",
    "gpus": "Number of GPUs.",
    "reuse": "Students that share one teacher output (N). Default 1.",
    "students": "Students of the programme that --program-budget pays for.",
    "serve_tokens": "Tokens that each student will serve: ranks by training plus serving.",
    "serve_batch": "Batch at which they are served. Default 32.",
    "intensity": "Carbon intensity of the grid, g CO2e per kWh.",
    "teacher_intensity": "The same where the teacher runs.",
    "pue": "Power usage effectiveness of the site, 1 or more.",
    "teacher_pue": "The same where the teacher runs.",
    "quality_tolerance": "Take the cheapest candidate within this of the best Q. Default 0.",
    "confidence": "Demand P(use <= limit) of at least this, from 0.5, such as 0.9; by default the mean decides.",
    "interval": "Level of the intervals. Default 0.9.",
    "teacher_batch": "What-if: batch of the teacher's generation.",
    "max_new_tokens": "What-if: longest generation, tokens.",
    "tokens": "Training tokens to predict for (with --predict). Default: as measured.",
    "prompt_share": "What-if: share of the prompts kept, up to 1.",
}
_QUANTITIES = {
    "budget": "Energy per student at reuse N: 20kWh, 72MJ.",
    "program_budget": "Energy of all --students together, one teacher output included.",
    "co2": "Carbon per student: 5kg, 500g. Needs --region or --intensity.",
    "teacher_training": "Energy of training the teacher (with --teacher train).",
}
_TEXTS = {
    "currency": "Name of the currency. Default USD.",
    "region": "Country of the grid: FRA, DEU, USA ...",
    "teacher_region": "Country where the teacher runs, if another.",
    "serve_reference": "What serves otherwise: 'teacher' or a candidate's id.",
    "sizes": "Student sizes to predict, in billions: 1,7,13 (with --predict).",
    "hypervolume_reference": "Point KWH,Q from which the frontier's hypervolume is counted: 45,0.6. It is kept.",
    "scope": "Scope to plan in: gpu, gpu+cpu, cpu, gpu+cpu_estimated, cpu_estimated, or any.",
}
_CHOICES = {
    "objective": (["max_quality", "min_energy"], "Default: max_quality under an energy-like limit, else min_energy."),
    "energy_scope": (["it", "facility"], "Whether the table's energies hold the site's PUE already."),
    "teacher": (["owned", "train"], "Whether the teacher exists or must be trained first."),
    "teacher_outputs": (["compute", "cached"], "Whether the teacher's output must be made or exists."),
}


_MODELS = {
    "student_model": "Student of the emitted recipe: a model directory or hub name.",
    "teacher_model": "Teacher of the emitted recipe.",
    "data": "Data of the emitted recipe: a file or hub:OWNER/NAME.",
}


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, (values, text) in reversed(_CHOICES.items()):
        function = click.option(f"--{name.replace('_', '-')}", metavar="|".join(values), help=text)(function)
    for name, text in reversed({**_QUANTITIES, **_NUMBERS, **_TEXTS, **_MODELS}.items()):
        metavar = "NUMBER" if name in _NUMBERS else "AMOUNT" if name in _QUANTITIES else "TEXT"
        function = click.option(f"--{name.replace('_', '-')}", metavar=metavar, help=text)(function)
    return function


@click.command(
    epilog="""\b
Examples:
  kdwatch plan --budget 20kWh
  kdwatch plan --budget 20kWh --frontier paper --json
  kdwatch plan --min-quality 0.8 --reuse 20 --frontier paper
  kdwatch plan --co2 5kg --region FRA --pue 1.2 --frontier mine.csv paper
  kdwatch plan --budget 30kWh --predict --sizes 7 --emit recipe.yaml"""
)
@click.option("--frontier", "first_sources", multiple=True, metavar="SOURCE",
              help="Observations: a run directory or id, a CSV file, 'runs' (your finished runs), 'paper' (the study's "
                   "table). Repeat it, or list more after it. Default: your runs, then the study.")  # fmt: skip
@click.argument("more_sources", nargs=-1, metavar="[SOURCE]...")
@_options
@click.option("--predict", is_flag=True, help="Add candidates that the cost model predicts, with their intervals.")
@click.option("--probes", multiple=True, metavar="RUN",
              help="Probing runs that --predict uses. Default: of your runs the newest of each hardware.")  # fmt: skip
@click.option(
    "--emit",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the recommendation as a recipe for kdwatch run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan object (schema 1) to stdout.")
@one_line_errors
def plan(first_sources: tuple[str, ...], more_sources: tuple[str, ...], predict: bool, probes: tuple[str, ...],
         emit: Path | None, as_json: bool, **given: str | None) -> None:  # fmt: skip
    """Recommend method, student and hyperparameters for a budget, from measured frontiers.

    An infeasible budget is an answer, not an error: it names the cheapest candidate and the shortfall.
    """
    from kdwatch.rundir.errors import UsageProblem
    from planners.observations import DEFAULT, load, with_probes
    from planners.recommend import plan as make_plan

    models = {name.removesuffix("_model"): given.pop(name) for name in ("student_model", "teacher_model", "data")}
    if any(models.values()) and emit is None:
        raise UsageProblem("--student-model, --teacher-model and --data belong to --emit: add --emit recipe.yaml")
    if probes and not predict:
        raise UsageProblem("--probes belongs to --predict: add --predict")
    request = request_of(given, predict)
    observations = load((*first_sources, *more_sources) or DEFAULT)
    if predict:
        observations = with_probes(observations, probes)
    result = make_plan(request, observations)
    if emit is not None:
        from planners.emit import Models, missing_paths, write_recipe

        write_recipe(result, emit, Models(**models))
        click.echo(f"recipe written to {emit}; run it with: kdwatch run {emit}", err=True)
        folder, absent = missing_paths(emit)
        if absent:
            hint = "make them, or change the recipe's paths"
            click.echo(f"not found from {folder}: {', '.join(absent)}; {hint}", err=True)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2, allow_nan=False))
        return
    from kdwatch.cli.plan_text import plan_lines

    for line in plan_lines(result):
        click.echo(line)


def request_of(given: dict[str, str | None], predict: bool) -> Any:
    """The request that the command line asks for. Raises UsageProblem, naming the option."""
    from planners.quantities import carbon_kg, energy_kwh
    from planners.request import PlanRequest
    from planners.stored import store_reference, stored_reference

    values: dict[str, Any] = {name: _number(text, name) for name in _NUMBERS if (text := given[name]) is not None}
    values |= {name: text for name in (*_TEXTS, *_CHOICES) if (text := given[name]) is not None}
    for name, field, parse in (
        ("budget", "budget_kwh", energy_kwh),
        ("program_budget", "program_budget_kwh", energy_kwh),
        ("teacher_training", "teacher_training_kwh", energy_kwh),
        ("co2", "co2e_kg", carbon_kg),
    ):
        if (text := given[name]) is not None:
            values[field] = parse(text, f"--{name.replace('_', '-')}")
    for name, field in (("reuse", "reuse_n"), ("interval", "interval_level")):
        if name in values:
            values[field] = values.pop(name)
    if "sizes" in values:
        values["sizes"] = tuple(_number(part, "sizes") for part in values["sizes"].split(","))
    given_reference = values.pop("hypervolume_reference", None)
    reference = _pair(given_reference) if given_reference else stored_reference()
    request = PlanRequest(**values, predict=predict, hypervolume_reference=reference).checked()
    if given_reference and reference:
        store_reference(reference)
    return request


def _number(text: str, name: str) -> float:
    from planners.checks import finite

    return finite(text, f"--{name.replace('_', '-')}")  # type: ignore[arg-type]


def _pair(text: str) -> tuple[float, float]:
    from kdwatch.rundir.errors import UsageProblem

    parts = text.split(",")
    if len(parts) != 2:
        raise UsageProblem(f"--hypervolume-reference: {text!r} is no pair; write KWH,Q such as 45,0.6")
    return _number(parts[0], "hypervolume_reference"), _number(parts[1], "hypervolume_reference")
