"""The plane of energy and quality as plotext draws it: the frontier's staircase, a letter a point, a budget line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdwatch.tui.raster import Glyphs
from kdwatch.tui.view.line import Line, Piece
from planners.picture import budget_line, staircase
from planners.wording import axis

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Names of points; further ones are `o`."""


def letter_of(number: int) -> str:
    """Name of the point of that number, from 0."""
    return LETTERS[number] if number < len(LETTERS) else "o"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the plane."""

    letter: str
    kwh: float
    quality: float


def chart_lines(
    points: Sequence[Point],
    frontier: Sequence[Point],
    width: int,
    height: int,
    glyphs: Glyphs,
    *,
    of: str = "",
    allowed_kwh: float | None = None,
    chosen: str = "",
) -> list[Line]:
    """Energy to the right, quality up; `of` says whose energy. Nothing for fewer than two points or too small a place.

    `chosen` is the letter that stands out; `frontier` are the points no other beats, by energy from the lowest.
    """
    if len(points) < 2 or width < 30 or height < 8:
        return []
    dearest = max(p.kwh for p in points)
    unit, scale = axis(dearest)
    line, budget = budget_line(allowed_kwh, dearest, scale)
    text = _drawn(points, frontier, scale, line, (width, height - 1))
    if glyphs.name == "ascii":
        text = [_ascii(row) for row in text]
    return [
        ((f"quality Q over {unit} {of}".rstrip(), "head"), (f", {budget}" if budget else "", "warn")),
        *(_toned(row, chosen) for row in text),
    ]


def _drawn(
    points: Sequence[Point],
    frontier: Sequence[Point],
    scale: float,
    line: float | None,
    size: tuple[int, int],
) -> list[str]:
    """The chart as plotext draws it, without colour; `line` is where the budget's stands."""
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(*size)
    xs, ys = staircase([(p.kwh, p.quality) for p in frontier])
    if len(xs) > 1:
        plotext.plot([x * scale for x in xs], ys, marker="·")
    if line is not None:
        plotext.vline(line)
    for p in points:
        plotext.scatter([p.kwh * scale], [p.quality], marker=p.letter)
    rows = plotext.uncolorize(plotext.build()).splitlines()
    plotext.clear_figure()
    return [row.rstrip() for row in rows]


def _ascii(row: str) -> str:
    """Frame and line characters in ASCII."""
    swaps = {"─": "-", "·": "."} | dict.fromkeys("│┤├", "|") | dict.fromkeys("┬┴┼┌┐└┘", "+")
    return "".join(swaps.get(char, char if char.isascii() else ":") for char in row)


def _toned(row: str, chosen: str) -> Line:
    """Letters stand out from frame and staircase; the chosen one is in brackets too, not in colour only."""
    pieces: list[Piece] = []
    for char in row:
        tone = ("accent" if char == chosen else "head") if char in LETTERS else "dim"
        if pieces and pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + char, tone)
        else:
            pieces.append((char, tone))
    for i, (text, _) in enumerate(pieces):
        if text == chosen and 0 < i < len(pieces) - 1:
            pieces[i - 1] = (pieces[i - 1][0][:-1] + "(", pieces[i - 1][1])
            pieces[i + 1] = (")" + pieces[i + 1][0][1:], pieces[i + 1][1])
    return tuple(pieces)
