"""Appending lines to a file that may become unwritable, and writing whole files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

HELD_BYTES = 16 << 20
"""How much one file holds in memory while the disk refuses it; beyond that the oldest lines go."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all: temporary file, fsync, rename. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


class AppendFile:
    """A file of lines. Each `write` is one system call; what the disk refuses waits in memory, in order.

    A short write leaves the rest of its line first in the queue, so that the file holds whole lines again
    once there is space. `on_error` hears of the first refusal of each spell.
    """

    def __init__(self, path: Path, on_error: Callable[[Path, OSError], None], held_bytes: int = HELD_BYTES) -> None:
        self.path = path
        self.size = 0
        """Bytes given to this file so far, those that wait included."""
        self.dropped = 0
        """Lines lost because memory for waiting lines ran out."""
        self._on_error = on_error
        self._limit = held_bytes
        self._fd = -1
        self._held = b""
        self._mid_line = False
        self._failing = False

    def write(self, data: bytes) -> bool:
        """Append whole lines; True when nothing waits afterwards."""
        self.size += len(data)
        if self._held:
            data = self._held + data
        try:
            if self._fd < 0:
                self._open()
            done = os.write(self._fd, data) if data else 0
        except OSError as problem:
            self._hold(data)
            self._report(problem)
            return False
        if done < len(data):
            self._mid_line = data[done - 1 : done] != b"\n" if done else self._mid_line
            self._hold(data[done:])
            self._report(OSError(28, "No space left on device"))
            return False
        self._held = b""
        self._mid_line = self._failing = False
        return True

    @property
    def waiting(self) -> bool:
        """Whether data is in memory that the disk has refused."""
        return bool(self._held)

    def retry(self) -> bool:
        """Try again what waits; True when nothing waits afterwards."""
        return self.write(b"") if self._held else True

    def close(self) -> None:
        """Try a last time, then close. Idempotent."""
        self.retry()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)

    def _hold(self, data: bytes) -> None:
        excess = len(data) - self._limit
        if excess > 0:
            head = data.index(b"\n") + 1 if self._mid_line else 0
            cut = data.find(b"\n", head + excess) + 1 or len(data)
            self.dropped += data.count(b"\n", head, cut)
            data = data[:head] + data[cut:]
        self._held = data

    def _report(self, problem: OSError) -> None:
        if not self._failing:
            self._failing = True
            self._on_error(self.path, problem)
