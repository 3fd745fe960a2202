"""Two to four runs side by side: energy by stage with bars, totals, quality, place on their frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kdwatch.rundir.text import clean
from kdwatch.tui.fmt import Units, duration, plain, three_digits
from kdwatch.tui.raster import Glyphs, bar
from kdwatch.tui.view.line import Line, Piece, left

LABEL_CELLS = 18
"""Width of the column of names."""

Report = Mapping[str, Any]
"""The object of `kdwatch report --json`."""


def compare_lines(reports: Sequence[Report], width: int, units: Units, glyphs: Glyphs) -> list[Line]:
    """Heads, one block of stages, totals and quality, the frontier."""
    column = max((width - LABEL_CELLS) // max(len(reports), 1), 12)
    lines: list[Line] = [_row("", [(clean(r["name"] or r["run_id"], 60), "head") for r in reports], column)]
    lines.append(_row("", [(clean(r["run_id"], 60), "dim") for r in reports], column))
    lines.append(_row("regime", [(clean(r["regime"], 20) or "n/a", "") for r in reports], column))
    lines.append(_row("status", [(clean(r["status"], 20), "") for r in reports], column))
    lines += [(), (("energy by stage", "head"),)]
    top = max((s["energy_j"]["total"] or 0.0 for r in reports for s in r["stages"]), default=0.0)
    for name in stage_names(reports):
        stages = [stage_of(r, name) for r in reports]
        lines.append(_row(name, [_energy(s, units) for s in stages], column))
        lines.append(_row("", [_bar(s, top, column - 2, glyphs) for s in stages], column))
    lines += [(), *_totals(reports, units, column), (), *_frontier(reports, column), *_scopes(reports)]
    return lines


def stage_names(reports: Sequence[Report]) -> list[str]:
    """Names of all stages, in the order of the first run that has each."""
    names: list[str] = []
    for report in reports:
        names += [s["name"] for s in report["stages"] if s["name"] not in names]
    return names


def stage_of(report: Report, name: str) -> Mapping[str, Any] | None:
    """The stage of that name, or None."""
    return next((s for s in report["stages"] if s["name"] == name), None)


def _row(label: str, cells: Sequence[Piece], column: int) -> Line:
    pieces: list[Piece] = [(left(clean(label, 60), LABEL_CELLS), "dim")]
    pieces += [(left(text, column - 1) + " ", tone) for text, tone in cells]
    return tuple(pieces)


def _energy(stage: Mapping[str, Any] | None, units: Units) -> Piece:
    """Energy of a stage; what a reused one saved."""
    if stage is None:
        return "-", "dim"
    if stage["status"] == "reused":
        reused = stage["reused_from"] or {}
        return f"reused, saved {units.energy(reused.get('energy_j'))}", "good"
    energy = stage["energy_j"]
    text = units.energy(energy["total"])
    if text == "n/a":
        return text, "dim"
    return ("~" if energy["estimated"] else "") + text, ""


def _bar(stage: Mapping[str, Any] | None, top: float, width: int, glyphs: Glyphs) -> Piece:
    energy = stage["energy_j"]["total"] if stage is not None else None
    if not energy or top <= 0:
        return "", "line"
    return bar(energy / top, width, glyphs).rstrip(glyphs.bar[1]), "line"


def _totals(reports: Sequence[Report], units: Units, column: int) -> list[Line]:
    def estimated(report: Report) -> str:
        return "~" if any(s["energy_j"]["estimated"] for s in report["stages"]) else ""

    rows: list[tuple[str, list[Piece]]] = [
        ("total", [(estimated(r) + units.energy(r["total_j"]), "head") for r in reports]),
        ("against the first", [_against(r, reports[0]) for r in reports]),
        ("unattributed", [(units.energy(r["unattributed_j"]), "") for r in reports]),
        ("time", [(duration(r["duration_s"]), "") for r in reports]),
        ("J/token, student", [(plain(_student(r, "j_per_token")), "") for r in reports]),
        ("CO2e", [(co2e(r["co2e_kg"]), "") for r in reports]),
        ("quality Q", [(plain(quality(r)), "") for r in reports]),
    ]
    return [_row(name, cells, column) for name, cells in rows]


def _against(report: Report, first: Report) -> Piece:
    mine, base = report["total_j"], first["total_j"]
    if report is first:
        return "", ""
    if mine is None or not base:
        return "n/a", "dim"
    ratio = mine / base
    return f"{three_digits(ratio)} x", "good" if ratio < 1 else "warn"


def _student(report: Report, field: str) -> float | None:
    found = next((s for s in report["stages"] if s["kind"] == "student"), None)
    return found[field] if found else None


def quality(report: Report) -> float | None:
    """Q of a report, or None."""
    return (report["quality"] or {}).get("q")


def co2e(kg: float | None) -> str:
    """Kilograms, grams where they are few."""
    return plain(kg, "kg") if kg is None or kg >= 0.09995 else plain(kg * 1e3, "g")


def _frontier(reports: Sequence[Report], column: int) -> list[Line]:
    """Which of these runs no other beats in both energy and quality."""
    return [_row("frontier", [frontier_word(r, reports) for r in reports], column)]


def frontier_word(report: Report, reports: Sequence[Report]) -> Piece:
    """`on it`, or by which run this one is beaten; n/a without energy or quality."""
    energy, q = report["total_j"], quality(report)
    if energy is None or q is None:
        return "n/a", "dim"
    for other in reports:
        e2, q2 = other["total_j"], quality(other)
        if e2 is None or q2 is None or other is report:
            continue
        if e2 <= energy and q2 >= q and (e2 < energy or q2 > q):
            return f"beaten by {clean(other['name'] or other['run_id'], 40)}", "warn"
    return "on it", "good"


def _scopes(reports: Sequence[Report]) -> list[Line]:
    """Say where the totals do not cover the same kinds of device."""
    kinds = [frozenset(d["kind"] for d in r["devices"] if d["total_j"] is not None) for r in reports]
    if len(set(kinds)) <= 1:
        return []
    text = "; ".join(
        f"{clean(r['name'], 30)}: {', '.join(sorted(k)) or 'none'}" for r, k in zip(reports, kinds, strict=True)
    )
    return [(), ((f"not the same devices, so totals do not compare: {text}", "warn"),)]
