"""Running a sweep: one point after the other, each a run of its own; what is done already is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from kdwatch.pipeline.artifacts import ArtifactStore
from kdwatch.pipeline.hashing import HashMemory
from kdwatch.pipeline.launch import start_run
from kdwatch.pipeline.spawn import check_home
from kdwatch.pipeline.sweep import Point, Sweep
from kdwatch.pipeline.sweep_done import KnownRuns, point_key
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.reader import RunReader

LOCK_POLL_S = 0.1


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
    """It was complete before its turn came."""


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

    Two points that do the same are run once, and so is one that another sweep runs at the same time. Raises
    UsageProblem where a run cannot be started, Stopped from `watcher`.
    """
    here: dict[str, Path] = {}
    for number, (point, key, found) in enumerate(found_points(sweep, again), 1):
        run = here.get(key) or (found[0] if found and found[1] == "completed" else None)
        if run is not None and RunReader(run).status() == "completed":
            yield Outcome(number, point, run, "completed", skipped=True)
            continue
        run = here[key] = watcher.start(partial(_start_or_join, sweep, point, key, again))
        watcher.follow(run)
        yield Outcome(number, point, run, RunReader(run).status(), skipped=False)


def _start_or_join(sweep: Sweep, point: Point, key: str, again: bool) -> Path:
    """Start the run of a point, or take the one that another process has started meanwhile or completed."""
    check_home()
    lock = ArtifactStore().lock("point", key)
    try:
        while not lock.try_acquire():
            time.sleep(LOCK_POLL_S)
    except OSError as error:
        raise UsageProblem(f"{lock.path}: cannot be made ({error.strerror}): free space or set KDWATCH_HOME") from None
    try:
        found = None if again else KnownRuns().find(key)
        if found is not None:
            return found[0]
        return start_run(point.recipe, sweep={"name": sweep.name, "key": key, "settings": point.settings})
    finally:
        lock.release()
