"""A widget that shows given lines and repaints only those that differ from the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kdwatch.tui.view.line import Line, length, width_of

TONES = ("dim", "head", "good", "warn", "bad", "accent", "line", "fill", "mark", "key", "cursor")
"""Tones of pieces; each is a component class `tone--NAME` of the stylesheet."""


class Lines(Widget):
    """Lines of text, cut or padded to the widget's width. `cursor` is the line drawn as selected.

    Has no border and no padding. Rows are kept as they were drawn until they change: Textual asks for all rows of
    a widget whenever one of them changed, and styling each anew was the dearest part of a tick.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"tone--{tone}" for tone in TONES}
    ALLOW_SELECT = False

    class Resized(Message):
        """The lines now shown were made for another size."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Line] = ()
        self.cursor = -1
        self._styles_by_tone: dict[str, Style] = {}
        self._strips: dict[int, Strip] = {}
        self._drawn_for: tuple[int, tuple[LineFilter, ...]] = (0, ())

    def on_resize(self) -> None:
        """Tell the screen, which makes the lines."""
        self.post_message(self.Resized())

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
        for y in range(max(len(old), len(lines))):
            if cursor != before and y in (cursor, before):
                start, end = 0, width
            elif _at(old, y) != _at(lines, y):
                start, end = changed_cells(_at(old, y), _at(lines, y), width)
            else:
                continue
            self._strips.pop(y, None)
            if y < height:
                dirty.append(Region(start, y, end - start, 1))
        if dirty and width:
            self.refresh(*dirty)
        return len(dirty)

    def notify_style_update(self) -> None:
        """A new theme: look the colours up again."""
        self._styles_by_tone.clear()
        self._strips.clear()
        super().notify_style_update()

    def style_of(self, tone: str) -> Style:
        """Rich style of a tone on this widget's background, as the terminal shall get it."""
        style = self._styles_by_tone.get(tone)
        if style is None:
            style = self.get_component_rich_style(f"tone--{tone}") if tone in TONES else self.rich_style
            style = self._styles_by_tone[tone] = filtered(style, self)
        return style

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of `crop`, drawn anew only where they changed."""
        drawn_for = (self.size.width, tuple(self.get_line_filters()))
        if drawn_for != self._drawn_for:
            self._drawn_for = drawn_for
            self._styles_by_tone.clear()
            self._strips.clear()
        strips = self._strips
        for y in crop.line_range:
            if y not in strips:
                strips[y] = self._drawn(y, drawn_for[0])
        rows = [strips[y] for y in crop.line_range]
        return rows if crop.column_span == (0, drawn_for[0]) else [row.crop(crop.x, crop.right) for row in rows]

    def render_line(self, y: int) -> Strip:
        """One row."""
        return self._drawn(y, self.size.width)

    def _drawn(self, y: int, width: int) -> Strip:
        """One row, cut or padded to the width."""
        line, style_of = _at(self._lines, y), self.style_of
        segments = [Segment(text, style_of(tone)) for text, tone in line]
        cells = length(line)
        if cells < width:
            segments.append(Segment(" " * (width - cells), style_of("")))
        if y == self.cursor:
            cursor = style_of("cursor")
            back = Style(bgcolor=cursor.bgcolor, reverse=cursor.reverse or None)
            segments = [Segment(text, (style or back) + back) for text, style, _ in segments]
        strip = Strip(segments, max(cells, width))
        return strip.crop(0, width) if cells > width else strip


def filtered(style: Style, widget: Widget) -> Style:
    """A style as the terminal shall get it: greys under NO_COLOR, truecolor in place of the sixteen colours."""
    _, background = widget.background_colors
    for line_filter in widget.get_line_filters():
        style = line_filter.apply([Segment(" ", style)], background)[0].style or style
    return style


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
