"""Runs, the home screen: own runs and the samples; enter opens one, p plays it."""

from __future__ import annotations

from pathlib import Path

from textual import work
from textual.message import Message

from kdwatch.rundir.errors import UsageProblem
from kdwatch.tui.fmt import Units
from kdwatch.tui.runlist import RunRow, find_runs, read_row
from kdwatch.tui.screens.listing import ListingScreen
from kdwatch.tui.view.line import Line
from kdwatch.tui.view.runs import BESIDE_SAMPLES, FIRST_STEPS, head_line, run_line

MOST_MARKED = 4
"""Runs that Compare can show."""


class RunsScreen(ListingScreen):
    """A list that fills while runs are read."""

    NAME = "runs"
    SELECTS = True
    HEAD_LINES = 1

    class Found(Message):
        """One more run was read; `last` ends a reading."""

        def __init__(self, row: RunRow | None, reading: int) -> None:
            super().__init__()
            self.row, self.reading = row, reading

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[RunRow] = []
        self.marked: list[Path] = []
        self._reading = 0
        self._new: list[RunRow] = []
        self.busy = True

    def on_screen_resume(self) -> None:
        """Read the list again each time it is shown."""
        super().on_screen_resume()
        self.do_reload()

    def do_reload(self) -> None:
        """Read all runs again; the old list stays until the new one is whole, unless there was none."""
        self._reading += 1
        self._new, self.busy = [], True
        self._read(self._reading)

    @work(thread=True, exclusive=True, group="runs")
    def _read(self, reading: int) -> None:
        for path, sample in find_runs():
            if reading != self._reading:
                return
            self.post_message(self.Found(read_row(path, sample), reading))
        self.post_message(self.Found(None, reading))

    def on_runs_screen_found(self, message: Found) -> None:
        """Add the row, or end the reading."""
        if message.reading != self._reading:
            return
        if message.row is not None:
            self._new.append(message.row)
            if len(self._new) > len(self.rows):
                self.rows = list(self._new)
        else:
            self.rows, self.busy = self._new, False
        self.redraw()

    def heading(self) -> str:
        if self.busy and not self.rows:
            return "Runs  reading"
        return f"Runs  {len(self.marked)} marked" if self.marked else "Runs"

    def content(self, width: int) -> list[Line]:
        if not self.rows:
            return [(("reading the runs", "dim"),)] if self.busy else list(FIRST_STEPS)
        units = self._units()
        lines = [head_line(width, units)]
        return lines + [run_line(r, r.path in self.marked, width, units) for r in self.rows]

    def foot(self) -> list[Line]:
        return list(BESIDE_SAMPLES) if self.rows and all(r.sample for r in self.rows) and not self.busy else []

    def _units(self) -> Units:
        """Energy of runs with different grids: joules to kWh only."""
        name = self.kd.units_name
        return Units(name if name in ("J", "Wh", "kWh") else "kWh")

    @property
    def row(self) -> RunRow | None:
        """The selected run."""
        return self.rows[self.at] if 0 <= self.at < len(self.rows) else None

    def do_open(self) -> None:
        """Open the selected run as it is."""
        self._show(replay=False)

    def do_play(self) -> None:
        """Play the selected run from its start."""
        self._show(replay=True)

    def _show(self, *, replay: bool) -> None:
        if self.row is None:
            return
        try:
            self.kd.open_run(self.row.path, replay=replay)
        except UsageProblem as problem:
            self.kd.tell(str(problem), "error")
            return
        self.kd.show("run")

    def do_mark(self) -> None:
        """Mark for Compare, or take the mark off."""
        if self.row is None:
            return
        path = self.row.path
        if path in self.marked:
            self.marked.remove(path)
        elif len(self.marked) >= MOST_MARKED:
            self.kd.tell(f"Compare shows up to {MOST_MARKED} runs: take a mark off first", "warning")
        else:
            self.marked.append(path)
        self.kd.compared = list(self.marked)
        self.move(1)

    def do_copy(self) -> None:
        """Copy the command that shows the selected run."""
        if self.row is not None:
            self.kd.copy(f"kdwatch watch {self.row.run_id}")
