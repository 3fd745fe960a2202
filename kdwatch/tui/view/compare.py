"""Two to four runs side by side: energy by stage with bars, totals, quality, place on their frontier and its chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kdwatch.ledger.stage_bars import stage_bars
from kdwatch.ledger.units import KWH_J
from kdwatch.rundir.text import clean
from kdwatch.tui.fmt import Units, duration, plain, three_digits
from kdwatch.tui.raster import Glyphs
from kdwatch.tui.view.line import Line, Piece, left
from kdwatch.tui.view.plan import LETTERS, chart_lines

LABEL_CELLS = 18
"""Width of the column of names."""

CHART_CELLS, CHART_LINES = 76, 14
"""Size of the frontier's chart."""

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
    lines += _stages(reports, column, units, glyphs)
    lines += [(), *_totals(reports, units, column), (), *_frontier(reports, column), *_scopes(reports)]
    return lines + _chart(reports, width, glyphs)


def _stages(reports: Sequence[Report], column: int, units: Units, glyphs: Glyphs) -> list[Line]:
    """A line of energies and a line of bars for each stage; all bars have one scale."""
    names = stage_names(reports)
    found = [[stage_of(r, name) for r in reports] for name in names]
    energies = [None if s is None else s["energy_j"]["total"] for row in found for s in row]
    bars = iter(stage_bars(energies, column - 2, "#" if glyphs.name == "ascii" else "▇"))
    lines: list[Line] = []
    for name, row in zip(names, found, strict=True):
        lines.append(_row(name, [_energy(s, units) for s in row], column))
        lines.append(_row("", [(next(bars), "line") for _ in row], column))
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
    """Which of these runs no other beats in both energy and quality; n/a where the energies are different things."""
    if not same_devices(reports):
        return [_row("frontier", [("n/a", "dim")] * len(reports), column)]
    return [_row("frontier", [frontier_word(r, reports) for r in reports], column)]


def _chart(reports: Sequence[Report], width: int, glyphs: Glyphs) -> list[Line]:
    """The runs on the plane of energy and quality with their frontier; nothing with fewer than two of known place."""
    points = [
        {"id": str(i), "per_student_kwh": r["total_j"] / KWH_J, "quality": quality(r)}
        for i, r in enumerate(reports)
        if r["total_j"] is not None and quality(r) is not None
    ]
    if not same_devices(reports):
        return []
    on_it = [p for p in points if frontier_word(reports[int(p["id"])], reports)[0] == "on it"]
    ordered = sorted(on_it, key=lambda p: p["per_student_kwh"])
    plane = {"candidates": points, "frontier": ordered, "allowed_kwh": None, "recommendation": None}
    drawn = chart_lines(plane, min(width, CHART_CELLS), CHART_LINES, glyphs, None)
    if not drawn:
        return []
    order = sorted(points, key=lambda p: p["per_student_kwh"])
    names = [clean(reports[int(p["id"])]["name"] or reports[int(p["id"])]["run_id"], 20) for p in order]
    legend = "  ".join(f"{letter} {name}" for letter, name in zip(LETTERS, names, strict=False))
    return [(), *drawn, ((legend, "dim"),)]


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


def device_kinds(report: Report) -> frozenset[str]:
    """Kinds of device whose energy is known."""
    return frozenset(d["kind"] for d in report["devices"] if d["total_j"] is not None)


def same_devices(reports: Sequence[Report]) -> bool:
    """Whether the totals cover the same kinds of device."""
    return len({device_kinds(r) for r in reports}) <= 1


def _scopes(reports: Sequence[Report]) -> list[Line]:
    """Say where the totals do not cover the same kinds of device."""
    if same_devices(reports):
        return []
    kinds = [device_kinds(r) for r in reports]
    text = "; ".join(
        f"{clean(r['name'], 30)}: {', '.join(sorted(k)) or 'none'}" for r, k in zip(reports, kinds, strict=True)
    )
    return [(), ((f"not the same devices, so totals do not compare: {text}", "warn"),)]
