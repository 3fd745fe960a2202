"""Compare: the runs marked on the Runs screen; without marks, the newest that are finished."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual import work
from textual.message import Message

from kdwatch.rundir.errors import UsageProblem
from kdwatch.tui.fmt import Units
from kdwatch.tui.runlist import find_runs
from kdwatch.tui.screens.listing import ListingScreen
from kdwatch.tui.view.compare import Report, columns_that_fit, compare_lines
from kdwatch.tui.view.line import Line

WITHOUT_MARKS = 3
"""Newest runs that are shown when none is marked."""


class CompareScreen(ListingScreen):
    """Reports are made beside the screen."""

    NAME = "compare"

    class Ready(Message):
        """Reports of the runs, and lines about those that could not be read."""

        def __init__(self, paths: list[Path], reports: list[Report], problems: list[str]) -> None:
            super().__init__()
            self.paths, self.reports, self.problems = paths, reports, problems

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[Path] | None = None
        self.reports: list[Report] = []
        self.problems: list[str] = []
        self.first = 0

    def on_screen_resume(self) -> None:
        """Read again where other runs were marked."""
        super().on_screen_resume()
        if self.paths is None or (self.kd.compared and self.paths != self.kd.compared):
            self.do_reload()

    def do_reload(self) -> None:
        """Read the reports again."""
        self.paths = None
        self._read(list(self.kd.compared))
        self.redraw()

    @work(thread=True, exclusive=True, group="compare")
    def _read(self, paths: list[Path]) -> None:
        chosen = paths or [path for path, _ in find_runs()[:WITHOUT_MARKS]]
        reports, problems = read_reports(chosen)
        self.post_message(self.Ready(chosen, reports, problems))

    def on_compare_screen_ready(self, message: Ready) -> None:
        """Show them."""
        self.paths, self.reports, self.problems = message.paths, message.reports, message.problems
        self.first = 0
        self.redraw()

    def heading(self) -> str:
        hidden = len(self.reports) - columns_that_fit(self.size.width)
        if hidden > 0:
            return f"Compare  left/right: {hidden} more"
        return "Compare" if self.kd.compared else "Compare  newest runs (mark others on screen 1 with m)"

    def content(self, width: int) -> list[Line]:
        if self.paths is None:
            return [(("reading the runs", "dim"),)]
        lines: list[Line] = [((text, "bad"),) for text in self.problems]
        if not self.reports:
            return [*lines, (("no runs to compare: mark two to four on screen 1 with m", "dim"),)]
        units = Units(self.kd.units_name if self.kd.units_name in ("J", "Wh", "kWh") else "kWh")
        lines += compare_lines(self.reports, width, units, self.kd.glyphs, self.first)
        if len(self.reports) == 1:
            lines += [(), (("nothing to compare it with: mark two to four runs on screen 1 with m", "dim"),)]
        return lines

    def do_right(self) -> None:
        """Further runs, where not all fit."""
        hidden = len(self.reports) - columns_that_fit(self.size.width)
        self.first = min(self.first + 1, max(hidden, 0))
        self.redraw()

    def do_left(self) -> None:
        """Back to the first runs."""
        self.first = max(self.first - 1, 0)
        self.redraw()

    def do_copy(self) -> None:
        """Copy the command that prints this."""
        self.kd.copy("kdwatch compare " + " ".join(p.name for p in self.paths or []))


def read_reports(paths: Sequence[Path]) -> tuple[list[Any], list[str]]:
    """Reports of run directories, and one line for each that cannot be read."""
    from kdwatch.ledger.report import build_report

    reports, problems = [], []
    for path in paths:
        try:
            reports.append(build_report(path))
        except UsageProblem as problem:
            problems.append(str(problem))
    return reports, problems
