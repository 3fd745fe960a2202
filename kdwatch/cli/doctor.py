"""`kdwatch doctor`: check sensors and say what each gives."""

from __future__ import annotations

import json

import click

from kdwatch.cli.errors import one_line_errors

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "info": "info"}


@click.command(
    epilog="""\b
Examples:
  kdwatch doctor
  kdwatch doctor --json

Exit code 1 if a check failed. docs/sensors.md says what each platform gives."""
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with all checks to stdout.")
@one_line_errors
def doctor(as_json: bool) -> None:
    """Check sensors and say what each gives.

    Tries every sensor for a moment, names those that are closed, and says how to open them. Takes about 3 seconds
    at most, even if a driver hangs.
    """
    from kdwatch import __version__
    from kdwatch.meters.checks import home_checks, python_checks, run_groups, training_checks
    from kdwatch.meters.sensor_checks import cpu_checks, energy_check, gpu_checks
    from kdwatch.rundir.paths import home

    checks = run_groups(
        [
            ("python", python_checks),
            ("home", lambda: home_checks(home())),
            ("training", training_checks),
            ("gpu", gpu_checks),
            ("cpu", cpu_checks),
        ]
    )
    checks.append(energy_check(checks))
    failed = any(c.status == "fail" for c in checks)
    if as_json:
        found = {"schema": 1, "kdwatch_version": __version__, "ok": not failed, "checks": [c.as_dict() for c in checks]}
        click.echo(json.dumps(found, indent=2, allow_nan=False))
    else:
        for check in checks:
            _show(check.id, check.status, check.text, check.fix)
    raise SystemExit(1 if failed else 0)


def _show(name: str, status: str, text: str, fix: str | None) -> None:
    from kdwatch.rundir.text import clean

    click.echo(f"{MARKS[status]}  {name:<15} {clean(text, 600)}")
    if fix:
        click.echo(f"{'':22}-> {clean(fix, 600)}")
