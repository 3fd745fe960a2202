"""`kdwatch replay`: a recording on the Run screen."""

from __future__ import annotations

from typing import Any

import click

from kdwatch.cli.errors import one_line_errors
from kdwatch.cli.screen_options import screen_options


@click.command(
    epilog="""\b
Examples:
  kdwatch replay last --speed 20
  kdwatch replay sample_runs/demo-kd --at 50%"""
)
@click.argument("run", default="last")
@click.option("--speed", type=click.FloatRange(1, 1000), default=1.0, show_default=True, help="How many times faster.")
@click.option("--at", help="Where to begin: 90s, 1:30, 50%.")
@click.option("--once", is_flag=True, help="Print one frame as text and end: the last, or that of --at.")
@screen_options
@one_line_errors
def replay(run: str, speed: float, at: str | None, once: bool, settings: dict[str, Any]) -> None:
    """Play a recorded run on the screen of a live one.

    RUN is a path, an id, the beginning of one, or `last` (the default). Without a terminal, prints plain lines.
    """
    from kdwatch.rundir.paths import resolve_run
    from kdwatch.tui import plain
    from kdwatch.tui.times import start_of

    path = resolve_run(run)
    start = None if at is None else start_of(at, path)
    if once:
        click.echo(plain.frame(path, command_line=settings, at_t=start), nl=False)
        return
    from kdwatch.tui.app import run_app

    raise SystemExit(run_app(path, replay=True, speed=speed, start=start or 0.0, settings=settings))
