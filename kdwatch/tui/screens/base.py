"""What all screens share: a footer of keys, the too-small line, where a key's action is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.geometry import Offset, Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from kdwatch.tui.frame import Frame
from kdwatch.tui.keys import Key
from kdwatch.tui.layout import MIN_HEIGHT, MIN_WIDTH, Place
from kdwatch.tui.view.line import cut
from kdwatch.tui.widgets.keybar import KeyBar
from kdwatch.tui.widgets.lines import Lines, filtered

if TYPE_CHECKING:
    from kdwatch.tui.app import KdwatchApp


class KdScreen(Screen[None]):
    """A screen of kdwatch. A key with the id `x` calls `do_x` of the screen, else of the app."""

    NAME: ClassVar[str] = ""
    """Name in the table of keys."""
    AUTO_FOCUS = ""
    ready = False
    """Its parts are there; frames may come before that."""

    @property
    def kd(self) -> KdwatchApp:
        """The app, with its own type."""
        return self.app  # type: ignore[return-value]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The empty rows behind the parts: one strip for all, where Textual styles each anew for every picture."""
        return [Strip.blank(crop.width, filtered(self.rich_style, self))] * crop.height

    def compose(self) -> ComposeResult:
        yield from self.parts()
        yield KeyBar(id="footer")
        yield Lines(id="too-small")

    def parts(self) -> ComposeResult:
        """The widgets of this screen; each is placed by `places`."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Place the parts."""
        self.ready = True
        self._whole = len(self.query(".part"))
        self.lay_out()

    def on_resize(self) -> None:
        """Place the parts again."""
        self.lay_out()

    def on_lines_resized(self) -> None:
        """A part has its new size: draw for it."""
        self.redraw()

    def on_screen_resume(self) -> None:
        """Shown again: bring the picture up to date."""
        self.lay_out()
        self.refresh_keys()

    def lay_out(self) -> None:
        """Put every part in its place, or show only the line that asks for more room."""
        width, height = self.size
        if not width or not height or not self.ready:
            return
        places = self.places(width, height) if width >= MIN_WIDTH and height >= MIN_HEIGHT else None
        small = self.query_one("#too-small", Lines)
        small.display = places is None
        for widget in self.query(".part, #footer").results(Widget):
            place = (places or {}).get(widget.id or "")
            widget.display = place is not None and place.height > 0 and place.width > 0
            if place is not None and widget.display:
                _put(widget, place)
        if places is None:
            _put(small, Place(0, 0, width, 1))
            text = f"too small: {width}x{height}, needs {MIN_WIDTH}x{MIN_HEIGHT}; q quits"
            small.show([((cut(text, width), "warn"),)])
        else:
            self.call_after_refresh(self.redraw)

    def places(self, width: int, height: int) -> dict[str, Place]:
        """Places by widget id: header line, one body, footer."""
        return {
            "header": Place(0, 0, width, 1),
            "body": Place(0, 2, width, height - 3),
            "footer": Place(0, height - 1, width, 1),
        }

    def refresh_keys(self) -> None:
        """Fill the footer."""
        self.query_one(KeyBar).set_keys(self.hinted(self.kd.keys_now(self.NAME)))

    def hinted(self, keys: list[Key]) -> list[Key]:
        """Those of the keys that the footer shows."""
        return keys

    def show_frame(self, frame: Frame) -> None:
        """A new frame has come while this screen is shown."""

    def guarded(self, draw: Callable[..., None], *arguments: Any) -> None:
        """Draw, unless the parts are not there yet or no more: frames come while a screen begins and ends."""
        if not self.ready:
            return
        try:
            draw(*arguments)
        except NoMatches:
            if len(self.query(".part")) == self._whole:
                raise

    def redraw(self) -> None:
        """Draw again from what is known, if the parts are there."""
        self.guarded(self.draw)

    def draw(self) -> None:
        """What `redraw` does on this screen."""
        if self.kd.frame is not None:
            self.show_frame(self.kd.frame)


def _put(widget: Widget, place: Place) -> None:
    """Absolute position and size, set only where they differ: each setting costs a layout."""
    styles = widget.styles
    offset = Offset(place.x, place.y)
    if getattr(widget, "_place", None) != place:
        widget._place = place  # type: ignore[attr-defined]
        styles.offset = offset
        styles.width, styles.height = place.width, place.height
