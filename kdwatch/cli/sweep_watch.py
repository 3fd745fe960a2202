"""Following the runs of a sweep, and what Ctrl-C and TERM mean meanwhile."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from kdwatch.cli import common
from kdwatch.pipeline.sweep_run import Stopped

POLL_S = 0.5
LEAVE_S = 10.0
"""How long a recorder may take to go after its run's end."""


class Watcher:
    """Waits for runs. Ctrl-C and TERM stop the current run, a second one leaves it to itself; between runs they end
    the sweep at once. While a run is being started they wait for it, so that none goes on unseen."""

    def __init__(self, live: bool) -> None:
        self.live = live
        self._busy = False
        self._asked = threading.Event()
        self._count = 0
        self._code = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Watcher:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._code = self._code or 128 + number
        if not self._busy:
            raise Stopped(self._code)
        self._count += 1
        self._asked.set()

    def start(self, begin: Callable[[], Path]) -> Path:
        """Start a run; a signal meanwhile takes effect in `follow`, which must come next."""
        self._busy = True
        try:
            return begin()
        except BaseException:
            self._busy = False
            raise

    def follow(self, run: Path) -> None:
        """Wait for the end of a run. Raises Stopped where a signal came."""
        self._busy = True
        common.note(f"run {run.name}")
        try:
            self._wait(run)
        finally:
            self._busy = False
        if self._count:
            raise Stopped(self._code)

    def _wait(self, run: Path) -> None:
        from kdwatch.rundir.reader import RunReader

        reader, show, heard = RunReader(run), _live_line(run) if self.live else _nothing, 0
        while reader.status() == "running":
            if self._count > heard:
                heard = self._count
                if heard > 1:
                    common.note(f"left; the run may still be ending: kdwatch watch {run.name}")
                    return
                _ask_to_stop(run, self._code)
            show()
            self._asked.wait(POLL_S)
            self._asked.clear()
        if self.live:
            sys.stderr.write("\r\x1b[K")
        limit = time.monotonic() + LEAVE_S
        while reader.alive() and time.monotonic() < limit:  # else the next run would see it as a neighbour
            time.sleep(0.05)


def _nothing() -> None:
    """Shows no line."""


def _live_line(run: Path) -> Callable[[], None]:
    """A function that rewrites one line about the run."""
    import shutil

    from kdwatch.settings import load
    from kdwatch.tui.feed import RunFeed
    from kdwatch.tui.plain import status_line, units_of

    feed, settings = RunFeed(run), load()

    def show() -> None:
        now = feed.frame()
        width = shutil.get_terminal_size((80, 24)).columns - 1
        sys.stderr.write("\r\x1b[K" + status_line(now, units_of(settings, now))[:width])
        sys.stderr.flush()

    return show


def _ask_to_stop(run: Path, code: int) -> None:
    from kdwatch.rundir import control

    common.note("stopping the run (again: leave it to itself)")
    control.request(run, "stop", exit_code=code)
