"""The thread that reads: it builds a frame when told to, and drops ticks that come while it works."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from kdwatch.tui.feed import RunFeed
from kdwatch.tui.frame import Frame

log = logging.getLogger(__name__)


class Ticker(threading.Thread):
    """Owns a feed: only this thread touches it, except for drawing under `feed.lock`."""

    def __init__(self, feed: RunFeed, deliver: Callable[[Frame], object]) -> None:
        super().__init__(name="kdwatch-reader", daemon=True)
        self.feed = feed
        self._deliver = deliver
        self._due = threading.Event()
        self._ended = threading.Event()
        self._asked: queue.SimpleQueue[Callable[[RunFeed], object]] = queue.SimpleQueue()

    def tick(self) -> None:
        """A frame is due; while one is in the making this is dropped into the next."""
        self._due.set()

    def ask(self, action: Callable[[RunFeed], object]) -> None:
        """Do something with the feed before the next frame, which is due at once."""
        self._asked.put(action)
        self._due.set()

    def end(self, timeout: float = 2.0) -> None:
        """Stop, and wait for the thread."""
        self._ended.set()
        self._due.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout)
        self.feed.close()

    def run(self) -> None:
        """Frames until the end."""
        while True:
            self._due.wait()
            self._due.clear()
            if self._ended.is_set():
                return
            frame = self.make()
            if frame is not None and not self._ended.is_set():
                self._deliver(frame)

    def make(self) -> Frame | None:
        """One frame, after what was asked; a disk error is shown on the next frame, never raised."""
        while True:
            try:
                self._asked.get_nowait()(self.feed)
            except queue.Empty:
                break
        try:
            return self.feed.frame()
        except OSError as problem:
            log.debug("read failed", exc_info=True)
            return self.feed.trouble(problem)
