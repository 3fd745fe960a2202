"""Rows of `kdwatch ls`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kdwatch.ledger.load import load_ledger
from kdwatch.ledger.marks import marked
from kdwatch.ledger.report import started_at
from kdwatch.ledger.units import KWH_J, format_duration
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.reader import RunReader
from kdwatch.rundir.text import clean


def list_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """One object a run; a run that cannot be read has its problem in `problem`."""
    return [_row(path) for path in paths]


def _row(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": path.name, "path": str(path)}
    try:
        reader = RunReader(path)
        totals = load_ledger(path).totals()
    except UsageProblem as problem:
        return {**row, "status": None, "problem": str(problem)}
    manifest = reader.manifest
    q = totals.quality.get("q") if totals.quality else None
    return {
        **row,
        "name": manifest.get("name"),
        "regime": manifest.get("regime"),
        "status": totals.status,
        "started_at": started_at(manifest),
        "duration_s": totals.t,
        "total_j": totals.total_j,
        "total_kwh": totals.total_j / KWH_J if totals.total_j is not None else None,
        "estimated": any(d.source == "estimated" for d in totals.devices if d.total_j is not None),
        "q": q,
        "stages": len(totals.stages),
    }


OTHERS = 56
"""Columns that the table takes beside the id."""


def row_lines(rows: list[dict[str, Any]], columns: int | None = None) -> list[str]:
    """A table: id, status, start, time, energy, Q. Ids are cut where it would be wider than `columns`; what is left
    of one still names the run."""
    if not rows:
        return []
    width = max(6, *(len(clean(r["run_id"])) for r in rows))
    if columns is not None:
        width = min(width, max(20, columns - OTHERS))
    head = f"{'RUN':<{width}}  {'STATUS':<11} {'STARTED (UTC)':<16} {'TIME':>8} {'ENERGY':>10} {'Q':>5}"
    return [head, *(_line(row, width) for row in rows)]


def _line(row: dict[str, Any], width: int) -> str:
    name = f"{clean(row['run_id'], width):<{width}}"
    if "problem" in row:
        return f"{name}  {clean(row['problem'], 200)}"
    start = clean(row["started_at"] or "n/a").replace("T", " ")[:16]
    energy = marked(row["total_j"], row["estimated"])
    q = f"{row['q']:.2f}" if isinstance(row["q"], int | float) else "n/a"
    time = format_duration(row["duration_s"])
    return f"{name}  {clean(row['status'], 11):<11} {start:<16} {time:>8} {energy:>10} {q:>5}"
