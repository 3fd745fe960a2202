"""A stage's log of bounded size: the head and the tail are kept. Standard library only (the shim imports it)."""

from __future__ import annotations

import os

DEFAULT_CAP_B = 100_000_000
"""Bytes that the log of one stage may take on disk."""


class CappedLog:
    """Appends bytes to `path` up to half of `cap_b`; then keeps the last quarter to half in two files beside
    it (`.tail`, `.tail.old`), which `close` joins behind the head with a line that says what is missing.

    A disk that refuses (full, gone) costs log lines, never the stage: bytes that could not be written are counted.
    """

    def __init__(self, path: str, cap_b: int = DEFAULT_CAP_B) -> None:
        self.path = path
        self.head_left = cap_b // 2
        self.segment_b = cap_b // 4
        self.dropped_b = 0
        self.head = self._open(path)
        self.tail = -1
        self.tail_b = 0

    def _open(self, path: str) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return -1

    def write(self, data: bytes) -> None:
        """Take bytes of the stage's output."""
        if self.head_left > 0:
            part, data = data[: self.head_left], data[self.head_left :]
            self.head_left -= len(part)
            self._put(self.head, part)
        while data:
            if self.tail < 0 or self.tail_b >= self.segment_b:
                self._turn()
            part, data = data[: self.segment_b - self.tail_b], data[self.segment_b - self.tail_b :]
            self.tail_b += len(part)
            self._put(self.tail, part)

    def _put(self, fd: int, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            self.dropped_b += len(data)

    def _turn(self) -> None:
        """Begin a new tail segment; the one before the last is dropped."""
        tail, old = self.path + ".tail", self.path + ".tail.old"
        if self.tail >= 0:
            os.close(self.tail)
            try:
                self.dropped_b += os.stat(old).st_size  # noqa: PTH116
            except OSError:
                pass
            try:
                os.replace(tail, old)  # noqa: PTH105
            except OSError:
                pass
        self.tail, self.tail_b = self._open(tail), 0

    def close(self) -> None:
        """Join head and tail into one file; idempotent."""
        if self.tail >= 0:
            os.close(self.tail)
            self.tail = -1
            self._join()
        elif self.dropped_b and self.head >= 0:
            self._put(self.head, self._gap_line())
        if self.head >= 0:
            os.close(self.head)
            self.head = -1

    def _gap_line(self) -> bytes:
        return f"\n[kdwatch: {self.dropped_b} bytes of output are not kept here]\n".encode()

    def _join(self) -> None:
        if self.dropped_b:
            self._put(self.head, self._gap_line())
        for suffix in (".tail.old", ".tail"):
            try:
                with open(self.path + suffix, "rb") as f:  # noqa: PTH123
                    while chunk := f.read(1 << 20):
                        self._put(self.head, chunk)
                os.unlink(self.path + suffix)  # noqa: PTH108
            except OSError:
                continue
