"""`kdwatch serve`: the screens in a browser on this machine."""

from __future__ import annotations

import importlib.util

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch serve
  kdwatch serve last --port 8765
  ssh -L 8765:127.0.0.1:8765 node    # then open the printed address at home"""
)
@click.argument("run", required=False)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; 0 (the default) is a free one."
)
@click.option("--control", is_flag=True, help="Let the browser stop stages and runs; without it, it only looks.")
@click.option("--replay", is_flag=True, help="Play RUN from its start.")
@one_line_errors
def serve(run: str | None, port: int, control: bool, replay: bool) -> None:
    """Show the screens in a browser on this machine.

    Prints an address with a random token; only who knows it can open the page. It is served on 127.0.0.1 only and loads
    nothing from elsewhere.
    """
    from kdwatch.rundir.errors import UsageProblem
    from kdwatch.rundir.paths import resolve_run

    path = resolve_run(run) if run else None
    if importlib.util.find_spec("textual_serve") is None:
        raise UsageProblem("serve needs textual-serve: pip install 'kdwatch[serve]'")
    from kdwatch.tui.web.server import serve as serve_screens

    serve_screens(path, port=port, readonly=not control, replay=replay)
