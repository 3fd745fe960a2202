"""The table of stages: state, time, mean W, energy, share, tokens/s, J/token."""

from __future__ import annotations

from kdwatch.tui.fmt import Units, count, duration, plain, ratio, watts
from kdwatch.tui.frame import Frame, StageRow, mark
from kdwatch.tui.view.line import Line, Piece, left
from kdwatch.tui.view.table import Column, fitting, header, name_room, row_line

NAME_MIN = 12
"""Least cells for a stage's name."""

STATES = {
    "pending": ("wait", "dim"),
    "running": ("run", "accent"),
    "completed": ("done", "good"),
    "failed": ("FAILED", "bad"),
    "skipped": ("skip", "dim"),
    "stopped": ("stopped", "warn"),
    "interrupted": ("broken", "bad"),
    "reused": ("reused", "good"),
}
"""Word and tone of each state of a stage."""


def state(row: StageRow) -> Piece:
    """State in a word; a running stage that counts its steps says how far it is."""
    word, tone = STATES.get(row.status, (row.status, "warn"))
    if row.status == "running" and row.done is not None:
        word = f"run {ratio(row.done)}"
    return word, tone


def columns(units: Units) -> list[Column[StageRow]]:
    """Every column of the table, in order."""
    return [
        Column("state", 8, state, 1, "left"),
        Column("time", 8, lambda r: (duration(r.duration_s) if r.duration_s is not None else "", ""), 3),
        Column("mean W", 7, lambda r: _started(r, mark(r.source) + watts(r.mean_w)), 4),
        Column("energy", 12, lambda r: _started(r, mark(r.source) + units.energy(r.energy_j)), 2),
        Column("share", 5, lambda r: _started(r, ratio(r.share)), 5),
        Column("tok/s", 7, lambda r: _started(r, count(r.tokens_per_s), optional=True), 6),
        Column("J/token", 8, lambda r: _started(r, plain(r.j_per_token), optional=True), 7),
    ]


def _started(row: StageRow, text: str, optional: bool = False) -> Piece:
    """Nothing before a stage has begun; `n/a` afterwards where the number is unknown."""
    if row.start_s is None and (row.status in ("pending", "skipped") or (row.status == "reused" and "n/a" in text)):
        return "", "dim"
    if text.endswith("n/a"):
        return ("-" if optional else "n/a"), "dim"
    return text, ""


def stage_lines(frame: Frame, width: int, units: Units, height: int | None = None, selected: int = -1) -> list[Line]:
    """Head, one line a stage, then unattributed and total; at most `height` lines, the running or selected
    stage always among them."""
    shown = fitting(columns(units), width, NAME_MIN)
    lines = [header(" # stage", shown, width)]
    rows = frame.stages
    tail = _tail(frame, width, units, shown)
    room = len(rows) if height is None else max(height - 1 - len(tail), 1)
    if height is not None and height - 1 - len(tail) < min(len(rows), 3):
        tail, room = [], max(height - 1, 1)
    for row in rows[slice(*window(len(rows), room, _focus(frame, selected)))]:
        lines.append(row_line(_name(row), row, shown, width))
    return lines + tail


def _name(row: StageRow) -> Piece:
    tone = {"running": "accent", "pending": "dim", "skipped": "dim"}.get(row.status, "")
    suffix = f" [{row.phase}]" if row.phase and row.phase != "work" and row.status == "running" else ""
    return f"{row.number:>2} {row.name}{suffix}", tone


def _focus(frame: Frame, selected: int) -> int:
    if selected >= 0:
        return selected
    running = frame.running
    return running.number - 1 if running else len(frame.stages) - 1


def window(total: int, room: int, focus: int) -> tuple[int, int]:
    """First and end index of `room` rows out of `total` that hold `focus`."""
    if total <= room:
        return 0, total
    start = min(max(focus - room // 2, 0), total - room)
    return start, start + room


def _tail(frame: Frame, width: int, units: Units, shown: list[Column[StageRow]]) -> list[Line]:
    """Lines for unattributed energy and the total."""
    lines = []
    if frame.unattributed_j:
        lines.append(_sum_line("unattributed", frame.unattributed_j, frame, units, shown, width, "dim"))
    lines.append(_sum_line("total", frame.total_j, frame, units, shown, width, "head"))
    return lines


def _sum_line(
    name: str,
    joules: float | None,
    frame: Frame,
    units: Units,
    shown: list[Column[StageRow]],
    width: int,
    tone: str,
) -> Line:
    """A sum in the table's own columns."""
    whole = name == "total"
    mean = joules / frame.t if whole and joules is not None and frame.t > 0 else None
    share = 1.0 if whole else (joules / frame.total_j if joules is not None and frame.total_j else None)
    sign = mark(frame.total_source)
    cells = {
        "time": duration(frame.t) if whole else "",
        "mean W": sign + watts(mean) if whole and mean is not None else "",
        "energy": sign + units.energy(joules) if joules is not None else "n/a",
        "share": ratio(share) if joules is not None else "",
    }
    text = left(f"   {name}", name_room(shown, width))
    return ((text + "".join(" " + c.place(cells.get(c.head, "")) for c in shown), tone),)
