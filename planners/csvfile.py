"""Observations from a CSV file; cells are separated by commas, semicolons or tabs, as its header is.

Columns are those of `planners.schema`; `regime` and an energy are needed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean
from planners.notes import Note
from planners.rowcheck import check_row, fill_total
from planners.schema import BASES, CORE_STAGES, SCHEMA, SCOPES, candidate_id, make_table, regime_of

STUDY = "paper"
"""Source of the study's own table; a file that says so of itself is named as the file that it is."""
_EMPTY = {"", "na", "n/a", "null", "none", "-"}
_SCOPE_ALIASES = {"gpu_only": "gpu", "gpu-only": "gpu", "estimated": "cpu_estimated"}


def read(path: Path) -> tuple[pl.DataFrame, list[Note]]:
    """The usable rows of a CSV file and a note for each row or column that was left out.

    Raises UsageProblem: no such file, not a CSV, foreign columns, no usable row.
    """
    raw = _read_text_table(path)
    _check_columns(path, raw.columns)
    notes = _unknown_columns(path, raw.columns)
    rows = []
    for number, cells in enumerate(raw.iter_rows(named=True), start=2):
        row = fill_total(_row(path, number, cells))
        verdict = check_row(row)
        where = f"{path.name}:{number}"
        if not verdict.accepted:
            notes.append(Note("row_rejected", f"{where}: {verdict.reason}; row left out"))
            continue
        if verdict.note:
            notes.append(Note("row_note", f"{where}: {verdict.note}"))
        rows.append(row)
    if not rows:
        why = f": {notes[-1].text}" if notes else ""
        raise UsageProblem(f"{path}: no usable row{why}; give a total_kwh above 0 in at least one row")
    return make_table(rows), notes


def _read_text_table(path: Path) -> pl.DataFrame:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageProblem(
            f"{path}: cannot be read ({error.strerror}); give a run directory, a CSV file or 'paper'"
        ) from None
    if not data.strip():
        raise UsageProblem(f"{path}: is empty; a frontier CSV needs a header and one row (see docs/planning.md)")
    header = next((line for line in data.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    separator = max(",;\t", key=lambda mark: header.count(mark.encode()))
    try:
        table = pl.read_csv(data, separator=separator, infer_schema=False, comment_prefix="#")
        return table.rename(str.strip)
    except (pl.exceptions.PolarsError, ValueError) as error:
        text = clean(str(error).splitlines()[0], 120)
        raise UsageProblem(f"{path}: is not a CSV table ({text}); see docs/planning.md for the columns") from None


def _check_columns(path: Path, columns: list[str]) -> None:
    names = set(columns)
    if "regime" not in names or not ("total_kwh" in names or names.issuperset(CORE_STAGES)):
        shown = clean(", ".join(columns), 80)
        raise UsageProblem(
            f"{path}: is no frontier table (its columns: {shown}); it needs regime and total_kwh, "
            "or regime and the four stages' _kwh columns (docs/planning.md)"
        )


def _unknown_columns(path: Path, columns: list[str]) -> list[Note]:
    unknown = [clean(name, 30) for name in columns if name not in SCHEMA]
    return [Note("columns_ignored", f"{path.name}: columns ignored: {', '.join(unknown)}")] if unknown else []


def _row(path: Path, number: int, cells: dict[str, str | None]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, text in cells.items():
        if name in SCHEMA and text is not None and text.strip().lower() not in _EMPTY:
            row[name] = _value(path, number, name, text.strip())
    regime = regime_of(row.get("regime", ""))
    if regime is None:
        shown = clean(row.get("regime", ""), 30)
        raise UsageProblem(f"{path}:{number}: regime {shown!r} is unknown; use sft, kd, synthetic_sft or custom")
    row["regime"] = regime
    row["scope"] = _scope(path, number, row.get("scope"))
    row.setdefault("id", candidate_id(regime, row.get("student_params_b")))
    row["basis"] = _basis(path, number, row.get("basis", "measured"))
    _check_settings(path, number, row.get("hyperparameters"))
    given = row.get("source")
    row["source"] = path.name if given in (None, STUDY) else given
    return row


def _value(path: Path, number: int, name: str, text: str) -> Any:
    if SCHEMA[name] == pl.Boolean:
        return text.lower() in {"1", "true", "yes"}
    if SCHEMA[name] == pl.String:
        return clean(text, 200)
    try:
        value = float(text)
    except ValueError:
        raise UsageProblem(
            f"{path}:{number}: {name}: {clean(text, 30)!r} is not a number; write a plain number in the column's unit"
        ) from None
    if SCHEMA[name] != pl.Int64:
        return value
    if not math.isfinite(value) or value != int(value) or value < 1:
        raise UsageProblem(f"{path}:{number}: {name}: {clean(text, 30)!r} is not a whole number of at least 1")
    return int(value)


def _basis(path: Path, number: int, basis: str) -> str:
    if basis.lower() not in BASES:
        raise UsageProblem(f"{path}:{number}: basis {clean(basis, 30)!r} is unknown; use {', '.join(BASES)}")
    return basis.lower()


def _check_settings(path: Path, number: int, text: str | None) -> None:
    """Raise UsageProblem where other settings are no JSON object of plain values."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    plain = isinstance(found, dict) and all(isinstance(v, str | int | float | bool | None) for v in found.values())
    if not plain:
        shown = clean(text, 40)
        raise UsageProblem(
            f"{path}:{number}: hyperparameters: {shown!r} is no JSON object of numbers and texts; "
            'write for example {"batch_rows": 8}'
        )


def _scope(path: Path, number: int, scope: str | None) -> str | None:
    if scope is None:
        return None
    name = _SCOPE_ALIASES.get(scope.lower(), scope.lower())
    if name not in SCOPES:
        raise UsageProblem(f"{path}:{number}: scope {clean(scope, 30)!r} is unknown; use {', '.join(SCOPES)}")
    return name
