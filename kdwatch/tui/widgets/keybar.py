"""The footer: as many keys as fit, most important first; a click on one presses it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from kdwatch.tui.keys import Key, shown
from kdwatch.tui.view.line import Line
from kdwatch.tui.widgets.lines import Lines


class KeyBar(Lines):
    """One row of key hints out of the table of keys."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys: Sequence[Key] = ()
        self._places: list[tuple[int, int, str]] = []

    def set_keys(self, keys: Sequence[Key]) -> None:
        """Show these, in order, as far as the width goes."""
        self._keys = keys
        self._fill()

    def on_resize(self) -> None:
        """Choose again what fits."""
        self._fill()

    def _fill(self) -> None:
        line, self._places = key_line(self._keys, self.size.width)
        self.show([line])

    def on_click(self, event: events.Click) -> None:
        """Call the action under the pointer."""
        for start, end, action in self._places:
            if start <= event.x < end:
                self.app.call_later(self.app.run_action, action, self.screen)


def key_line(keys: Sequence[Key], width: int) -> tuple[Line, list[tuple[int, int, str]]]:
    """The row of hints, and (first cell, end cell, action) of each."""
    pieces: list[tuple[str, str]] = []
    places = []
    x = 0
    for key in keys:
        name, label = shown(key.keys), key.label
        cells = len(name) + len(label) + 3
        if x + cells > width:
            break
        pieces += [(f" {name} ", "key"), (f"{label} ", "dim")]
        places.append((x, x + cells, f"app.key('{key.id}')"))
        x += cells
    return tuple(pieces), places
