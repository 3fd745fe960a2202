"""`kdwatch probe`: short runs on this machine that say what a recipe's stages will use."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors

if TYPE_CHECKING:
    from kdwatch.cli.probe_recipe import ProbePlan
    from kdwatch.pipeline.recipe_model import Recipe
    from planners.proberead import Curve, CurveReader
    from planners.probes import Probe

POLL_S = 0.3
LEVEL = 0.9


@click.command(
    epilog="""\b
Examples:
  kdwatch probe recipe.yaml
  kdwatch probe recipe.yaml --second-student models/larger --json"""
)
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "--second-student", metavar="MODEL", help="A student of another size: carries predictions between the two."
)
@click.option("--rows", type=click.IntRange(min=8), default=512, show_default=True, help="Rows of data for the probes.")
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True,
              help="Longest work of one probe; it stops earlier once its rate is known to 2 %.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the prediction as one object to stdout.")
@click.option("--home", type=click.Path(), help="Where runs and artifacts are kept (KDWATCH_HOME).")
@one_line_errors
def probe(recipe: Path, second_student: str | None, rows: int, seconds: float, as_json: bool, home: str | None) -> None:
    """Calibrate the planner with short runs on this machine.

    Every stage of RECIPE is begun, with little data, at two batches and two lengths, and stopped as soon as its energy
    per token is known; then the energy of the whole recipe is predicted, stage by stage, with 90 % intervals. The
    probes are a run like any other: `kdwatch report last` shows it, and `kdwatch run --dry-run` uses it.
    """
    common.use_home(home)
    from kdwatch.cli.probe_recipe import probe_plan
    from kdwatch.pipeline.launch import start_run
    from kdwatch.pipeline.recipe import load_recipe, parse_recipe

    full = load_recipe(recipe)
    plan = probe_plan(full, rows, second_student)
    for name in plan.left_out:
        common.note(f"stage {name} cannot be probed: no built-in stage with data of its own")
    run = start_run(parse_recipe(plan.text, recipe.with_name("probe.yaml")))
    probes = _watch(run, plan, seconds)
    found = predictions(full, probes)
    found |= {"run_id": run.name, "probes_j": sum(p.total_j for p in probes)}
    if as_json:
        click.echo(json.dumps(found, indent=2, allow_nan=False))
    else:
        for line in prediction_lines(found):
            click.echo(line)


def _watch(run: Path, plan: ProbePlan, seconds: float) -> list[Probe]:
    """Follow the run, stop each probe that has enough, and read them all at the end. Ctrl-C stops the run."""
    from kdwatch.rundir.control import request
    from planners.proberead import CurveReader, probes_of

    reader, asked = CurveReader(run), set[str]()
    try:
        while reader.ledger.status == "running" and (reader.poll() or reader.reader.alive()):
            for curve in list(reader.curves.values()):
                if curve.stage not in asked | plan.needed and _may_stop(reader, curve, seconds):
                    asked.add(curve.stage)
                    request(run, "stop_stage", stage=curve.stage)
                    common.note(f"{curve.stage}: {_rate_text(curve)}")
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        request(run, "stop")
        raise SystemExit(130) from None
    reader.poll()
    reader.finish()
    return probes_of(reader)


def _may_stop(reader: CurveReader, curve: Curve, seconds: float) -> bool:
    from planners.probes import enough

    if curve.status != "running" or curve.work_t is None:
        return False
    return enough(curve.since_work) or reader.ledger.last_t - curve.work_t > seconds


def _rate_text(curve: Curve) -> str:
    from planners.probes import rate_of

    rate = rate_of(curve.since_work)
    if rate is None:
        return "stopped, its energy did not show in time"
    return f"{rate.j_per_token:.3g} J/token ± {rate.se / rate.j_per_token:.0%}"


def predictions(full: Recipe, probes: list[Probe]) -> dict[str, Any]:
    """What each stage of the recipe will use, by its probes, J with 90 % intervals; unknown with the reason."""
    from kdwatch.pipeline.outlook.stages import Machine, outlook
    from planners.costmodel import Declined
    from planners.teachermodel import plus

    stages, known = [], []
    for stage in outlook(full, Machine(None, [])):
        amounts, settings = stage.amounts, stage.stage.settings
        entry: dict[str, Any] = {"name": stage.stage.name, "kind": stage.stage.kind, "tokens": amounts.tokens,
                                 "energy_j": None, "low_j": None, "high_j": None, "why": None}  # fmt: skip
        try:
            found = _predict(stage.stage.recipe.uses, settings, amounts, probes)
            low, high = found.interval(LEVEL)
            entry |= {"energy_j": found.mean, "low_j": low, "high_j": high, "basis": found.basis}
            known.append(found)
        except Declined as why:
            entry["why"] = str(why)
        stages.append(entry)
    total = plus(known) if known else None
    low, high = total.interval(LEVEL) if total else (None, None)
    return {"schema": 1, "recipe": full.name, "interval_level": LEVEL, "stages": stages,
            "total_j": total.mean if total else None, "total_low_j": low, "total_high_j": high}  # fmt: skip


def _predict(uses: str | None, settings: Mapping[str, Any], amounts: Any, probes: list[Probe]) -> Any:
    from planners.costmodel import Declined
    from planners.probes import predict_evaluation, predict_forward, predict_generation, predict_student

    tokens = amounts.tokens
    if uses in ("student.train", "teacher.cache_logits") and tokens is None:
        raise Declined("the number of tokens is unknown: put the data on this disk, or set `limit`")
    if uses == "student.train":
        return predict_student(probes, amounts.model.params_b, tokens)
    if uses == "teacher.cache_logits":
        return predict_forward(probes, tokens, float(settings["batch_tokens"]))
    if uses == "teacher.generate":
        if amounts.makes is None:
            raise Declined("the number of prompts is unknown: put the data on this disk, or set `prompts`")
        batch = float(settings.get("batch_rows") or 16)
        return predict_generation(probes, amounts.makes.rows, batch, float(settings["max_new_tokens"]))
    if uses in ("evaluate", "teacher.evaluate") and tokens is not None:
        return predict_evaluation(probes, tokens, uses == "teacher.evaluate")
    raise Declined("not probed")


def prediction_lines(found: Mapping[str, Any]) -> list[str]:
    """The prediction as a table."""
    from kdwatch.ledger.units import format_energy

    lines = [f"{'stage':<20}{'tokens':>12}{'energy':>12}   90 % interval"]
    for stage in found["stages"]:
        tokens = f"{stage['tokens']:.3g}" if stage["tokens"] else "n/a"
        interval = (
            f"{format_energy(stage['low_j'])} to {format_energy(stage['high_j'])}"
            if stage["energy_j"]
            else stage["why"]
        )
        lines.append(f"{stage['name'][:19]:<20}{tokens:>12}{format_energy(stage['energy_j']):>12}   {interval}")
    total, cost = found["total_j"], found["probes_j"]
    if total:
        interval = f"{format_energy(found['total_low_j'])} to {format_energy(found['total_high_j'])}"
        lines.append(f"{'known stages':<20}{'':>12}{format_energy(total):>12}   {interval}")
        lines.append(f"the probes used {format_energy(cost)}, {cost / total:.1%} of that (run {found['run_id']})")
    return lines
