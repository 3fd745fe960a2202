"""`kdwatch probe`: short runs on this machine that say what a recipe's stages will use."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors

if TYPE_CHECKING:
    from kdwatch.pipeline.recipe_model import Recipe
    from planners.proberead import ProbeReader
    from planners.probes import Probe

POLL_S = 0.3
LEVEL = 0.9
ROWS = 512
BATCHES = 8
"""Rows of data for a batch, at least."""


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
@click.option("--rows", type=click.IntRange(min=8),
              help=f"Rows of data for the probes. Default: {ROWS}, or {BATCHES} of the largest batches.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True,
              help="Longest work of one probe; it stops earlier once its speed is known to 2 %.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the prediction as one object to stdout.")
@click.option("--home", type=click.Path(), help="Where runs and artifacts are kept (KDWATCH_HOME).")
@one_line_errors
def probe(
    recipe: Path, second_student: str | None, rows: int | None, seconds: float, as_json: bool, home: str | None
) -> None:
    """Calibrate the planner with short runs on this machine.

    Every stage of RECIPE is begun, with little data, at two batches and two lengths, and stopped as soon as its speed
    is known; all in one process, so that libraries and the teacher are loaded once. Then the energy of the whole recipe
    is predicted, stage by stage, with 90 % intervals. The probes are a run like any other: `kdwatch report last` shows
    it, `kdwatch run --dry-run` and `kdwatch plan --predict` use it.
    """
    common.use_home(home)
    from kdwatch.cli.probe_recipe import probe_plan
    from kdwatch.pipeline.launch import start_run
    from kdwatch.pipeline.recipe import load_recipe, parse_recipe

    full = load_recipe(recipe)
    plan = probe_plan(full, rows or _rows_for(full), seconds, second_student)
    for name in plan.left_out:
        common.note(f"stage {name} cannot be probed: no built-in stage with data of its own")
    run = start_run(parse_recipe(plan.text, recipe.with_name("probe.yaml")))
    reader = _watch(run)
    from planners.proberead import probes_of

    found = predictions(full, probes_of(reader))
    found |= {"run_id": run.name, "probes_j": reader.total_j}
    if as_json:
        click.echo(json.dumps(found, indent=2, allow_nan=False))
    elif found["total_j"] is not None:
        for line in prediction_lines(found):
            click.echo(line)
    if reader.exit_code:
        common.note(f"the probes ended before their time: {_last_words(run, reader.stages)}")
        raise SystemExit(reader.exit_code)


def _rows_for(recipe: Recipe) -> int:
    """Rows that fill some batches of every stage."""
    batches = [int(stage.settings.get("batch_rows") or 0) for stage in recipe.stages if stage.uses != "evaluate"]
    return max(ROWS, BATCHES * max(batches, default=0))


def _watch(run: Path) -> ProbeReader:
    """Follow the run to its end and tell of each part that is over. Ctrl-C stops the run."""
    from kdwatch.rundir.control import request
    from planners.proberead import ProbeReader

    reader, told = ProbeReader(run), set[tuple[str, str]]()
    try:
        while reader.status == "running" and (reader.poll() or reader.reader.alive()):
            for key in [key for key, part in reader.parts.items() if part.over and key not in told]:
                told.add(key)
                if text := _rate_text(reader, key):
                    common.note(text)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        request(run, "stop")
        raise SystemExit(130) from None
    reader.poll()
    reader.finish()
    return reader


def _last_words(run: Path, stages: Sequence[str]) -> str:
    """What the stage that failed said last."""
    from kdwatch.rundir.text import clean
    from kdwatch.stages.problem import SAYS

    for stage in reversed(stages):
        try:
            lines = (run / "logs" / f"{stage}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        said = [line.removeprefix(SAYS) for line in lines if line.startswith(SAYS)]
        if said:
            return clean(said[-1], 300)
    return f"see kdwatch report {run.name}"


def _rate_text(reader: ProbeReader, key: tuple[str, str]) -> str | None:
    from kdwatch.ledger.units import format_number

    part = reader.parts[key]
    begin, counts = part.at("work"), part.work_counts
    if begin is None or not counts or counts[-1][0] <= begin:
        return None
    return f"{part.name}: {format_number(counts[-1][1] / (counts[-1][0] - begin))} tokens/s"


def predictions(full: Recipe, probes: Sequence[Probe]) -> dict[str, Any]:
    """What each stage of the recipe will use, by its probes, J with 90 % intervals; unknown with the reason.

    Of the sum the interval is the sum of the intervals: a machine that was slow or warm was so for all probes.
    """
    from kdwatch.pipeline.outlook.probed import from_probes
    from kdwatch.pipeline.outlook.stages import Machine, outlook
    from planners.costmodel import Declined

    stages: list[dict[str, Any]] = []
    for stage in outlook(full, Machine(None, [], probes)):
        amounts = stage.amounts
        entry: dict[str, Any] = {"name": stage.stage.name, "kind": stage.stage.kind, "tokens": amounts.tokens,
                                 "energy_j": None, "low_j": None, "high_j": None, "why": None}  # fmt: skip
        try:
            found = from_probes(stage.stage, amounts, probes)
            low, high = found.interval(LEVEL)
            entry |= {"energy_j": found.mean, "low_j": low, "high_j": high, "basis": found.basis}
        except Declined as why:
            entry["why"] = str(why)
        stages.append(entry)
    known = [stage for stage in stages if stage["energy_j"] is not None]
    sums = {f"total{end}_j": sum(stage[name] for stage in known) if known else None
            for end, name in (("", "energy_j"), ("_low", "low_j"), ("_high", "high_j"))}  # fmt: skip
    return {"schema": 1, "recipe": full.name, "interval_level": LEVEL, "stages": stages} | sums


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
        if cost is not None:
            lines.append(f"the probes used {format_energy(cost)}, {cost / total:.1%} of that (run {found['run_id']})")
    return lines
