"""`kdwatch stop`: ask a run's recorder to end it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors


@click.command("stop")
@click.argument("run", default="last")
@click.option("--stage", help="End only this stage; the stages that do not need its output go on.")
@click.option("--skip", is_flag=True, help="With --stage: mark it as skipped, also one that has not begun.")
@click.option("--kill", is_flag=True, help="Do not wait for the grace time: kill at once.")
@click.option("--no-wait", is_flag=True, help="Return without waiting for the end.")
@one_line_errors
def stop(run: str, stage: str | None, skip: bool, kill: bool, no_wait: bool) -> None:
    """Stop a run, or one stage of it.

    The stage's processes get TERM, and KILL when its grace time is over.

    \b
    kdwatch stop
    kdwatch stop last --stage student
    kdwatch stop 20250131-1425 --kill
    """
    from kdwatch.rundir import control
    from kdwatch.rundir.errors import UsageProblem
    from kdwatch.rundir.paths import resolve_run

    path = resolve_run(run)
    if not common.is_running(path):
        raise UsageProblem(f"{path.name}: the run has ended already: nothing to stop")
    if stage is not None:
        _check_stage(path, stage)
    elif skip:
        raise UsageProblem("--skip needs --stage NAME: say which stage")
    action = "skip" if skip else "stop_stage" if stage else "stop"
    control.request(path, action, stage=stage, now=kill)
    if no_wait or stage is not None:
        common.note(f"asked {path.name} to end stage {stage}" if stage else f"asked {path.name} to stop")
        return
    sys.exit(_wait(path))


def _check_stage(path: Path, stage: str) -> None:
    from kdwatch.ledger.load import load_ledger
    from kdwatch.rundir.errors import UsageProblem
    from kdwatch.rundir.text import clean

    names = [s.name for s in load_ledger(path).totals().stages]
    if stage not in names:
        raise UsageProblem(
            f"{path.name}: no stage '{clean(stage, 60)}': it has {', '.join(map(clean, names)) or 'none'}"
        )


def _wait(path: Path) -> int:
    """Wait for the end of the run; 0 once it has ended."""
    common.note(f"stopping {path.name}")
    while common.is_running(path):
        time.sleep(0.1)
    common.note(f"{path.name} has ended")
    return 0
