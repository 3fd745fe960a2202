"""`kdwatch ls`: the runs on this machine."""

from __future__ import annotations

import json
import shutil
import sys

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch ls
  kdwatch ls --json"""
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects to stdout.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="At most this many, the newest.")
@one_line_errors
def ls(as_json: bool, limit: int | None) -> None:
    """List runs, the newest first."""
    from kdwatch.ledger.listing import list_rows, row_lines
    from kdwatch.rundir.paths import list_runs, runs_dir

    rows = list_rows(list_runs()[:limit])
    if as_json:
        click.echo(json.dumps(rows, indent=2, allow_nan=False))
        return
    if not rows:
        click.echo(f"no runs in {runs_dir()}: start one with `kdwatch demo` or `kdwatch run RECIPE`", err=True)
    columns = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None
    for line in row_lines(rows, columns):
        click.echo(line)
