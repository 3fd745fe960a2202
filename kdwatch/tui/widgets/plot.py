"""The power plot as a widget: keeps what to show, asks the history only when something changed."""

from __future__ import annotations

from kdwatch.tui.history import TOTAL, PlotView
from kdwatch.tui.raster import Glyphs
from kdwatch.tui.view.plot import PlotSpec, plot_lines, sub_columns
from kdwatch.tui.widgets.lines import Lines

WINDOWS: tuple[tuple[str, float | None], ...] = (
    ("1 min", 60.0),
    ("10 min", 600.0),
    ("1 h", 3600.0),
    ("all", None),
)
"""Names and lengths in seconds of the plot's windows; None is the whole run."""

GROWTH = (10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 450.0, 600.0, 1200.0, 1800.0, 2700.0, 3600.0)
"""Lengths in seconds that a window takes while the run is shorter than it."""


class PowerPlot(Lines):
    """Draws a PlotView; the screen hands one in per tick."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.window = 1
        self.device = TOTAL

    def zoom(self, step: int) -> None:
        """Next shorter (-1) or longer (+1) window; from the shortest on to the longest, and back."""
        self.window = (self.window + step) % len(WINDOWS)

    @property
    def window_name(self) -> str:
        """The window in words."""
        name, length = WINDOWS[self.window]
        return name if length is None else f"last {name}"

    def span(self, now: float) -> tuple[float, float]:
        """First and last run time of the window that ends at `now`; see `window_span`."""
        return window_span(WINDOWS[self.window][1], now, max(self.size.width, 16) * 2)

    def columns(self, glyphs: Glyphs) -> int:
        """Columns of data that this size takes."""
        return sub_columns(self.size.width, glyphs)

    def draw(self, view: PlotView, spec: PlotSpec, glyphs: Glyphs) -> int:
        """Show a view; returns the number of rows that changed."""
        return self.show(plot_lines(view, spec, self.size.width, self.size.height, glyphs))


def window_span(length: float | None, now: float, columns: int) -> tuple[float, float]:
    """A window of `length` seconds that ends at `now`, moved by whole columns, so that the picture shifts only
    when a column is complete. A run shorter than the window is shown from its start, in steps of GROWTH."""
    if length is None:
        return 0.0, max(now, 1.0)
    if now < length:
        return 0.0, min(next((s for s in GROWTH if s >= now), length), length)
    step = length / columns
    end = (int(now / step) + 1) * step
    return end - length, end
