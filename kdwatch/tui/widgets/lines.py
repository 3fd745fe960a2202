"""A widget that shows given lines and repaints only those that differ from the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from kdwatch.tui.view.line import Line, length, width_of

TONES = ("dim", "head", "good", "warn", "bad", "accent", "line", "fill", "mark", "key", "cursor")
"""Tones of pieces; each is a component class `tone--NAME` of the stylesheet."""


class Lines(Widget):
    """Lines of text, cut or padded to the widget's width. `cursor` is the line drawn as selected."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"tone--{tone}" for tone in TONES}
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Line] = ()
        self.cursor = -1
        self._styles_by_tone: dict[str, Style] = {}

    @property
    def lines(self) -> Sequence[Line]:
        """The lines now shown."""
        return self._lines

    def show(self, lines: Sequence[Line], cursor: int = -1) -> int:
        """Replace the lines; returns how many rows have to be sent to the terminal."""
        old, before = self._lines, self.cursor
        self._lines, self.cursor = lines, cursor
        width, height = self.size
        dirty = []
        for y in range(min(height, max(len(old), len(lines)))):
            if cursor != before and y in (cursor, before):
                dirty.append(Region(0, y, width, 1))
            elif _at(old, y) != _at(lines, y):
                start, end = changed_cells(_at(old, y), _at(lines, y), width)
                dirty.append(Region(start, y, end - start, 1))
        if dirty and width:
            self.refresh(*dirty)
        return len(dirty)

    def notify_style_update(self) -> None:
        """A new theme: look the colours up again."""
        self._styles_by_tone.clear()
        super().notify_style_update()

    def style_of(self, tone: str) -> Style:
        """Rich style of a tone on this widget's background."""
        style = self._styles_by_tone.get(tone)
        if style is None:
            style = self.get_component_rich_style(f"tone--{tone}") if tone in TONES else self.rich_style
            self._styles_by_tone[tone] = style
        return style

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        line = _at(self._lines, y)
        if y == self.cursor:
            cursor = self.style_of("cursor")
            back = Style(bgcolor=cursor.bgcolor, reverse=cursor.reverse or None)
            segments = [Segment(text, self.style_of(tone) + back) for text, tone in line]
            return Strip(segments).adjust_cell_length(width, self.rich_style + back)
        segments = [Segment(text, self.style_of(tone)) for text, tone in line]
        return Strip(segments).adjust_cell_length(width, self.rich_style)


def changed_cells(old: Line, new: Line, width: int) -> tuple[int, int]:
    """First and end cell that differ between two lines, to the piece: what a terminal has to be sent."""
    start = min(_same(old, new), max(width - 1, 0))
    if length(old) != length(new):
        return start, width
    end = length(new) - _same(tuple(reversed(old)), tuple(reversed(new)))
    return start, max(min(end, width), start + 1)


def _same(old: Line, new: Line) -> int:
    """Cells of the equal pieces that two lines begin with."""
    cells = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        cells += width_of(after[0])
    return cells


def _at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if 0 <= y < len(lines) else ()
