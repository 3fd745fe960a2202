"""Two to four runs side by side: energy by stage with bars, totals, quality, place on their frontier and its chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdwatch.ledger.stage_bars import stage_bars
from kdwatch.ledger.units import KWH_J
from kdwatch.rundir.text import clean
from kdwatch.tui.fmt import Units, duration, plain, three_digits
from kdwatch.tui.raster import Glyphs
from kdwatch.tui.view.chart import Point, chart_lines, letter_of
from kdwatch.tui.view.line import Line, Piece, cut, cut_middle, left, wrapped

LABEL_CELLS = 18
"""Width of the column of names."""

COLUMN_LEAST = 14
"""Least cells of a run's column."""

CHART_CELLS, CHART_LINES = 76, 14
"""Size of the frontier's chart."""

ON_IT = "on it"
"""Said of a run that no other beats in both energy and quality."""

Report = Mapping[str, Any]
"""The object of `kdwatch report --json`."""


def compare_lines(reports: Sequence[Report], width: int, units: Units, glyphs: Glyphs, first: int = 0) -> list[Line]:
    """Heads with a letter for each run, one block of stages, totals and quality, the frontier. Where not all runs fit
    beside each other, columns from the run of number `first` on."""
    fit = columns_that_fit(width)
    grid = Grid(max((width - LABEL_CELLS) // min(len(reports), fit), 12), slice(first, first + fit))
    lines: list[Line] = [
        grid.row("", [(f"{letter_of(i)} {run_name(r)}", "head") for i, r in enumerate(reports)]),
        grid.row("", [(cut_middle(clean(r["run_id"], 60), grid.column - 1), "dim") for r in reports]),
        grid.row("regime", [(clean(r["regime"], 20) or "n/a", "") for r in reports]),
        grid.row("status", [(clean(r["status"], 20).replace("_", " "), "") for r in reports]),
        (),
        (("energy by stage", "head"),),
        *_stages(reports, grid, units, glyphs),
        (),
        *_totals(reports, grid, units),
        (),
        grid.row("frontier", _frontier(reports)),
        *_scopes(reports, width),
    ]
    return lines + _chart(reports, width, glyphs)


def columns_that_fit(width: int) -> int:
    """How many runs stand beside each other."""
    return max((width - LABEL_CELLS) // COLUMN_LEAST, 1)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of a label and a cell for each run that is shown."""

    column: int
    """Cells of a run's column, with the blank behind it."""
    shown: slice
    """Which runs."""

    def row(self, label: str, cells: Sequence[Piece]) -> Line:
        """One row; `cells` are those of all runs."""
        pieces: list[Piece] = [(left(cut(clean(label, 60), LABEL_CELLS - 1), LABEL_CELLS), "dim")]
        pieces += [(left(text, self.column - 1) + " ", tone) for text, tone in cells[self.shown]]
        return tuple(pieces)


def run_name(report: Report) -> str:
    """What a person calls the run."""
    return clean(report["name"] or report["run_id"], 60)


def _stages(reports: Sequence[Report], grid: Grid, units: Units, glyphs: Glyphs) -> list[Line]:
    """A line of energies and a line of bars for each stage; all bars have one scale. Of a reused stage the second
    line says what it saved."""
    names = stage_names(reports)
    found = [[stage_of(r, name) for r in reports] for name in names]
    energies = [None if s is None else s["energy_j"]["total"] for row in found for s in row]
    bars = iter(stage_bars(energies, grid.column - 2, "#" if glyphs.name == "ascii" else "▇"))
    lines: list[Line] = []
    for name, row in zip(names, found, strict=True):
        lines.append(grid.row(name, [_energy(s, units) for s in row]))
        second = [_saved(s, r, units) or (bar, "line") for s, r, bar in zip(row, reports, bars, strict=False)]
        lines.append(grid.row("", second))
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


def _energy(stage: Mapping[str, Any] | None, units: Units) -> Piece:
    """Energy of a stage."""
    if stage is None:
        return "-", "dim"
    if stage["status"] == "reused":
        return "reused", "good"
    energy = stage["energy_j"]
    text = units.energy(energy["total"])
    if text == "n/a":
        return text, "dim"
    return ("~" if energy["estimated"] else "") + text, ""


def _saved(stage: Mapping[str, Any] | None, report: Report, units: Units) -> Piece | None:
    """What a reused stage saved; None for one that ran. Where it is not recorded whether a model told that, it is
    marked as this run is."""
    if stage is None or stage["status"] != "reused":
        return None
    made = stage["reused_from"] or {}
    saved, estimated = units.energy(made.get("energy_j")), made.get("estimated")
    marked = is_estimated(report) if estimated is None else estimated
    return f"saved {'~' if marked and saved != 'n/a' else ''}{saved}", "good"


def is_estimated(report: Report) -> bool:
    """A part of the run's energy is a model's."""
    return any(s["energy_j"]["estimated"] for s in report["stages"])


def _totals(reports: Sequence[Report], grid: Grid, units: Units) -> list[Line]:
    def energy(report: Report, field: str) -> str:
        """With its mark where a part of the run's energy is estimated."""
        text = units.energy(report[field])
        return "~" + text if is_estimated(report) and text != "n/a" and report[field] else text

    rows: list[tuple[str, list[Piece]]] = [
        ("total", [(energy(r, "total_j"), "head") for r in reports]),
        ("against A", [_against(r, reports[0]) for r in reports]),
        ("unattributed", [(energy(r, "unattributed_j"), "") for r in reports]),
        ("time", [(duration(r["duration_s"]), "") for r in reports]),
        ("J/token, student", [(plain(_student(r, "j_per_token")), "") for r in reports]),
        ("CO2e", [(co2e(r["co2e_kg"]), "") for r in reports]),
        ("quality Q", [(plain(quality(r)), "") for r in reports]),
    ]
    return [grid.row(name, cells) for name, cells in rows]


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


def _frontier(reports: Sequence[Report]) -> list[Piece]:
    """Which of these runs no other beats in both energy and quality; n/a where the energies are different things."""
    if not same_devices(reports):
        return [("n/a", "dim")] * len(reports)
    return [frontier_word(r, reports) for r in reports]


def _chart(reports: Sequence[Report], width: int, glyphs: Glyphs) -> list[Line]:
    """The runs on the plane of energy and quality with their frontier; nothing with fewer than two of known place."""
    if not same_devices(reports):
        return []
    points: list[Point] = []
    frontier: list[Point] = []
    for i, report in enumerate(reports):
        q = quality(report)
        if report["total_j"] is None or q is None:
            continue
        points.append(Point(letter_of(i), report["total_j"] / KWH_J, q))
        if frontier_word(report, reports)[0] == ON_IT:
            frontier.append(points[-1])
    frontier.sort(key=lambda p: p.kwh)
    drawn = chart_lines(points, frontier, min(width, CHART_CELLS), CHART_LINES, glyphs, of="per run")
    if not drawn:
        return []
    names = [f"{letter_of(i)} {cut_middle(run_name(r), 24)}" for i, r in enumerate(reports)]
    return [(), *drawn, *(((text, "dim"),) for text in wrapped("  ".join(names), width))]


def frontier_word(report: Report, reports: Sequence[Report]) -> Piece:
    """`on it`, or by which run this one is beaten; n/a without energy or quality."""
    energy, q = report["total_j"], quality(report)
    if energy is None or q is None:
        return "n/a", "dim"
    for i, other in enumerate(reports):
        e2, q2 = other["total_j"], quality(other)
        if e2 is None or q2 is None or other is report:
            continue
        if e2 <= energy and q2 >= q and (e2 < energy or q2 > q):
            return f"beaten by {letter_of(i)}", "warn"
    return ON_IT, "good"


def device_kinds(report: Report) -> frozenset[str]:
    """Kinds of device whose energy is known and in the total."""
    return frozenset(d["kind"] for d in report["devices"] if d["total_j"] is not None and d["counted"])


def same_devices(reports: Sequence[Report]) -> bool:
    """Whether the totals cover the same kinds of device."""
    return len({device_kinds(r) for r in reports}) <= 1


def _scopes(reports: Sequence[Report], width: int) -> list[Line]:
    """Say where the totals do not cover the same kinds of device."""
    if same_devices(reports):
        return []
    kinds = ", ".join(
        f"{letter_of(i)} {'+'.join(sorted(device_kinds(r))) or 'none'}" for i, r in enumerate(reports)
    ).replace("_", " ")
    text = f"not the same devices, so totals do not compare: {kinds}"
    return [(), *(((line, "warn"),) for line in wrapped(text, width))]
