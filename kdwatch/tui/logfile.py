"""A stage's log: its last lines for the Run screen, any line for the Log screen. Text comes out harmless."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO

from kdwatch.rundir.text import clean

TAIL_BYTES = 1 << 16
"""How far from the end the tail looks."""

LINE_LIMIT = 10_000
"""Characters of one line that can be shown."""

INDEX_CHUNK = 1 << 22
"""Bytes indexed at a time; between two chunks the reader can stop."""


def harmless(raw: bytes) -> str:
    """One line for a terminal: what a carriage return would have overwritten is left out, tabs are spaces."""
    raw = raw.rstrip(b"\r\n")
    if b"\r" in raw:
        raw = next((part for part in reversed(raw.split(b"\r")) if part.strip()), b"")
    text = raw[: LINE_LIMIT * 4].decode("utf-8", "replace").expandtabs(4)
    lead = len(text) - len(text.lstrip(" "))
    return " " * min(lead, 200) + clean(text, LINE_LIMIT)


class LogFile:
    """Lines of one file that may grow, shrink, or not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts = array("Q", [0])
        self._indexed = 0
        self._tail: tuple[tuple[int, int], list[str]] = ((-1, -1), [])

    def tail(self, lines: int) -> list[str]:
        """The last `lines` lines; the same list object while the file does not change."""
        try:
            info = self.path.stat()
        except OSError:
            return []
        state = (info.st_size, info.st_mtime_ns)
        if state != self._tail[0]:
            self._tail = (state, self._read_tail(info.st_size))
        return self._tail[1][-lines:]

    def _read_tail(self, size: int) -> list[str]:
        try:
            with self.path.open("rb") as f:
                f.seek(max(size - TAIL_BYTES, 0))
                data = f.read(TAIL_BYTES)
        except OSError:
            return []
        lines = data.split(b"\n")
        if size > TAIL_BYTES:
            lines = lines[1:]
        if lines and not lines[-1]:
            lines.pop()
        return [harmless(line) for line in lines]

    def grow(self) -> bool:
        """Index the next piece of the file; False when all there is is indexed."""
        try:
            size = self.path.stat().st_size
            if size < self._indexed:
                self._starts, self._indexed = array("Q", [0]), 0
            if size == self._indexed:
                return False
            with self.path.open("rb") as f:
                f.seek(self._indexed)
                data = f.read(INDEX_CHUNK)
        except OSError:
            return False
        at = data.find(b"\n")
        while at >= 0:
            self._starts.append(self._indexed + at + 1)
            at = data.find(b"\n", at + 1)
        self._indexed += len(data)
        return bool(data)

    @property
    def count(self) -> int:
        """Lines indexed so far; an unfinished last one counts."""
        return len(self._starts) - (1 if self._starts[-1] >= self._indexed else 0)

    def lines(self, first: int, end: int) -> list[str]:
        """Lines `first` to `end` (not included), by number from 0."""
        first, end = max(first, 0), min(end, self.count)
        if first >= end:
            return []
        out = []
        try:
            with self.path.open("rb") as f:
                for number in range(first, end):
                    stop = self._starts[number + 1] if number + 1 < len(self._starts) else self._indexed
                    f.seek(self._starts[number])
                    out.append(harmless(f.read(min(stop - self._starts[number], LINE_LIMIT * 4))))
        except OSError:
            return []
        return out

    def find(self, text: str, after: int, *, backwards: bool = False) -> int | None:
        """Number of the next line that holds `text` (case does not matter), around the end; None if none does."""
        needle = text.encode().lower()
        if not needle or not self.count:
            return None
        here = self._starts[min(max(after, 0), self.count - 1)]
        beyond = self._starts[after + 1] if 0 <= after < len(self._starts) - 1 else self._indexed
        spans = [(0, here), (here, self._indexed)] if backwards else [(beyond, self._indexed), (0, beyond)]
        try:
            with self.path.open("rb") as f:
                for begin, end in spans:
                    at = _search(f, needle, begin, end, backwards)
                    if at is not None:
                        return bisect_right(self._starts, at) - 1
        except OSError:
            return None
        return None


def _search(f: BinaryIO, needle: bytes, begin: int, end: int, backwards: bool) -> int | None:
    """Offset of the first (or last) occurrence that starts in [begin, end)."""
    pieces = list(range(begin, end, INDEX_CHUNK))
    for start in reversed(pieces) if backwards else pieces:
        f.seek(start)
        data = f.read(min(INDEX_CHUNK, end - start) + len(needle) - 1).lower()
        at = data.rfind(needle) if backwards else data.find(needle)
        if at >= 0:
            return start + at
    return None
