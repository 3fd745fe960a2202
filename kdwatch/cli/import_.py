"""`kdwatch import`: power and energy logs of other tools become runs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from kdwatch.cli.errors import EXIT_USAGE, one_line_errors

BIG = 64 << 20
"""Bytes from which reading shows its progress."""


@click.command(
    "import",
    epilog="""\b
Examples:
  kdwatch import power.csv
  kdwatch import nvidia-smi.csv trainer_log.jsonl --name my-run
  kdwatch import gpu.csv --interval 0.5
  kdwatch import emissions.csv emissions.csv.bak --tz Europe/Paris --json""",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", help="Take the files as this format instead of detecting it by content.")
@click.option("--interval", type=float, help="Seconds between samples, for files without times.")
@click.option("--tz", "zone", help="Time zone of local times without one, such as Europe/Paris.")
@click.option("--name", help="Name of the run; default: the file's.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: the run, and what each file holds.")
@one_line_errors
def import_(
    paths: tuple[Path, ...], form: str | None, interval: float | None, zone: str | None, name: str | None, as_json: bool
) -> None:
    """Turn power and energy logs of other tools into a run.

    PATHS are log files, or a run directory of the study's harness. The format is found by content:
    nvidia-smi, dmon, amd-smi and other power CSVs, CodeCarbon, harness, Zeus, carbontracker, Prometheus
    text, sacct, PTDaemon, perf stat, Intel Power Gadget, upower, perun, and trainers' logs for tokens.
    """
    from kdwatch.interop.importing import check_options, import_paths

    result = import_paths(list(paths), check_options(form, interval, zone), name, progress_of, progress_of_rows())
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2, allow_nan=False))
    else:
        from kdwatch.interop.summary_text import file_lines

        for entry in result.files:
            for line in file_lines(entry):
                click.echo(line)
        if result.run:
            click.echo(f"run {result.run.name}")
    from kdwatch.rundir.text import clean

    for note in result.notes:
        click.echo(f"kdwatch: {clean(note, 600)}", err=True)
    for problem in result.problems:
        click.echo(f"kdwatch: {clean(problem, 1200)}", err=True)
    if result.problems:
        raise SystemExit(EXIT_USAGE)


def progress_of(path: Path) -> Callable[[int, int], None] | None:
    """A line on stderr while a large file is read."""
    try:
        if path.is_dir() or path.stat().st_size < BIG:
            return None
    except OSError:
        return None
    tick = Tick()

    def watch(done: int, size: int) -> None:
        if tick():
            _line(f"reading {path.name}: {min(100, 100 * done // max(1, size))} % of {size / 1e9:.2f} GB")

    return watch


def progress_of_rows() -> Callable[[int], None]:
    """A line on stderr while a large run is written."""
    tick = Tick()

    def watch(rows: int) -> None:
        if tick():
            _line(f"writing the run: {rows} rows")

    return watch


class Tick:
    """Whether it is time for a line again: twice a second on a terminal, every 5 s elsewhere."""

    def __init__(self) -> None:
        self._every = 0.5 if sys.stderr.isatty() else 5.0
        self._shown = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._shown < self._every:
            return False
        self._shown = now
        return True


def _line(text: str) -> None:
    """On a terminal the line is written over, elsewhere each is one line."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(text, end=end, file=sys.stderr, flush=True)
