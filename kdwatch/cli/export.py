"""`kdwatch export`: a run in the formats of other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdwatch.cli import common
from kdwatch.cli.errors import one_line_errors

if TYPE_CHECKING:
    from kdwatch.interop.exporting import Exporter

TEXTS = ("codecarbon", "openmetrics", "prometheus", "modelcard", "sci", "samples-csv", "stages-csv", "markdown", "html")
FILES = ("samples-parquet", "stages-parquet")
TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")


@click.command(
    epilog="""\b
Examples:
  kdwatch export last --format codecarbon -o emissions.csv
  kdwatch export last --format html --region FRA --redact -o report.html
  kdwatch export RUN --format modelcard --region FRA >> README.md
  kdwatch export last --textfile /var/lib/node_exporter/kdwatch.prom --every 15s"""
)
@click.argument("run", default="last")
@click.option("--format", "form", type=click.Choice([*TEXTS, *FILES, *TRACKERS]), help="What to write.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File (or event directory) to write; else stdout."
)
@click.option(
    "--textfile", type=click.Path(path_type=Path), help="Keep this metrics file up to date until the run ends."
)
@click.option("--every", default="15s", show_default=True, help="How often --textfile is written.")
@click.option("--region", help="Country of the grid, such as FRA, instead of the recorded one.")
@click.option("--intensity", type=float, help="Carbon intensity in g CO2e per kWh instead of a region's.")
@click.option("--pue", type=float, help="Power usage effectiveness of the site, 1 or more.")
@click.option("--embodied", type=float, help="Embodied emissions of the hardware for this run in g CO2e (for sci).")
@click.option("--redact", is_flag=True, help="Take out hosts, users, paths, addresses and UUIDs.")
@one_line_errors
def export(
    run: str,
    form: str | None,
    output: Path | None,
    textfile: Path | None,
    every: str,
    region: str | None,
    intensity: float | None,
    pue: float | None,
    embodied: float | None,
    redact: bool,
) -> None:
    """Write a run in a format of another tool.

    RUN is a path, a run id, a unique prefix of one, or `last` (the default).

    \b
    codecarbon       emissions.csv, one row a stage
    openmetrics      metrics with # EOF; prometheus: the older text format
    modelcard        co2_eq_emissions block (grams) for a Hugging Face README.md
    sci              rows for a Software Carbon Intensity score
    samples-*        every reading, as CSV or Parquet
    stages-*         stages, as CSV or Parquet
    markdown, html   the report; the HTML file holds its pictures
    tensorboard, wandb, trackio, mlflow   stages as scalars, where the package is installed
    """
    from kdwatch.interop.exporting import Exporter, ExportOptions
    from kdwatch.rundir.errors import UsageProblem
    from kdwatch.rundir.paths import resolve_run

    if embodied is not None and not 0 <= embodied < 1e15:
        raise UsageProblem(f"--embodied {embodied:g}: grams of CO2e, 0 or more")
    if (form is None) == (textfile is None):
        raise UsageProblem("give either --format or --textfile; see kdwatch export --help")
    exporter = Exporter(resolve_run(run), ExportOptions(region, intensity, pue, embodied, redact))
    if textfile is not None:
        _follow(exporter, textfile, every)
    elif form in TRACKERS:
        from kdwatch.interop.export.trackers import TRACKERS as SEND

        click.echo(SEND[str(form)](exporter.report, output), err=True)
    else:
        _write(exporter, str(form), output)


def _follow(exporter: Exporter, target: Path, every: str) -> None:
    from kdwatch.interop.export.textfile import follow
    from kdwatch.ledger.units import parse_duration
    from kdwatch.rundir.errors import UsageProblem

    seconds = parse_duration(every)
    if not 0.1 <= seconds <= 3600:
        raise UsageProblem(f"--every {every}: between 0.1 s and 1 h")
    options = exporter.options
    try:
        follow(
            exporter.run,
            target,
            seconds,
            exporter.change,
            common.note,
            region=options.region,
            g_per_kwh=options.g_per_kwh,
            pue=options.pue,
        )
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _write(exporter: Exporter, form: str, output: Path | None) -> None:
    from kdwatch.interop.export.textfile import write_atomically
    from kdwatch.rundir.errors import UsageProblem

    try:
        if form in FILES:
            if output is None:
                raise UsageProblem(f"--format {form} is binary: give -o FILE.parquet")
            exporter.binary(form, output)
        elif output is None:
            sys.stdout.write(exporter.text(form))
        elif form == "samples-csv":
            exporter.stream_samples(output)
        else:
            write_atomically(output, exporter.text(form))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UsageProblem(f"{output}: cannot be written ({error.strerror or error}); check the directory") from None
