"""`kdwatch report`: energy of a run by stage and device."""

from __future__ import annotations

import json

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch report last
  kdwatch report last --json > report.json
  kdwatch report RUN --region FRA --pue 1.2
  kdwatch report RUN --protocol paper"""
)
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print the report object (schema 1) to stdout.")
@click.option(
    "--protocol",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="Accounting: kdwatch's own, or the paper's method from the recorded data.",
)
@click.option("--region", help="Country of the grid, such as FRA, instead of the recorded one.")
@click.option("--intensity", type=float, help="Carbon intensity in g CO2e per kWh instead of a region's.")
@click.option("--pue", type=float, help="Power usage effectiveness of the site, 1 or more.")
@one_line_errors
def report(
    run: str, as_json: bool, protocol: str, region: str | None, intensity: float | None, pue: float | None
) -> None:
    """Energy of a run by stage and device.

    RUN is a path, a run id, a unique prefix of one, or `last` (the default).
    """
    from kdwatch.ledger.report import build_report
    from kdwatch.rundir.paths import resolve_run

    found = build_report(resolve_run(run), protocol, region=region, g_per_kwh=intensity, pue=pue)
    if as_json:
        click.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    from kdwatch.ledger.report_text import report_lines

    for line in report_lines(found):
        click.echo(line)
