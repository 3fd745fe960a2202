"""`kdwatch prune`: delete old runs."""

from __future__ import annotations

import time

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch prune --older-than 30d --dry-run
  kdwatch prune --older-than 12w --yes"""
)
@click.option("--older-than", required=True, metavar="AGE", help="Age of the run's start, such as 30d or 12h.")
@click.option("--dry-run", is_flag=True, help="Only list what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@one_line_errors
def prune(older_than: str, dry_run: bool, yes: bool) -> None:
    """Delete runs that started longer ago than AGE. Runs that still record stay.

    Prints the id of each run that goes (or, with --dry-run, would go).
    """
    from kdwatch.ledger.units import parse_duration
    from kdwatch.rundir.delete import delete_run, old_runs, size_bytes

    found = old_runs(time.time() - parse_duration(older_than))
    if found and not dry_run and not yes:
        total = sum(size_bytes(path) for path in found) / 1e6
        click.confirm(f"Delete {len(found)} runs ({total:.1f} MB)?", abort=True, err=True)
    for path in found:
        if not dry_run:
            delete_run(path)
        click.echo(path.name)
    what = "would be deleted" if dry_run else "deleted"
    click.echo(f"{len(found)} runs {what}", err=True)
