"""All observations of a plan in one table: run directories, CSV files and the study's table, in the order given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import resolve_run
from planners import csvfile, paper
from planners.notes import Note
from planners.probed import Probes
from planners.schema import SCHEMA, make_table

DEFAULT = ("runs", "paper")
"""Sources when none is given: your own finished runs, then the study's table."""


@dataclass(frozen=True)
class Observations:
    """The table (columns of `planners.schema`), what was left out of it and why, and the sources read."""

    table: pl.DataFrame
    notes: tuple[Note, ...] = ()
    sources: tuple[str, ...] = field(default=())
    probes: tuple[Probes, ...] = field(default=())
    """Probes by hardware and scope, for predictions."""


def load(sources: Iterable[str | Path] = DEFAULT) -> Observations:
    """Read every source: `paper`, `runs` (all finished runs of this home), a CSV file, a run directory or run id.

    Raises UsageProblem where a source cannot be read or nothing at all was found.
    """
    tables: list[pl.DataFrame] = []
    notes: list[Note] = []
    given = [str(source) for source in sources]
    for source in dict.fromkeys(map(_resolved, given)):
        table, found = _read(source)
        tables.append(table)
        notes.extend(found)
    table = _each_run_once(pl.concat(tables) if tables else make_table([]))
    if table.is_empty():
        reasons = "; ".join(note.text for note in notes[:2])
        raise UsageProblem(
            f"--frontier {' '.join(given)}: no usable observation"
            + (f" ({reasons})" if reasons else "")
            + "; add 'paper' or a CSV"
        )
    return Observations(table.select(list(SCHEMA)), tuple(notes), tuple(given))


def with_probes(observations: Observations, runs: Sequence[str | Path] = ()) -> Observations:
    """The observations with probes for predictions: those of the runs named, else of this home the newest of each
    hardware. Raises UsageProblem where a run that was named holds no probe."""
    from planners.proberuns import probe_runs, read_probe_run

    by_place: dict[tuple[str | None, str], Probes] = {}
    if not runs:
        by_place = {probes.place: probes for probes in probe_runs()}
    for name in runs:
        found = read_probe_run(resolve_run(name))
        if found is None:
            raise UsageProblem(f"--probes {name}: no finished run of kdwatch probe; kdwatch ls names your runs")
        before = by_place.get(found.place)
        by_place[found.place] = replace(found, probes=before.probes + found.probes) if before else found
    return replace(observations, probes=tuple(by_place.values()))


def _resolved(source: str) -> str:
    """One spelling for a file however it is named, so that none is read twice."""
    path = Path(source).expanduser()
    return str(path.resolve()) if path.is_file() else source


def _each_run_once(table: pl.DataFrame) -> pl.DataFrame:
    """A run that was named twice (by id, by path, as one of `runs`) is one observation, not a repeat."""
    again = pl.col("run_dir").is_not_null() & ~pl.col("run_dir").is_first_distinct()
    return table.filter(~again)


def _read(source: str) -> tuple[pl.DataFrame, Sequence[Note]]:
    if source == "paper":
        return paper.table(), []
    from planners import runs

    if source == "runs":
        return runs.read_all()
    path = Path(source).expanduser()
    if path.is_file() or (path.suffix.lower() in {".csv", ".tsv"} and not path.is_dir()):
        return csvfile.read(path)
    return runs.read_one(source)
