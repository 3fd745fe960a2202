"""The plane of energy and quality as plotext draws it: the frontier's staircase, a letter a point, a budget line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdwatch.ledger.units import three_digits
from kdwatch.tui.raster import Glyphs
from kdwatch.tui.view.line import Line, Piece
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
    unit, scale = axis(max(p.kwh for p in points))
    text = _drawn(points, frontier, scale, allowed_kwh, (width, height - 1))
    if glyphs.name == "ascii":
        text = [_ascii(row) for row in text]
    budget = "" if allowed_kwh is None else f", line: budget {three_digits(allowed_kwh * scale)}"
    return [
        ((f"quality Q over {unit} {of}".rstrip(), "head"), (budget, "warn")),
        *(_toned(row, chosen) for row in text),
    ]


def _drawn(
    points: Sequence[Point],
    frontier: Sequence[Point],
    scale: float,
    allowed_kwh: float | None,
    size: tuple[int, int],
) -> list[str]:
    """The chart as plotext draws it, without colour."""
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(*size)
    xs, ys = staircase(frontier)
    if len(xs) > 1:
        plotext.plot([x * scale for x in xs], ys, marker="·")
    if allowed_kwh is not None:
        plotext.vline(allowed_kwh * scale)
    for p in points:
        plotext.scatter([p.kwh * scale], [p.quality], marker=p.letter)
    rows = plotext.uncolorize(plotext.build()).splitlines()
    plotext.clear_figure()
    return [row.rstrip() for row in rows]


def staircase(frontier: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Corners of the frontier's steps: right at the same quality, then up."""
    xs: list[float] = []
    ys: list[float] = []
    for point in frontier:
        if ys:
            xs.append(point.kwh)
            ys.append(ys[-1])
        xs.append(point.kwh)
        ys.append(point.quality)
    return xs, ys


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
