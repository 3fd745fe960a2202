"""`kdwatch sweep`: a grid of runs, one after the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors

if TYPE_CHECKING:
    from kdwatch.pipeline.sweep import Sweep

EXIT_CODES = {"completed": 0, "over_budget": 3}
"""By the status of the first point that did not complete; 1 for any other."""


@click.command(
    epilog="""\b
Examples:
  kdwatch sweep grid.yaml --dry-run     the points, what is done, what would be made and reused
  kdwatch sweep grid.yaml
  kdwatch sweep grid.yaml --json > sweep.json"""
)
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--plain", is_flag=True, help="No line that is rewritten, also on a terminal.")
@click.option("--dry-run", is_flag=True, help="Say what would run and what is done; run nothing.")
@click.option("--again", is_flag=True, help="Run every point, also those that completed before.")
@click.option("--json", "as_json", is_flag=True, help="Print points and frontier as one object to stdout.")
@click.option("--home", type=click.Path(), help="Where runs and artifacts are kept (KDWATCH_HOME).")
@one_line_errors
def sweep(recipe: Path, plain: bool, dry_run: bool, again: bool, as_json: bool, home: str | None) -> None:
    """Run the grid that a recipe's `sweep:` declares, and show the frontier that it measured.

    Each point is a run of its own, named after its settings. Outputs that points share (prepared data, the teacher's
    logits or answers) are made once. Ctrl-C stops the current run; the same command goes on where it stopped: points
    that completed with the same settings, data and models are skipped.

    Exit codes: 0 all points completed, 1 a point failed, 2 bad recipe, 3 a point was over its budget, 130/143 stopped.
    """
    common.use_home(home)
    from kdwatch.pipeline.sweep import load_sweep

    found = load_sweep(recipe)
    if dry_run:
        from kdwatch.pipeline.sweep_plan import sweep_plan

        plan = sweep_plan(found, again)
        _print(plan, as_json, "plan_lines")
        return
    sys.exit(_run(found, plain, again, as_json))


def _run(found: Sweep, plain: bool, again: bool, as_json: bool) -> int:
    from kdwatch.cli.sweep_text import point_line
    from kdwatch.cli.sweep_watch import Watcher
    from kdwatch.pipeline.sweep_result import point_result, sweep_result
    from kdwatch.pipeline.sweep_run import Stopped, run_points

    outcomes, count, code = [], len(found.points), 0
    try:
        with Watcher(live=sys.stderr.isatty() and not plain) as watcher:
            for outcome in run_points(found, watcher, again):
                outcomes.append(outcome)
                common.note(point_line(outcome.number, count, point_result(outcome)))
                code = code or EXIT_CODES.get(outcome.status, 1)
    except Stopped as stopped:
        common.note(f"stopped after {len(outcomes)} of {count} points; the same command goes on from here")
        code = stopped.code
    if outcomes:
        _print(sweep_result(found, outcomes), as_json, "result_lines")
    return code


def _print(result: dict[str, Any], as_json: bool, lines: str) -> None:
    from kdwatch.cli import sweep_text

    if as_json:
        click.echo(json.dumps(result, indent=2, allow_nan=False))
        return
    for line in getattr(sweep_text, lines)(result):
        click.echo(line)
