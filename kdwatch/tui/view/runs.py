"""The list of runs, and what to do first where there is none."""

from __future__ import annotations

from kdwatch.tui.fmt import Units, duration
from kdwatch.tui.runlist import RunRow
from kdwatch.tui.view.header import STATUS_TONES
from kdwatch.tui.view.line import Line, Piece, cut
from kdwatch.tui.view.table import Column, fitting, header, name_room, row_line

NAME_MIN = 15
"""Least cells for a run's name."""

WAYS: tuple[Line, ...] = (
    (("  kdwatch demo", "accent"), ("             three real pipelines on this machine, in minutes", "")),
    (("  kdwatch run recipe.yaml", "accent"), ("  your own pipeline", "")),
    (("  kdwatch exec -- COMMAND", "accent"), ("  measure any command", "")),
    (),
)
"""How to come to a run."""

FIRST_STEPS: tuple[Line, ...] = (
    (("No runs here yet. Three ways to begin:", "head"),),
    (),
    *WAYS,
    (("  4", "key"), (" plans a run from the study's measurements; ", ""), ("q", "key"), (" quits", "")),
)
"""Shown where there is no run at all."""

BESIDE_SAMPLES: tuple[Line, ...] = (
    (),
    (
        ("These are recorded samples: ", "head"),
        ("enter", "key"),
        (" opens one, ", ""),
        ("p", "key"),
        (" plays it.", ""),
    ),
    (("Three ways to a run of your own:", "head"),),
    (),
    *WAYS,
    (("  4", "key"), (" plans one from the study's measurements and from runs", "")),
)
"""Shown under the samples where there is no own run."""


def columns(units: Units) -> list[Column[RunRow]]:
    """Every column, in order."""
    return [
        Column("id", 26, lambda r: (r.run_id, "dim"), 7, "left"),
        Column("regime", 13, lambda r: (r.regime, "dim"), 6, "left"),
        Column("status", 11, lambda r: (r.status.replace("_", " "), STATUS_TONES.get(r.status, "warn")), 1, "left"),
        Column("started (UTC)", 16, lambda r: (r.started, "dim"), 4, "left"),
        Column("time", 8, lambda r: (duration(r.duration_s), ""), 3),
        Column("energy", 12, lambda r: _energy(r, units), 2),
        Column("Q", 5, lambda r: ("n/a", "dim") if r.q is None else (f"{r.q:.2f}", ""), 5),
    ]


def _energy(row: RunRow, units: Units) -> Piece:
    text = units.energy(row.total_j)
    return (text, "dim") if text == "n/a" else (("~" if row.estimated else "") + text, "")


def head_line(width: int, units: Units) -> Line:
    """The column heads."""
    return header("   run", fitting(columns(units), width, NAME_MIN), width)


def run_line(row: RunRow, marked: bool, width: int, units: Units) -> Line:
    """One run; a mark for Compare, a word for samples, the problem of one that cannot be read."""
    if row.problem:
        return ((f"   {row.run_id}  ", ""), (row.problem, "bad"))
    shown = fitting(columns(units), width, NAME_MIN)
    word = " (sample)" if row.sample else ""
    room = name_room(shown, width) - 3 - len(word)
    if room < 8:
        word = ""
    name = cut(row.name or row.run_id, max(room, 1)) + word if word else row.name or row.run_id
    tone = "accent" if marked else "dim" if row.sample else ""
    return row_line((f" {'*' if marked else ' '} {name}", tone), row, shown, width)
