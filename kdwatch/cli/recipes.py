"""`kdwatch recipes`: the recipes that come with kdwatch."""

from __future__ import annotations

from pathlib import Path

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch recipes                         what there is
  kdwatch recipes olmo2/kd-1b my-kd       copy one, then: kdwatch run my-kd/kd-1b.yaml --dry-run
  kdwatch recipes demo my-demo            then: kdwatch sweep my-demo/grid.yaml"""
)
@click.argument("name", required=False)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@one_line_errors
def recipes(name: str | None, folder: Path | None) -> None:
    """List the recipes that come with kdwatch, or write one with its files to a directory.

    FOLDER is the last part of NAME unless given.
    """
    from kdwatch.recipes.catalog import entries, entry
    from kdwatch.rundir.errors import UsageProblem

    if name is None:
        width = max(len(found.name) for found in entries()) + 2
        for found in entries():
            click.echo(f"{found.name:<{width}}{found.summary}")
        return
    wanted = entry(name)
    target = folder or Path(name.rsplit("/", 1)[-1])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageProblem(f"{target}: exists and is not empty: name another directory")
    try:
        first = wanted.write(target)
    except OSError as error:
        raise UsageProblem(f"{target}: cannot be written ({error.strerror}): name another directory") from None
    verb = "sweep" if "sweep:" in first.read_text(encoding="utf-8") else "run"
    click.echo(str(first))
    click.echo(f"next: kdwatch {verb} {first} --dry-run", err=True)
