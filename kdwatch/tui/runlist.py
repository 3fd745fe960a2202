"""Rows of the Runs screen: own runs and the samples, read one at a time beside the screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.ledger.listing import list_rows
from kdwatch.rundir.paths import is_run, list_runs
from kdwatch.rundir.text import clean

SHOWN_RUNS = 200
"""Newest runs that are listed."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the list; None is unknown."""

    path: Path
    sample: bool
    run_id: str
    name: str
    regime: str
    status: str
    started: str
    duration_s: float | None
    total_j: float | None
    estimated: bool
    q: float | None
    problem: str | None


def sample_dir() -> Path | None:
    """Directory of the recorded sample runs: beside the package in a checkout, or in the directory one works in."""
    import kdwatch

    beside = Path(kdwatch.__file__).parent.parent / "sample_runs"
    return next((p for p in (beside, Path("sample_runs").absolute()) if p.is_dir()), None)


def sample_runs() -> list[Path]:
    """The recorded sample runs, by name."""
    folder = sample_dir()
    return sorted(p for p in folder.iterdir() if is_run(p)) if folder else []


def find_runs() -> list[tuple[Path, bool]]:
    """Own runs, newest first, then the samples; with whether it is a sample."""
    return [(p, False) for p in list_runs()[:SHOWN_RUNS]] + [(p, True) for p in sample_runs()]


def read_rows() -> Iterator[RunRow]:
    """One row at a time, since a long run takes its moment."""
    for path, sample in find_runs():
        yield read_row(path, sample)


def read_row(path: Path, sample: bool) -> RunRow:
    """The row of a run; one that cannot be read says why."""
    row: dict[str, Any] = list_rows([path])[0]
    return RunRow(
        path=path,
        sample=sample,
        run_id=clean(row["run_id"], 80),
        name=clean(row.get("name"), 80),
        regime=clean(row.get("regime"), 20),
        status=clean(row.get("status"), 20),
        started=clean(row.get("started_at"), 40).replace("T", " ")[:16],
        duration_s=row.get("duration_s"),
        total_j=row.get("total_j"),
        estimated=bool(row.get("estimated")),
        q=row.get("q"),
        problem=clean(row["problem"], 300).removeprefix(f"{clean(path)}: ") if row.get("problem") else None,
    )
