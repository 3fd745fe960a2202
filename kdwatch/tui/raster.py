"""From ranges per sub-column to characters: braille, half blocks or ASCII. Pure; no terminal.

A plot of `width` x `height` cells has `width * dots_x` sub-columns and `height * dots_y` dot rows; row 0 is the
lowest. A sub-column is `(low, high)` in dot rows or None where there is no data: a gap stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int] | None
"""Lowest and highest dot row of one sub-column, both included; None is a gap."""

_BRAILLE_DOTS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Bit of the dot at (row from below, column) in a braille cell."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """A set of characters to draw with."""

    name: str
    dots_x: int
    dots_y: int
    table: tuple[str, ...]
    """Character for each bit mask of a cell's dots; bit = column * dots_y + row from below."""
    mark: str
    """Vertical stage mark."""
    line: str
    """Horizontal budget line."""
    bar: tuple[str, str]
    """Filled and empty cell of a bar."""
    axis: str
    """Character between labels and plot."""


def _braille_table() -> tuple[str, ...]:
    """The 256 braille patterns, indexed by our own order of bits."""
    out = []
    for mask in range(256):
        code = 0x2800
        for column in range(2):
            for row in range(4):
                if mask >> (column * 4 + row) & 1:
                    code |= _BRAILLE_DOTS[row][column]
        out.append(chr(code) if mask else " ")
    return tuple(out)


BRAILLE = Glyphs("braille", 2, 4, _braille_table(), "┊", "┄", ("━", "─"), "┤")
BLOCK = Glyphs("block", 1, 2, (" ", "▄", "▀", "█"), "│", "─", ("█", "░"), "┤")
ASCII = Glyphs("ascii", 1, 2, (" ", ".", "'", ":"), "|", "-", ("#", "."), "|")

GLYPHS = {g.name: g for g in (BRAILLE, BLOCK, ASCII)}
"""Glyph sets by name, best first."""


def choose_glyphs(name: str, encoding: str, term: str) -> Glyphs:
    """The set asked for, or with `auto` the best that the locale's encoding and TERM can show."""
    if name in GLYPHS:
        return GLYPHS[name]
    if "utf" not in encoding.lower():
        return ASCII
    return BLOCK if term in ("linux", "vt100", "vt220") else BRAILLE


def to_spans(ranges: Sequence[tuple[float, float] | None], low: float, high: float, dot_rows: int) -> list[Span]:
    """Scale value ranges to dot rows of a plot from `low` to `high`, clipped to it."""
    scale = (dot_rows - 1) / (high - low) if high > low else 0.0
    top = dot_rows - 1
    out: list[Span] = []
    for item in ranges:
        if item is None:
            out.append(None)
            continue
        bottom = int((item[0] - low) * scale + 0.5)
        peak = int((item[1] - low) * scale + 0.5)
        out.append((min(max(bottom, 0), top), min(max(peak, 0), top)))
    return out


def joined(spans: Sequence[Span]) -> list[Span]:
    """Widen each span so that it touches its left neighbour: a steep step draws as a line, a gap stays."""
    out: list[Span] = []
    previous: Span = None
    for span in spans:
        if span is None or previous is None:
            out.append(span)
        else:
            low, high = span
            if low > previous[1]:
                low = previous[1] + 1 if previous[1] + 1 < low else low
            elif high < previous[0]:
                high = previous[0] - 1 if previous[0] - 1 > high else high
            out.append((low, high))
        previous = span
    return out


def paint(spans: Sequence[Span], glyphs: Glyphs, height: int, fill: bool) -> tuple[list[str], list[int]]:
    """Characters of the plot, top row first, and for each cell column the highest row (from the top) that the
    line touches, so that the caller can colour line and fill apart; `height` where the column is empty.

    With `fill` everything below the line is filled; without, only the span is drawn.
    """
    dots_x, dots_y = glyphs.dots_x, glyphs.dots_y
    width = len(spans) // dots_x
    full = (1 << dots_y) - 1
    rows: list[list[str]] = [[" "] * width for _ in range(height)]
    floors = [height] * width
    table = glyphs.table
    for x in range(width):
        columns = spans[x * dots_x : (x + 1) * dots_x]
        known = [c for c in columns if c is not None]
        if not known:
            continue
        lowest = 0 if fill else min(c[0] for c in known) // dots_y
        highest = max(c[1] for c in known) // dots_y
        floors[x] = height - 1 - min(c[0] for c in known) // dots_y
        for cell in range(lowest, highest + 1):
            base = cell * dots_y
            mask = 0
            for i, span in enumerate(columns):
                if span is None:
                    continue
                first = max(0 if fill else span[0] - base, 0)
                last = min(span[1] - base, dots_y - 1)
                if last >= first:
                    bits = (full >> (dots_y - 1 - last)) & (full << first) & full
                    mask |= bits << (i * dots_y)
            rows[height - 1 - cell][x] = table[mask]
    return ["".join(row) for row in rows], floors


def bar(share: float | None, width: int, glyphs: Glyphs) -> str:
    """A bar of `width` cells filled to `share` of one; all empty where unknown."""
    full, empty = glyphs.bar
    if share is None or width <= 0:
        return empty * max(width, 0)
    filled = min(width, max(0, round(share * width)))
    if share > 0 and filled == 0:
        filled = 1
    return full * filled + empty * (width - filled)


def nice_ceiling(value: float) -> float:
    """The smallest 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten that is >= `value`; 1 for nothing."""
    if not value > 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8):
        if step * power >= value:
            return step * power
    return 10 * power
