"""The power plot as lines of text: axis labels, the line with its fill, stage marks, budget line, time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdwatch.tui.fmt import duration, scaled, watts
from kdwatch.tui.history import PlotView
from kdwatch.tui.raster import Glyphs, joined, nice_ceiling, paint, to_spans
from kdwatch.tui.view.line import Line, Piece, cut, left, right, spread

LABEL_CELLS = 6
"""Cells of the value labels at the left, the axis included."""


@dataclass(frozen=True, slots=True)
class PlotSpec:
    """What to draw beside the data."""

    title: str
    """What is plotted: `total`, `GPU 3`."""
    window: str
    """The window in words: `last 10 min`, `all`."""
    marks: tuple[tuple[float, str], ...] = ()
    """Run time and name of each stage's start."""
    budget_w: float | None = None
    """Mean power that would use up the budget at the forecast end."""
    sign: str = ""
    """Mark of the source, `~` for estimated."""
    note: str = ""
    """Said at the right of the title: `follow`, `frozen`."""
    now: float | None = None
    """Run time of the cursor where it is not the right edge."""


def sub_columns(width: int, glyphs: Glyphs) -> int:
    """How many columns of data a plot of `width` cells wants."""
    return max(width - LABEL_CELLS, 1) * glyphs.dots_x


def plot_lines(view: PlotView, spec: PlotSpec, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """`height` lines: a title, the plot, the time axis. Below 3 lines only the title is left."""
    if height <= 0:
        return []
    title = _title(view, spec, width)
    if height < 3 or width < LABEL_CELLS + 4:
        return [title]
    rows = height - 2
    top = nice_ceiling(max(view.peak * 1.02, spec.budget_w or 0.0))
    spans = joined(to_spans(view.columns, 0.0, top, rows * glyphs.dots_y))
    text, floors = paint(spans, glyphs, rows, fill=True)
    budget_row = None if spec.budget_w is None else _row_of(spec.budget_w, top, rows)
    marks = _mark_cells(view, spec, width - LABEL_CELLS)
    lines = [title]
    for y, chars in enumerate(text):
        label = _label(y, rows, top)
        pieces = _plot_row(chars, y, floors, marks, budget_row == y, glyphs)
        lines.append(((label + glyphs.axis, "dim"), *pieces))
    if all(c is None for c in view.columns):
        lines[1 + rows // 2] = _empty(lines[1 + rows // 2], width)
    lines.append(_axis(view, spec, marks, width))
    return lines


def _title(view: PlotView, spec: PlotSpec, width: int) -> Line:
    now = scaled(view.now_w, "W")
    sign = "" if now == "n/a" else spec.sign
    start: list[Piece] = [("power ", "head"), (cut(spec.title, 24), "accent"), (f" {sign}{now}", "")]
    if width >= 60 and view.peak > 0:
        start.append((f", peak {scaled(view.peak, 'W')}", "dim"))
    return spread(start, [(f"{spec.note}  {spec.window}".strip(), "dim")], width)


def _label(y: int, rows: int, top: float) -> str:
    """Value labels at the top, in the middle of tall plots, and 0 at the bottom."""
    text = ""
    if y == 0:
        text = watts(top)
    elif y == rows - 1:
        text = "0"
    elif rows >= 7 and rows % 2 == 1 and y == rows // 2:
        text = watts(top / 2)
    return right(text, LABEL_CELLS - 1)


def _row_of(value: float, top: float, rows: int) -> int:
    return min(max(rows - 1 - int(value / top * rows), 0), rows - 1)


def _mark_cells(view: PlotView, spec: PlotSpec, cells: int) -> dict[int, str]:
    """Cell column of each stage's start inside the window, with its name."""
    span = view.end - view.start
    if span <= 0:
        return {}
    out: dict[int, str] = {}
    for t, name in spec.marks:
        if view.start <= t <= view.end:
            out[min(int((t - view.start) / span * cells), cells - 1)] = name
    return out


def _plot_row(
    chars: str, y: int, floors: Sequence[int], marks: dict[int, str], budget: bool, glyphs: Glyphs
) -> list[Piece]:
    """Runs of equal tone of one row: line, fill, stage mark, budget line, nothing."""
    pieces: list[Piece] = []
    start, tone = 0, ""
    out: list[str] = []
    for x, char in enumerate(chars):
        if x in marks:
            char, now = (glyphs.mark if char == " " else char), "mark"
        elif char == " ":
            char, now = (glyphs.line, "warn") if budget else (" ", "")
        else:
            now = "fill" if y > floors[x] else "line"
        if now != tone and x > start:
            pieces.append(("".join(out), tone))
            out, start = [], x
        tone = now
        out.append(char)
    pieces.append(("".join(out), tone))
    return pieces


def _empty(line: Line, width: int) -> Line:
    text = "no power readings in this window"
    room = width - LABEL_CELLS
    return (line[0], (left(cut(text, room).center(room), room), "dim"))


def _axis(view: PlotView, spec: PlotSpec, marks: dict[int, str], width: int) -> Line:
    """Start and end of the window, stage names between them where they fit."""
    cells = width - LABEL_CELLS
    row = [" "] * cells
    first, last = duration(max(view.start, 0.0)), duration(view.end)
    _put(row, 0, first)
    _put(row, cells - len(last), last)
    free_from, free_to = len(first) + 1, cells - len(last) - 1
    tones = ["dim"] * cells
    for x, name, limit in _names(marks, free_from, free_to):
        if x >= free_from and x + len(name) <= limit:
            _put(row, x, name)
            tones[x : x + len(name)] = ["mark"] * len(name)
            free_from = x + len(name) + 1
    return ((" " * LABEL_CELLS, ""), *_runs(row, tones))


def _names(marks: dict[int, str], free_from: int, free_to: int) -> list[tuple[int, str, int]]:
    """Cell, name and end of the room of each stage that can be named. Of those that begin under the time at the left
    the last one is named, beside that time, if it ends before the next begins."""
    named = [(x, cut(marks[x], 16)) for x in sorted(marks) if marks[x].isascii()]
    covered = [name for x, name in named if x < free_from]
    rest = [(x, name, free_to) for x, name in named if x >= free_from]
    if covered:
        rest.insert(0, (free_from, covered[-1], rest[0][0] - 1 if rest else free_to))
    return rest


def _put(row: list[str], x: int, text: str) -> None:
    for i, char in enumerate(text):
        if 0 <= x + i < len(row):
            row[x + i] = char


def _runs(row: Sequence[str], tones: Sequence[str]) -> list[Piece]:
    pieces: list[Piece] = []
    for char, tone in zip(row, tones, strict=True):
        if pieces and pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + char, tone)
        else:
            pieces.append((char, tone))
    return pieces
