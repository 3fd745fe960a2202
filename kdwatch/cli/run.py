"""`kdwatch run`: start a recipe's recorder and follow it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--detach", is_flag=True, help="Start the run, print its id, and return.")
@click.option("--plain", "--no-screen", "plain", is_flag=True, help="Plain lines instead of the screen.")
@click.option("--name", help="Name of the run, instead of the recipe's.")
@click.option("--home", type=click.Path(), help="Where runs and artifacts are kept (KDWATCH_HOME).")
@click.option("--dry-run", is_flag=True, help="Say what would run and what would be reused; run nothing.")
@one_line_errors
def run(recipe: Path, detach: bool, plain: bool, name: str | None, home: str | None, dry_run: bool) -> None:
    """Run a recipe's stages and record their energy.

    The run goes on when the screen or the terminal is closed: `kdwatch watch last` returns to it and
    `kdwatch stop last` ends it. With plain lines, Ctrl-C and TERM stop the run.

    \b
    kdwatch run recipe.yaml
    kdwatch run recipe.yaml --detach
    kdwatch run recipe.yaml --dry-run

    Exit codes: 0 done, 1 a stage failed, 2 bad recipe, 3 stopped by the budget guard, 130/143 stopped.
    """
    common.use_home(home)
    from kdwatch.pipeline.recipe import load_recipe
    from kdwatch.rundir.errors import UsageProblem

    found = load_recipe(recipe)
    if found.sweep:
        raise UsageProblem(f"{recipe}: sweep: is a grid of runs: use `kdwatch sweep {recipe}`")
    if name is not None:
        found = found.renamed(name)
    if dry_run:
        from kdwatch.pipeline.dry_run import describe

        click.echo(describe(found))
        return
    from kdwatch.pipeline.launch import start_run

    if detach:
        click.echo(start_run(found).name)
        return
    screen = common.wants_screen(plain)
    with common.StopSignals() as signals:
        path = start_run(found)
        code = None if screen else _follow(path, signals)
    if code is None and signals.kept:
        _ask_to_stop(path, signals.kept)
        code = 128 + signals.kept
    sys.exit(_show(path) if code is None else code)


def _show(path: Path) -> int:
    """Show the run's screen; the exit code of this command."""
    if common.show(path):
        return common.exit_code(path)
    common.note(f"the run goes on: kdwatch watch {path.name} returns to it, kdwatch stop {path.name} ends it")
    return 0


def _follow(path: Path, signals: common.StopSignals) -> int:
    """Follow the run with plain lines; the exit code of this command."""
    common.note(f"run {path.name}")
    left = common.follow(path, signals, on_signal=lambda number: _ask_to_stop(path, number))
    if left:
        common.note(f"left; the run may still be ending: kdwatch watch {path.name}")
        return left
    return common.exit_code(path)


def _ask_to_stop(path: Path, number: int) -> None:
    from kdwatch.rundir import control

    common.note("stopping the run (once more to leave it to itself)")
    control.request(path, "stop", exit_code=128 + number)
