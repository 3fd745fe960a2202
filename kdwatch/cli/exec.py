"""`kdwatch exec`: measure any command as a run of one stage, and behave like the command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kdwatch.cli.errors import one_line_errors


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("--name", help="Name of the run and its stage; default: the command's.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report object after the command; its output goes to stderr."
)
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Write the report object (JSON) to this file."
)
@click.option("--region", help="Country of the grid (ISO 3166 alpha-3) for CO2.")
@click.option("--intensity", type=float, help="Carbon intensity in g CO2e/kWh, instead of a region's.")
@click.option("--pue", type=float, help="Power usage effectiveness of the site.")
@click.option("--home", type=click.Path(), help="Where runs are kept (KDWATCH_HOME).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@one_line_errors
def exec_(
    name: str | None,
    as_json: bool,
    report: Path | None,
    region: str | None,
    intensity: float | None,
    pue: float | None,
    home: str | None,
    command: tuple[str, ...],
) -> None:
    """Measure any command as a run of one stage.

    The command has the terminal, its input and its output as if it ran alone; signals reach it, and its exit
    code is passed on (128+n where signal n ended it).

    \b
    kdwatch exec -- python train.py --epochs 3
    kdwatch exec --report energy.json -- make bench
    kdwatch exec --json -- ./a.out > energy.json
    """
    from kdwatch.cli.common import use_home
    from kdwatch.pipeline.foreground import Accounting, run_measured

    use_home(home)
    accounting = Accounting(region=region, intensity=intensity, pue=pue)
    try:
        code = run_measured(list(command), name, as_json=as_json, report=report, accounting=accounting)
    except KeyboardInterrupt:  # before the command began: afterwards it gets the signal
        code = 130
    sys.exit(code)
