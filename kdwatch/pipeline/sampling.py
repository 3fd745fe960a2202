"""One thread for each meter: polls on a fixed schedule, edges on request, pauses when nothing runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kdwatch.meters.base import Meter, Reading
from kdwatch.pipeline.recording import Recording

log = logging.getLogger("kdwatch.recorder")

TAIL_S = 1.2
"""Polling goes on for this long after the last stage's end: an averaged power field ends a second later."""
INFO_S = 5.0
"""Time between rows of slow facts."""


class Sampler(threading.Thread):
    """Polls one meter. A meter that raises is logged, warned of once, and polled again.

    `pausing`: whether polls stop while no stage runs (NVML: polling raises a GPU's idle power).
    Counters that wrap must be polled on.
    """

    def __init__(self, meter: Meter, recording: Recording, pausing: bool) -> None:
        super().__init__(name=f"meter-{meter.name}", daemon=True)
        self.meter = meter
        self.recording = recording
        self.pausing = pausing
        self.ready = threading.Event()
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        """Held while nobody rang; a condition of the library costs several times as much at each poll."""
        self._bell.acquire()
        self._edges_wanted = 0
        self._edges_done = 0
        self._active_until = time.monotonic() + TAIL_S
        self._ending = False
        self._info_due = 0.0
        self._info_columns: list[tuple[str, str]] | None = None
        self._devices = meter.devices

    # -- from other threads

    def request_edge(self) -> int:
        """Ask for an edge reading now; returns a ticket for `edge_done`."""
        with self._lock:
            self._edges_wanted += 1
            self._active_until = float("inf") if self._active_until == float("inf") else time.monotonic() + TAIL_S
            ticket = self._edges_wanted
        self._ring()
        return ticket

    def edge_done(self, ticket: int) -> bool:
        """Whether an edge reading that began after `ticket` was drawn is recorded."""
        return self._edges_done >= ticket

    def set_active(self, active: bool) -> None:
        """Say whether a stage or the idle baseline runs."""
        with self._lock:
            self._active_until = float("inf") if active else time.monotonic() + TAIL_S
        self._ring()

    def end(self) -> None:
        """Ask the thread to end."""
        self._ending = True
        self._ring()

    def _ring(self) -> None:
        """Wake the thread; one that is awake looks once more before it sleeps."""
        with contextlib.suppress(RuntimeError):  # it was rung already
            self._bell.release()

    # -- the thread

    def run(self) -> None:
        first = self._read(self.meter.edge)
        self.recording.open_stream(self.meter.name, self.meter.devices, first)
        self._record(first)
        self.ready.set()
        due = time.monotonic() + self.meter.period_s
        while True:
            what, due = self._wait(due)
            if what == "end":
                return
            if what == "edge":
                ticket = self._edges_wanted
                self._record(self._read(self.meter.edge))
                self._edges_done = ticket
            else:
                self._record(self._read(self.meter.poll))
                self._info()

    def _wait(self, due: float) -> tuple[str, float]:
        """Sleep until there is something to do: what, and when the next poll is due."""
        while True:
            now = time.monotonic()
            if self._edges_wanted > self._edges_done:
                return "edge", due
            if self._ending:
                return "end", due
            paused = self.pausing and now > self._active_until
            if not paused and now >= due:
                period = self.meter.period_s
                due += period
                return "poll", due if due > now else now + period
            self._bell.acquire(timeout=-1 if paused else max(0.0, due - now))

    def _read(self, call: Callable[[], Sequence[Reading]]) -> Sequence[Reading]:
        try:
            return call()
        except Exception as error:
            log.exception("meter %s", self.meter.name)
            text = f"the {self.meter.name} meter failed: {type(error).__name__}: {error}"
            self.recording.warn("meter_fault", text)
            return ()

    def _record(self, readings: Sequence[Reading]) -> None:
        try:
            self.recording.readings(self.meter.name, readings)
            if self.meter.devices is not self._devices:
                self._devices = self.meter.devices
                self.recording.renew_devices(self._devices)
            for event in self.meter.drain_events():
                t = self.recording.run_time(event.t)
                self.recording.event("sensor", t=t, device=event.key, what=event.what, text=event.text)
        except Exception:
            log.exception("recording of %s", self.meter.name)

    def _info(self) -> None:
        now = time.monotonic()
        if now < self._info_due:
            return
        self._info_due = now + INFO_S
        try:
            facts = self.meter.info()
            if facts:
                self._info_row(facts)
        except Exception:
            log.exception("slow facts of %s", self.meter.name)

    def _info_row(self, facts: dict[str, dict[str, Any]]) -> None:
        stream = "info" if self.meter.name == "nvml" else f"info_{self.meter.name}"
        if self._info_columns is None:
            self._info_columns = [(key, name) for key, values in facts.items() for name in values]
            self.recording.open_table(stream, [f"{key}_{name}" for key, name in self._info_columns])
        self.recording.row(stream, [facts.get(key, {}).get(name) for key, name in self._info_columns])


class Samplers:
    """All meters of a run."""

    def __init__(self, meters: Sequence[Meter], recording: Recording) -> None:
        self.meters = list(meters)
        self.threads = [Sampler(m, recording, pausing=m.name == "nvml") for m in self.meters]

    def start(self, limit_s: float = 2.0) -> None:
        """Start polling; returns when every meter has given its first reading, or at the limit."""
        for thread in self.threads:
            thread.start()
        deadline = time.monotonic() + limit_s
        for thread in self.threads:
            thread.ready.wait(max(0.0, deadline - time.monotonic()))

    def edge(self, wait_s: float = 0.0) -> None:
        """Read all meters around an edge; waits for the readings at most `wait_s`."""
        tickets = [(thread, thread.request_edge()) for thread in self.threads]
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and not all(t.edge_done(n) for t, n in tickets if t.is_alive()):
            time.sleep(0.005)

    def set_active(self, active: bool) -> None:
        """Say whether a stage runs."""
        for thread in self.threads:
            thread.set_active(active)

    def own_processes(self, pids: Sequence[int]) -> None:
        """Tell the meters which processes are the run's: whose CPU time counts, and who is no foreigner on a GPU."""
        for meter in self.meters:
            if hasattr(meter, "watch_pids"):
                meter.watch_pids(list(pids))
            if hasattr(meter, "own_pids"):
                meter.own_pids = set(pids)

    def stop(self, limit_s: float = 2.0) -> None:
        """End the threads and close the meters; a thread stuck in a sensor is left behind."""
        for thread in self.threads:
            thread.end()
        deadline = time.monotonic() + limit_s
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if not thread.is_alive():
                thread.meter.close()
