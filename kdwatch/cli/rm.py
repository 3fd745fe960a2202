"""`kdwatch rm`: delete runs."""

from __future__ import annotations

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch rm 20250102-0304
  kdwatch rm --yes RUN1 RUN2"""
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@one_line_errors
def rm(runs: tuple[str, ...], yes: bool) -> None:
    """Delete runs, each given by path, id or unique prefix. A run that still records is refused."""
    from kdwatch.rundir.delete import check_deletable, delete_run, size_bytes
    from kdwatch.rundir.paths import resolve_run

    paths = list(dict.fromkeys(resolve_run(run) for run in runs))
    for path in paths:
        check_deletable(path)
    if not yes:
        total = sum(size_bytes(path) for path in paths) / 1e6
        names = ", ".join(path.name for path in paths)
        click.confirm(f"Delete {names} ({total:.1f} MB)?", abort=True, err=True)
    for path in paths:
        delete_run(path)
        click.echo(f"deleted {path.name}", err=True)
