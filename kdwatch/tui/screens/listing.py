"""A screen that is a title and a list of lines to scroll, with an optional cursor."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from kdwatch.tui.frame import Frame
from kdwatch.tui.screens.base import KdScreen
from kdwatch.tui.view.line import Line, spread
from kdwatch.tui.widgets.lines import Lines

WHEEL_LINES = 3
"""Lines of text that a notch of the wheel moves."""


class ListingScreen(KdScreen):
    """Subclasses give `title` and `content`; with `SELECTS` the cursor moves, else the text."""

    TITLE_TEXT: ClassVar[str] = ""
    SELECTS: ClassVar[bool] = False
    HEAD_LINES: ClassVar[int] = 0
    """Lines at the top of the content that never scroll and are not selected."""

    def __init__(self) -> None:
        super().__init__()
        self.top = 0
        self.at = 0

    def parts(self) -> ComposeResult:
        yield Lines(id="header", classes="part")
        yield Lines(id="body", classes="part")

    def heading(self) -> str:
        """The first line."""
        return self.TITLE_TEXT

    def content(self, width: int) -> list[Line]:
        """All lines."""
        raise NotImplementedError

    def foot(self) -> list[Line]:
        """Lines under the list, shown where there is room for all of them."""
        return []

    def show_frame(self, frame: Frame) -> None:
        """Most listings do not change with a frame."""

    def draw(self) -> None:
        """Title, and the lines from `top` on."""
        body = self.query_one("#body", Lines)
        width, height = body.size
        if not width or not height or not body.display:
            return
        lines = self.content(width)
        head, rest = lines[: self.HEAD_LINES], lines[self.HEAD_LINES :]
        foot = self.foot()
        if len(lines) + len(foot) > height:
            foot = []
        room = max(height - len(head) - len(foot), 1)
        self.at = min(max(self.at, 0), max(len(rest) - 1, 0))
        if self.SELECTS:
            self.top = min(self.top, self.at)
            self.top = max(self.top, self.at - room + 1)
        self.top = min(max(self.top, 0), max(len(rest) - room, 0))
        shown = rest[self.top : self.top + room]
        cursor = len(head) + self.at - self.top if self.SELECTS and rest else -1
        body.show([*head, *shown, *foot], cursor)
        self._draw_title(len(rest), room)

    def _draw_title(self, count: int, room: int) -> None:
        header = self.query_one("#header", Lines)
        where = "" if count <= room else f"{self.top + 1}-{min(self.top + room, count)} of {count}"
        start = [("kdwatch ", "dim"), (self.heading(), "head")]
        header.show([spread(start, [(where, "dim")], header.size.width)])

    def move(self, step: int) -> None:
        """Cursor or text by so many lines."""
        if self.SELECTS:
            self.at += step
        else:
            self.top += step
        self.redraw()

    def page(self) -> int:
        """Lines of one page."""
        return max(self.query_one("#body", Lines).size.height - self.HEAD_LINES - 1, 1)

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves as the arrow keys do."""
        self.move(1 if self.SELECTS else WHEEL_LINES)

    def on_mouse_scroll_up(self) -> None:
        """And back."""
        self.move(-1 if self.SELECTS else -WHEEL_LINES)

    def do_down(self) -> None:
        """Line down."""
        self.move(1)

    def do_up(self) -> None:
        """Line up."""
        self.move(-1)

    def do_page_down(self) -> None:
        """Page down."""
        self.move(self.page())

    def do_page_up(self) -> None:
        """Page up."""
        self.move(-self.page())

    def do_first(self) -> None:
        """To the first line."""
        self.move(-(10**9))

    def do_last(self) -> None:
        """To the last line."""
        self.move(10**9)
