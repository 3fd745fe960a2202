"""A comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdwatch.ledger.marks import marked
from kdwatch.ledger.stage_bars import stage_bars
from kdwatch.rundir.text import clean

WIDTH = 80
LABEL = 18
"""Cells of the column of stages."""
LEAST, MOST = 18, 24
"""Least and most cells of a run's column: `~1.10 kJ x0.814 ±` fits the least."""
BAR_CELLS = 46
"""Longest bar of a stage."""


def compare_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Runs, then stages side by side with the ratio to the first run, then the stages as bars."""
    runs = found["runs"]
    for number, run in enumerate(runs, 1):
        quality = "" if run["quality"] is None else f", Q {run['quality']:.3f}"
        about = f"{clean(run['name'] or '', 40)}, {clean(run['status'], 20)}{quality}"
        yield f"[{number}] {clean(run['run_id'], 60)}  {about}"
    yield f"compared: {', '.join(found['components']) or 'nothing'}"
    yield ""
    column = min(max((WIDTH - LABEL) // len(runs), LEAST), MOST)
    head = "".join(f"{f'[{number}]':>{column}}" for number in range(1, len(runs) + 1))
    yield f"{'STAGE':<{LABEL}}{head}"
    for stage in found["stages"]:
        yield f"{_label(stage):<{LABEL}}{_cells(stage, column)}"
        if any(value is not None for value in stage["j_per_token"]):
            per_token = (f"{'' if v is None else f'{v:.3g} J/token':>{column}}" for v in stage["j_per_token"])
            yield f"{'':<{LABEL}}{''.join(per_token)}"
    yield f"{'total':<{LABEL}}{_cells(found['total'], column)}"
    yield from _notes(found)
    yield from _bars(found)
    if found["warnings"]:
        yield ""
    for warning in found["warnings"]:
        yield f"{clean(warning['code'], 24)}: {clean(warning['text'], 300)}"


def _label(stage: Mapping[str, Any]) -> str:
    names = {name for name in stage["names"] if name is not None}
    return clean(stage["name"] if len(names) == 1 else stage["kind"], LABEL - 1)


def _cells(row: Mapping[str, Any], column: int) -> str:
    return "".join(f"{_cell(row, number):>{column}}" for number in range(len(row["energy_j"])))


def _cell(row: Mapping[str, Any], number: int) -> str:
    """Energy with its mark, and the ratio to the first run, `±` where that is within the error bounds."""
    text = _energy(row, number)
    ratio = row["ratio"][number]
    if number and ratio is not None:
        text += f" x{ratio:.3g}" + (" ±" if row["beyond_bounds"][number] is False else "")
    return text


def _energy(row: Mapping[str, Any], number: int) -> str:
    """Energy with its mark; `-` where the run has no such stage."""
    energy = row["energy_j"][number]
    if energy is None and "status" in row:
        if row["status"][number] is None:
            return "-"
        if row["status"][number] == "reused":
            return "reused"
    return marked(energy, energy and row["estimated"][number])


def _notes(found: Mapping[str, Any]) -> Iterator[str]:
    """What the marks mean, where they stand."""
    rows = [*found["stages"], found["total"]]
    notes = []
    if any(energy and row["estimated"][n] for row in rows for n, energy in enumerate(row["energy_j"])):
        notes.append("~ estimated by a model")
    if any(beyond is False for row in rows for beyond in row["beyond_bounds"][1:]):
        notes.append("± the difference is within both error bounds")
    if notes:
        yield "; ".join(notes)


def _bars(found: Mapping[str, Any]) -> Iterator[str]:
    """Energy of each stage in each run as bars of one scale."""
    cells = [(stage, n) for stage in found["stages"] for n, energy in enumerate(stage["energy_j"]) if energy]
    if len(cells) < 2:
        return
    yield ""
    drawn = stage_bars([stage["energy_j"][n] for stage, n in cells], BAR_CELLS)
    before = None
    for (stage, n), bar in zip(cells, drawn, strict=True):
        label = _label(stage) if stage is not before else ""
        before = stage
        yield f"{label:<{LABEL}}[{n + 1}] {bar} {_energy(stage, n)}"
