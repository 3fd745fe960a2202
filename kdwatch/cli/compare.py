"""`kdwatch compare`: runs side by side."""

from __future__ import annotations

import json

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch compare RUN1 RUN2
  kdwatch compare RUN1 RUN2 RUN3 --json"""
)
@click.argument("runs", nargs=-1, required=True)
@click.option("--any-scope", is_flag=True, help="Compare even where the energies cover different things, and say so.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@one_line_errors
def compare(runs: tuple[str, ...], any_scope: bool, as_json: bool) -> None:
    """Stages of two or more runs side by side; the first is what the others are compared with.

    Only components that all runs have are compared. Runs whose energies cover different scopes (a GPU against a
    whole node, with PUE against without) are refused. `~` marks what a model estimated, `±` a difference within the
    error bounds.
    """
    from kdwatch.interop.compare import compare as side_by_side
    from kdwatch.interop.compare import load
    from kdwatch.rundir.errors import UsageProblem
    from kdwatch.rundir.paths import resolve_run

    if len(runs) < 2:
        raise UsageProblem("give two runs or more; `kdwatch ls` lists them")
    found = side_by_side([load(resolve_run(run)) for run in runs], any_scope)
    if as_json:
        click.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    from kdwatch.interop.compare_text import compare_lines

    for line in compare_lines(found):
        click.echo(line)
