"""`kdwatch watch`: look at a run, live or finished."""

from __future__ import annotations

import sys
from typing import Any

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors
from kdwatch.cli.screen_options import screen_options


@click.command("watch")
@click.argument("run", default="last")
@click.option("--once", is_flag=True, help="Print one frame and return.")
@click.option("--plain", "--no-screen", "plain", is_flag=True, help="Plain lines instead of the screen.")
@screen_options
@one_line_errors
def watch(run: str, once: bool, plain: bool, settings: dict[str, Any]) -> None:
    """Show a run, live or finished. Closing it changes nothing in the run.

    RUN is a directory, an id, the beginning of an id, or `last`.

    \b
    kdwatch watch
    kdwatch watch last --once
    kdwatch watch 20250131-1425 --plain
    """
    from kdwatch.rundir.paths import resolve_run

    path = resolve_run(run)
    if once:
        from kdwatch.tui import plain as text

        common.die_of_pipe()
        click.echo(text.frame(path, command_line=settings), nl=False)
        return
    if common.wants_screen(plain):
        common.show(path, settings)
        return
    with common.StopSignals() as signals:
        code = common.follow(path, signals, settings=settings)
    sys.exit(code)
