"""Energies of different scope are never compared silently: one scope is planned in, the others are named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from kdwatch.rundir.errors import UsageProblem
from planners.notes import Note
from planners.request import PlanRequest


@dataclass(frozen=True)
class Scoped:
    """Candidates of one scope, the scope's name, and those left out with the reason."""

    table: pl.DataFrame
    name: str | None
    rejected: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def in_scope(table: pl.DataFrame, request: PlanRequest) -> Scoped:
    """Candidates of the asked scope; by default that of the first candidate with a known quality.

    A candidate of unknown scope is compared with the others, under a warning. Raises UsageProblem where nothing is
    left in the asked scope.
    """
    known = [scope for scope in table["scope"].unique(maintain_order=True).to_list() if scope is not None]
    notes = _hardware_notes(table) + _unknown_notes(table, known)
    if request.scope == "any":
        mixed = (
            [Note("mixed_scope", f"energies of different scope are compared, as asked: {', '.join(known)}")]
            if len(known) > 1
            else []
        )
        return Scoped(table, "any", [], notes + mixed)
    name = request.scope or _default(table, known)
    if request.scope is not None and name not in known:
        raise UsageProblem(
            f"scope: no observation has scope {name!r}; there are {', '.join(known) or 'none with a known scope'}"
        )
    mine = pl.col("scope").is_null() | (pl.col("scope") == (name or ""))
    others = table.filter(~mine)
    if others.is_empty():
        return Scoped(table, name, [], notes)
    rejected = [
        {
            "id": row["id"],
            "why": f"its energy covers {row['scope']}, not {name}: not comparable (--scope {row['scope']})",
        }
        for row in others.iter_rows(named=True)
    ]
    left_out = sorted(set(others["scope"].to_list()))
    text = f"planning in scope {name}; {others.height} candidates of scope {', '.join(left_out)} are not compared"
    kept = table.filter(mine)
    return Scoped(
        kept, name, rejected, [*_hardware_notes(kept), *_unknown_notes(kept, [name or ""]), Note("mixed_scope", text)]
    )


def _default(table: pl.DataFrame, known: list[str]) -> str | None:
    rated = table.filter(pl.col("quality").is_not_null() & pl.col("scope").is_not_null())
    if rated.height:
        return str(rated["scope"][0])
    return known[0] if known else None


def _hardware_notes(table: pl.DataFrame) -> list[Note]:
    hardware = [name for name in table["hardware"].unique(maintain_order=True).to_list() if name]
    if len(hardware) < 2:
        return []
    return [Note("mixed_hardware", f"energies come from different hardware: {'; '.join(hardware[:4])}")]


def _unknown_notes(table: pl.DataFrame, known: list[str]) -> list[Note]:
    names = table.filter(pl.col("scope").is_null())["id"].to_list()
    if not names or not known:
        return []
    return [Note("scope_unknown", f"what the energy covers is not stated; taken as comparable: {', '.join(names[:8])}")]
