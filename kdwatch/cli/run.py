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
    `kdwatch stop last` ends it. With plain lines, Ctrl-C stops the run.

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

    path = start_run(found)
    if detach:
        click.echo(path.name)
        return
    sys.exit(_follow(path, plain))


def _follow(path: Path, plain: bool) -> int:
    """Show the run; the exit code of this command."""
    if common.wants_screen(plain):
        what = common.show(path, screen=True)
        if what == "left":
            return 0  # the screen has said that the run goes on
        return common.exit_code(path)
    common.note(f"run {path.name}")
    what = common.follow(path, on_interrupt=lambda: _ask_to_stop(path))
    if what == "left":
        common.note(f"left; the run may still be ending: kdwatch watch {path.name}")
        return 130
    return common.exit_code(path)


def _ask_to_stop(path: Path) -> None:
    from kdwatch.rundir import control

    common.note("stopping the run (Ctrl-C again to leave it to itself)")
    control.request(path, "stop", exit_code=130)
