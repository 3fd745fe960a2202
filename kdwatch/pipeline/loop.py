"""The recorder's event loop: file descriptors, signals, and things to do now and then; one thread."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger("kdwatch.recorder")

TOGETHER = 0.3
"""A task that is due within this share of its period is done now, with the others: every wake-up costs."""


class Loop:
    """Runs callbacks. A callback that raises is logged and does not end the loop."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._tasks: list[list[Any]] = []
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._drain_wake)
        self._on_signal: Callable[[int], None] | None = None

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back when `fd` is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching; one that is not watched is no error."""
        try:
            self._selector.unregister(fd)
        except (KeyError, ValueError):
            pass

    def every(self, period_s: float, call: Callable[[], None]) -> None:
        """Call now and then, at least `period_s` apart."""
        self._tasks.append([time.monotonic() + period_s, period_s, call])

    def catch(self, signals: Iterable[int], callback: Callable[[int], None]) -> None:
        """Take signals in the loop. Main thread only."""
        self._on_signal = callback
        for number in signals:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)

    def wake(self) -> None:
        """Make the loop look at its condition; from any thread."""
        try:
            os.write(self._wake_w, b"\0")
        except OSError:
            pass

    def run_until(self, finished: Callable[[], bool], limit_s: float | None = None) -> bool:
        """Serve until `finished`; False if the time limit came first."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while not finished():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            self._serve(now, deadline)
        return True

    def _serve(self, now: float, deadline: float | None) -> None:
        until = min([task[0] for task in self._tasks], default=now + 1.0)
        if deadline is not None:
            until = min(until, deadline)
        for key, _ in self._selector.select(max(0.0, until - now)):
            self._call(key.data)
        now = time.monotonic()
        for task in self._tasks:
            if now + TOGETHER * task[1] >= task[0]:
                task[0] = now + task[1]
                self._call(task[2])

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("in the recorder's loop")

    def _drain_wake(self) -> None:
        try:
            data = os.read(self._wake_r, 4096)
        except BlockingIOError:
            return
        for number in data:
            if number and self._on_signal:
                self._on_signal(number)
