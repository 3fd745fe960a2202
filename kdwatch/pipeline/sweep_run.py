"""Running a sweep: one point after the other, each a run of its own; what is done already is not done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from kdwatch.pipeline.hashing import HashMemory
from kdwatch.pipeline.launch import start_run
from kdwatch.pipeline.sweep import Point, Sweep
from kdwatch.pipeline.sweep_done import KnownRuns, point_key
from kdwatch.rundir.reader import RunReader


class Stopped(Exception):
    """The person ends the sweep; `code` is the exit code (130 or 143)."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


@dataclass(frozen=True)
class Outcome:
    """What became of one point."""

    number: int
    """From 1."""
    point: Point
    run: Path
    status: str
    """Status of the run."""
    skipped: bool
    """It was completed before this sweep began."""


class Watcher(Protocol):
    """Who waits for the runs."""

    def start(self, begin: Callable[[], Path]) -> Path:
        """Call `begin`, which starts a run, and return its directory."""

    def follow(self, run: Path) -> None:
        """Return when the run has ended. Raises Stopped where the person ends the sweep."""


def found_points(sweep: Sweep, again: bool = False) -> list[tuple[Point, str, tuple[Path, str] | None]]:
    """(point, key, what there is of it: run and status) of each point. `again`: nothing counts as done."""
    memory = HashMemory()
    known = KnownRuns()
    keys = [point_key(point.recipe, memory) for point in sweep.points]
    return [(point, key, None if again else known.find(key)) for point, key in zip(sweep.points, keys, strict=True)]


def run_points(sweep: Sweep, watcher: Watcher, again: bool = False) -> Iterator[Outcome]:
    """Run the points in order; each outcome as soon as it is there. A point that fails does not end the sweep.

    Two points that do the same are run once. Raises UsageProblem where a run cannot be started, Stopped from `watcher`.
    """
    done: dict[str, tuple[Path, str]] = {}
    for number, (point, key, found) in enumerate(found_points(sweep, again), 1):
        if found is None and key in done:
            found = done[key]
        if found and found[1] == "completed":
            yield Outcome(number, point, found[0], "completed", skipped=True)
            continue
        goes_on = found is not None and found[1] == "running"
        run = found[0] if found and goes_on else watcher.start(partial(_start, sweep, point, key))
        watcher.follow(run)
        status = RunReader(run).status()
        done[key] = (run, status)
        yield Outcome(number, point, run, status, skipped=False)


def _start(sweep: Sweep, point: Point, key: str) -> Path:
    return start_run(point.recipe, sweep={"name": sweep.name, "key": key, "settings": point.settings})
