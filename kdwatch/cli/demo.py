"""`kdwatch demo`: three small pipelines one after the other, recorded as real runs."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors

if TYPE_CHECKING:
    from kdwatch.tui.app import KdwatchApp

POLL_S = 0.3


@click.command("demo")
@click.option("--plain", "--no-screen", "plain", is_flag=True, help="Plain lines instead of the screen.")
@click.option("--home", type=click.Path(), help="Where runs and artifacts are kept (KDWATCH_HOME).")
@click.option("--student", type=click.Choice(["xs", "s"]), default="s", show_default=True, help="Size of the student.")
@click.option("--long", "is_long", is_flag=True, help="Forty times the rows, about 10 minutes a pipeline.")
@click.option("--files", "only_files", is_flag=True, help="Write data, models and recipes, and run nothing.")
@one_line_errors
def demo(plain: bool, home: str | None, student: str, is_long: bool, only_files: bool) -> None:
    """Train three small distillation pipelines here and see where the energy goes.

    Real training on two CPU cores in under 3 minutes. The data, models and recipes stay in
    KDWATCH_HOME/demo: copy that directory to start a pipeline of your own. A second demo reuses
    the teacher's outputs of the first.

    \b
    kdwatch demo
    kdwatch demo --plain --student xs
    kdwatch demo --long --files
    kdwatch report last
    """
    common.use_home(home)
    from kdwatch.demo.files import LONG, SHORT, write_demo
    from kdwatch.demo.summary import ABOUT, summary
    from kdwatch.ledger.report import build_report
    from kdwatch.pipeline.spawn import check_home
    from kdwatch.rundir.paths import home as kdwatch_home

    check_home()
    folder = kdwatch_home() / "demo" / (f"{student}-long" if is_long else student)
    if only_files:
        for recipe in write_demo(folder, student, LONG if is_long else SHORT):
            click.echo(recipe)
        return
    _need_train_extra()
    common.note(ABOUT)
    recipes = write_demo(folder, student, LONG if is_long else SHORT)
    session = DemoSession(recipes)
    code = session.on_screen() if common.wants_screen(plain) else session.in_lines()
    if session.runs:
        click.echo(summary([build_report(path) for path in session.runs]))
    if len(session.runs) < len(recipes):
        common.note(
            f"{len(recipes) - len(session.runs)} pipelines were not started: kdwatch demo starts them all again"
        )
    common.note(f"Data, models and recipes: {folder}. Next: kdwatch report last, kdwatch replay last, kdwatch plan")
    sys.exit(code)


def _need_train_extra() -> None:
    from kdwatch.rundir.errors import UsageProblem

    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        raise UsageProblem(f"the demo trains models and needs {', '.join(missing)}: pip install 'kdwatch[train]'")


class DemoSession:
    """Starts each recipe when the run before it has ended well."""

    def __init__(self, recipes: list[Path]) -> None:
        self.recipes = recipes
        self.runs: list[Path] = []
        self.code = 0
        self.problem: Exception | None = None
        self._left = threading.Event()

    def in_lines(self) -> int:
        """Plain lines; Ctrl-C or TERM stops the run, and the demo with it."""
        with common.StopSignals() as signals:
            for recipe in self.recipes:
                run = self._start(recipe)
                common.note(f"run {run.name}")
                self.code = common.follow(run, signals, on_signal=self._stop) or common.exit_code(run)
                if self.code:
                    break
        return self.code

    def _stop(self, number: int) -> None:
        from kdwatch.rundir import control

        common.note("stopping the run (once more to leave it to itself)")
        control.request(self.runs[-1], "stop", exit_code=128 + number)

    def on_screen(self) -> int:
        """The screen follows each run in turn; leaving it lets the run that goes on go on, and starts no other."""
        from kdwatch.tui.app import KdwatchApp

        app = KdwatchApp(self._start(self.recipes[0]))
        helper = threading.Thread(target=self._advance, args=(app,), daemon=True)
        helper.start()
        code = app.run()
        self._left.set()
        helper.join(timeout=2 * POLL_S)
        if self.problem:
            raise self.problem
        if common.is_running(self.runs[-1]):
            common.note(
                f"run {self.runs[-1].name} goes on: kdwatch watch last returns to it, kdwatch stop last ends it"
            )
        return code or self.code

    def _advance(self, app: KdwatchApp) -> None:
        """Wait for each run's end, then start and show the next."""
        for number, recipe in enumerate([*self.recipes[1:], None], 1):
            while common.is_running(self.runs[-1]):
                if self._left.wait(POLL_S):
                    return
            self.code = common.exit_code(self.runs[-1])
            if self.code or recipe is None or self._left.is_set():
                if not self._left.is_set():
                    app.call_from_thread(app.notify, "the demo is over: q leaves and shows what the runs came to")
                return
            try:
                run = self._start(recipe)
            except Exception as problem:  # shown once the screen is gone
                self.problem = problem
                app.call_from_thread(app.exit, 2)
                return
            app.call_from_thread(app.open_run, run)
            app.call_from_thread(app.notify, f"pipeline {number + 1} of {len(self.recipes)}: {run.name}")

    def _start(self, recipe: Path) -> Path:
        from kdwatch.pipeline.launch import start_run
        from kdwatch.pipeline.recipe import load_recipe

        run = start_run(load_recipe(recipe))
        self.runs.append(run)
        return run
