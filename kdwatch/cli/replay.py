"""`kdwatch replay`: a recording on the Run screen."""

from __future__ import annotations

import click

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import resolve_run


@click.command()
@click.argument("run", default="last")
@click.option("--speed", type=click.FloatRange(1, 1000), default=1.0, show_default=True, help="How many times faster.")
@click.option("--at", default="0", help="Where to begin: 90s, 1:30, 50%.")
@click.option("--once", is_flag=True, help="Print the last frame as text and end.")
@click.option("--readonly", is_flag=True, help="No key acts on the run.")
def replay(run: str, speed: float, at: str, once: bool, readonly: bool) -> None:
    """Play a recorded run on the screen of a live one.

    RUN is a path, an id, the beginning of one, or `last` (the default). Without a terminal, prints plain lines.

    \b
    kdwatch replay last --speed 20
    kdwatch replay sample_runs/kd --at 50%
    """
    from kdwatch.tui import plain
    from kdwatch.tui.times import start_of

    try:
        path = resolve_run(run)
        if once:
            click.echo(plain.frame(path), nl=False)
            return
        start = start_of(at, path)
        from kdwatch.tui.app import run_app

        code = run_app(path, replay=True, speed=speed, start=start, readonly=readonly)
    except UsageProblem as problem:
        click.echo(f"kdwatch replay: {problem}", err=True)
        raise SystemExit(2) from None
    raise SystemExit(code)
