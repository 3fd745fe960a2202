"""The root command: subcommands are imported only when they are called.

`kdwatch --help` must stay about as quick as `import click`, so the table below holds the short help
of each command and the module that holds it; a test keeps both in step.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from kdwatch import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, short help)
    "demo": ("kdwatch.cli.demo:demo", "Train three small distillation pipelines here and see where the energy goes."),
    "run": ("kdwatch.cli.run:run", "Run a recipe's stages and record their energy."),
    "exec": ("kdwatch.cli.exec:exec_", "Measure any command as a run of one stage."),
    "watch": ("kdwatch.cli.watch:watch", "Show a run, live or finished."),
    "replay": ("kdwatch.cli.replay:replay", "Play a recorded run on the same screens."),
    "ls": ("kdwatch.cli.ls:ls", "List runs."),
    "report": ("kdwatch.cli.report:report", "Energy of a run by stage and device."),
    "compare": ("kdwatch.cli.compare:compare", "Runs side by side."),
    "stop": ("kdwatch.cli.stop:stop", "Stop a run, or one stage of it."),
    "rm": ("kdwatch.cli.rm:rm", "Delete runs."),
    "prune": ("kdwatch.cli.prune:prune", "Delete old runs."),
    "plan": ("kdwatch.cli.plan:plan", "Recommend method and hyperparameters for an energy budget."),
    "probe": ("kdwatch.cli.probe:probe", "Calibrate the planner with short runs on this machine."),
    "sweep": ("kdwatch.cli.sweep:sweep", "Run a grid of recipes and reuse what can be reused."),
    "recipes": ("kdwatch.cli.recipes:recipes", "List the recipes that come with kdwatch, or copy one."),
    "artifacts": ("kdwatch.cli.artifacts:artifacts", "List, show, verify and remove stored stage outputs."),
    "import": ("kdwatch.cli.import_:import_", "Turn power and energy logs of other tools into runs."),
    "export": ("kdwatch.cli.export:export", "Write a run in the formats of other tools."),
    "doctor": ("kdwatch.cli.doctor:doctor", "Check sensors and say what each gives."),
    "config": ("kdwatch.cli.config:config", "Show each setting and where it comes from."),
    "serve": ("kdwatch.cli.serve:serve", "Show the screens in a browser on this machine."),
}
"""Every subcommand, in the order that help shows them."""


class LazyGroup(click.Group):
    """A click group that imports a subcommand's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            raise click.UsageError(f"no command {name!r}" + (f"; did you mean {near[0]}" if near else ""), ctx)
        target, _ = COMMANDS[name]
        module, attribute = target.split(":")
        return getattr(import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="kdwatch")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Watch, account for and plan the energy of language-model distillation.

    \b
    kdwatch                              the list of your runs, on screen
    kdwatch demo                         three real pipelines on this machine, in under 3 minutes
    kdwatch run recipe.yaml              run a pipeline and watch it
    kdwatch exec -- python train.py      measure any command
    kdwatch plan --budget 20kWh          what fits a budget, and why
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_home(ctx))


def _home(ctx: click.Context) -> int:
    """The list of runs where a terminal can show it, else the help."""
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from kdwatch.tui.app import run_app

        return run_app(None)
    click.echo(ctx.get_help())
    return 0
