"""Threads that call slow hardware, so that one device's seconds are not another's.

One lane serves all devices, one after the other, for the price of one hand-over between threads. A device that
holds the lane beyond the deadline keeps that thread to itself and the others go on in a new one; once it has been
quick for a while it comes back.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

log = logging.getLogger("kdwatch.meters")

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE_S = 1.0
"""How long to wait for a thread that is not stuck in a call but gets no CPU."""
QUICK_TURNS = 100
"""Turns within the deadline after which a device shares a lane again."""


class Lane(Generic[Item, Result]):
    """One thread and the items it serves."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = list(items)
        self.busy = False
        """Whether a turn is under way or its results were not taken yet."""
        self.late = False
        """Whether its last turn overran the deadline: then nobody waits for it."""
        self.quick_turns = 0
        self.turn_s = 0.0
        """Length of the last turn that ended."""
        self._lock = threading.Lock()
        self._todo: list[Item] = []
        self._current: Item | None = None
        self._since = 0.0
        self._results: list[Result] = []
        self._job: Callable[[Item], Result] | None = None
        self._go = _closed_gate()
        self._done = _closed_gate()
        threading.Thread(target=self._serve, name="sensor-lane", daemon=True).start()

    def start(self, job: Callable[[Item], Result], items: Sequence[Item]) -> None:
        """Begin a turn: `job` for each of `items`. Only while not busy."""
        self.busy = True
        self._job = job
        self._todo = list(items)
        self._go.release()

    def take(self, timeout_s: float = 0.0) -> list[Result] | None:
        """Results of the turn once it is over; None if it is not within the time."""
        if not self._done.acquire(timeout=timeout_s):
            return None
        results, self._results = self._results, []
        self.busy = False
        return results

    def stuck_s(self) -> float:
        """How long the present call has lasted; 0 between calls. A thread that waits for a CPU is not stuck."""
        with self._lock:
            return 0.0 if self._current is None else time.monotonic() - self._since

    def split(self) -> tuple[list[Item], list[Item], list[Result]]:
        """Take away every item but the one being served: those that wait, those already served and their results.
        Empty if the turn has just ended."""
        with self._lock:
            stuck = self._current
            if stuck is None:
                return [], [], []
            waiting, self._todo = self._todo, []
            results, self._results = self._results, []
            served = [i for i in self.items if i is not stuck and not any(i is w for w in waiting)]
            self.items = [stuck]
            return waiting, served, results

    def close(self) -> None:
        """Let the thread end after its present call."""
        with self._lock:
            self._job, self._todo = None, []
        with contextlib.suppress(RuntimeError):  # a turn was just begun: the thread wakes up anyway
            self._go.release()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            job, began = self._job, time.monotonic()
            if job is None:
                return
            self._turn(job)
            self.turn_s = time.monotonic() - began
            self._done.release()

    def _turn(self, job: Callable[[Item], Result]) -> None:
        while True:
            with self._lock:
                item = self._current = self._todo.pop(0) if self._todo else None
                self._since = time.monotonic()
            if item is None:
                return
            try:
                result = job(item)
            except Exception:  # a fault in a job must not end the thread: its devices would fall silent for good
                log.exception("a sensor's job failed")
                continue
            with self._lock:
                self._results.append(result)


def _closed_gate() -> threading.Lock:
    """A lock held from the start: one thread opens it, another passes. A semaphore of the library does the same at
    several times the price, and this is what a poll mostly costs."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Crew(Generic[Item, Result]):
    """All lanes of a meter. `run` is for one thread at a time."""

    def __init__(self, items: Sequence[Item], deadline_s: float) -> None:
        self._lanes: list[Lane[Item, Result]] = [Lane(items)] if items else []
        self.deadline_s = deadline_s

    @property
    def lanes(self) -> int:
        """Number of threads."""
        return len(self._lanes)

    def run(self, job: Callable[[Item], Result]) -> list[Result]:
        """`job` for every item whose last turn is over; returns what is there by the deadline, late results of
        earlier turns included. A `job` that raises is logged and has no result."""
        results: list[Result] = []
        for lane in self._lanes:
            if lane.busy:
                results += self._collect(lane, 0.0) or []
        self._merge()
        for lane in self._lanes:
            if not lane.busy:
                lane.start(job, lane.items)
        deadline = time.monotonic() + self.deadline_s
        for lane in list(self._lanes):
            results += self._await(lane, job, deadline)
        return results

    def _collect(self, lane: Lane[Item, Result], timeout_s: float) -> list[Result] | None:
        found = lane.take(timeout_s)
        if found is not None:
            lane.late = len(lane.items) == 1 and lane.turn_s > self.deadline_s
            lane.quick_turns = 0 if lane.late else lane.quick_turns + 1
        return found

    def _await(self, lane: Lane[Item, Result], job: Callable[[Item], Result], deadline: float) -> list[Result]:
        found = self._collect(lane, 0.0 if lane.late else max(0.0, deadline - time.monotonic()))
        patience = time.monotonic() + PATIENCE_S
        while found is None and not lane.late and lane.stuck_s() < self.deadline_s and time.monotonic() < patience:
            found = self._collect(lane, self.deadline_s)
        if found is not None:
            return found
        lane.late, lane.quick_turns = True, 0
        return self._isolate(lane, job) if len(lane.items) > 1 else []

    def _isolate(self, lane: Lane[Item, Result], job: Callable[[Item], Result]) -> list[Result]:
        """Move a stuck lane's other items to a lane of their own and serve those that still wait."""
        waiting, served, results = lane.split()
        if not waiting and not served:
            return self._collect(lane, 0.0) or []
        fresh: Lane[Item, Result] = Lane(waiting + served)
        self._lanes.insert(0, fresh)
        fresh.start(job, waiting)
        return results + self._await(fresh, job, time.monotonic() + self.deadline_s)

    def _merge(self) -> None:
        """Bring items that have been quick for long back into the first lane."""
        if len(self._lanes) < 2 or self._lanes[0].busy:
            return
        for lane in [x for x in self._lanes[1:] if x.quick_turns >= QUICK_TURNS and not x.busy]:
            self._lanes[0].items += lane.items
            self._lanes.remove(lane)
            lane.close()

    def close(self) -> None:
        """End the threads; one stuck in a call ends with it."""
        for lane in self._lanes:
            lane.close()
        self._lanes = []


def within(calls: Sequence[tuple[Any, Callable[[], Any]]], limit_s: float) -> dict[Any, Any]:
    """Results by name of those calls that end in time, made side by side."""
    results: dict[Any, Any] = {}

    def work(name: Any, call: Callable[[], Any]) -> None:
        results[name] = call()

    threads = [threading.Thread(target=work, args=c, daemon=True) for c in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(results)
