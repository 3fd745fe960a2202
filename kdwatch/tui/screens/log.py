"""The Log screen: the whole log of one stage, any line, with find and follow."""

from __future__ import annotations

from kdwatch.tui.frame import Frame
from kdwatch.tui.logfile import LogFile
from kdwatch.tui.screens.dialogs import AskScreen
from kdwatch.tui.screens.listing import ListingScreen
from kdwatch.tui.view.line import Line, spread, width_of
from kdwatch.tui.widgets.lines import Lines


class LogScreen(ListingScreen):
    """Reads only the lines that are shown; a long file is indexed piece by piece."""

    NAME = "log"

    def __init__(self) -> None:
        super().__init__()
        self.following = True
        self.wrapped = False
        self.column = 0
        self.stage = ""
        self._file: LogFile | None = None
        self._found = ""
        self._mark = -1

    def on_screen_resume(self) -> None:
        """Open the log of the stage that the Run screen selected."""
        self._open(self._selected_stage())
        super().on_screen_resume()

    def _selected_stage(self) -> str:
        frame, feed = self.kd.frame, self.kd.feed
        if frame is None or feed is None:
            return ""
        started = [s.name for s in frame.stages if s.start_s is not None]
        return feed.log_stage or (started[-1] if started else "")

    def _open(self, stage: str) -> None:
        if stage == self.stage and self._file is not None:
            return
        self.stage, self.top, self.column, self._mark = stage, 0, 0, -1
        self._file = LogFile(self.kd.feed.log_path(stage)) if stage and self.kd.feed else None

    def heading(self) -> str:
        return f"log {self.stage}" if self.stage else "log"

    def show_frame(self, frame: Frame) -> None:
        """New lines may be there."""
        if not self.stage:
            self._open(self._selected_stage())
        self.redraw()

    def draw(self) -> None:
        body = self.query_one("#body", Lines)
        width, height = body.size
        if not width or not height or not body.display:
            return
        more = self._file is not None and self._file.grow()
        count = self._file.count if self._file else 0
        if self.following:
            self.top = max(count - height, 0)
        self.top = min(max(self.top, 0), max(count - 1, 0))
        lines = self._file.lines(self.top, self.top + height) if self._file else []
        body.show(self._drawn(lines, width, height))
        self._draw_head(count, height)
        if more:
            self.set_timer(0.01, self.redraw)

    def _drawn(self, texts: list[str], width: int, height: int) -> list[Line]:
        if not texts:
            return [(("no output yet" if self.stage else "no stage has started yet", "dim"),)]
        lines: list[Line] = []
        for number, text in enumerate(texts, self.top):
            tone = "accent" if number == self._mark else ""
            pieces = _wrap(text, width) if self.wrapped else [text[self.column :]]
            lines += [((piece, tone),) for piece in pieces]
        return lines[-height:] if self.following else lines[:height]

    def _draw_head(self, count: int, height: int) -> None:
        header = self.query_one("#header", Lines)
        state = "following" if self.following else f"line {self.top + 1} of {count}"
        extra = "  wrapped" if self.wrapped else f"  column {self.column + 1}" if self.column else ""
        find = f"  find: {self._found}" if self._found else ""
        start = [("kdwatch ", "dim"), (self.heading(), "head"), (find, "accent")]
        header.show([spread(start, [(state + extra, "dim")], header.size.width)])

    def move(self, step: int) -> None:
        """By lines; moving stops following, the end takes it up again."""
        count = self._file.count if self._file else 0
        height = self.query_one("#body", Lines).size.height
        self.top = min(max(self.top + step, 0), max(count - 1, 0))
        self.following = self.top >= count - height and step > 0
        self.redraw()

    def do_follow(self) -> None:
        """The newest lines."""
        self.following = True
        self.redraw()

    def do_freeze(self) -> None:
        """Stand still, or follow again."""
        self.following = not self.following
        self.redraw()

    def do_wrap(self) -> None:
        """Wrap long lines or cut them."""
        self.wrapped, self.column = not self.wrapped, 0
        self.redraw()

    def do_right(self) -> None:
        """Show what is further right."""
        self.column = min(self.column + 20, 10_000)
        self.redraw()

    def do_left(self) -> None:
        """Back to the left."""
        self.column = max(self.column - 20, 0)
        self.redraw()

    def do_next_stage(self, step: int = 1) -> None:
        """The log of another stage."""
        frame = self.kd.frame
        names = [s.name for s in frame.stages] if frame else []
        if names:
            at = names.index(self.stage) if self.stage in names else 0
            self._open(names[min(max(at + step, 0), len(names) - 1)])
            self.redraw()

    def do_previous_stage(self) -> None:
        """The log of the stage before."""
        self.do_next_stage(-1)

    def do_find(self) -> None:
        """Ask for text and go to the next line that holds it."""
        ask = AskScreen("Find in this log", "text; again for the next place", lambda _: None, self._found)
        self.kd.push_screen(ask, self._find)

    def _find(self, text: str | None) -> None:
        if not text or self._file is None:
            return
        while self._file.grow():
            pass
        self._found = text
        at = self._file.find(text, self._mark if self._mark >= 0 else self.top - 1)
        if at is None:
            self.kd.tell(f"not in this log: {text}", "warning")
            return
        self._mark, self.following = at, False
        self.top = max(at - self.page() // 2, 0)
        self.redraw()


def _wrap(text: str, width: int) -> list[str]:
    """A line in pieces of at most `width` cells."""
    if width_of(text) <= width:
        return [text]
    if text.isascii():
        return [text[i : i + width] for i in range(0, len(text), width)]
    pieces, piece, cells = [], "", 0
    for char in text:
        size = width_of(char)
        if cells + size > width:
            pieces.append(piece)
            piece, cells = "", 0
        piece, cells = piece + char, cells + size
    return [*pieces, piece]
