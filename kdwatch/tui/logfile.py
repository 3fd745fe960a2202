"""A stage's log: its last lines for the Run screen, any line for the Log screen. Text comes out harmless."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from pathlib import Path

from kdwatch.rundir.text import clean
from kdwatch.tui.logparts import LogParts, Read

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
    """Lines of one log that may grow, shrink, be kept in parts, or not exist yet."""

    def __init__(self, path: Path) -> None:
        self._parts = LogParts(path)
        self._starts = array("Q", [0])
        self._indexed = 0
        self._tail: tuple[tuple[int, int], list[str]] = ((-1, -1), [])

    def tail(self, lines: int) -> list[str]:
        """The last `lines` lines; the same list object while the log does not change."""
        self._look()
        state = (self._parts.size, self._parts.changed_ns)
        if state != self._tail[0]:
            self._tail = (state, self._read_tail(state[0]))
        return self._tail[1][-lines:]

    def _read_tail(self, size: int) -> list[str]:
        with self._parts.opened() as read:
            data = read(max(size - TAIL_BYTES, 0), TAIL_BYTES)
        lines = data.split(b"\n")
        if size > TAIL_BYTES:
            lines = lines[1:]
        if lines and not lines[-1]:
            lines.pop()
        return [harmless(line) for line in lines]

    def _look(self) -> None:
        """See what there is, and forget of the index what no longer holds."""
        self._parts.look()
        if self._parts.fixed < self._indexed:
            self._indexed = self._parts.fixed
            del self._starts[max(bisect_right(self._starts, self._indexed), 1) :]

    def grow(self) -> bool:
        """Index the next piece of the log; False when all there is is indexed."""
        self._look()
        with self._parts.opened() as read:
            data = read(self._indexed, INDEX_CHUNK)
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
        with self._parts.opened() as read:
            spans = (self._span(number) for number in range(first, end))
            return [harmless(read(start, min(stop - start, LINE_LIMIT * 4))) for start, stop in spans]

    def _span(self, number: int) -> tuple[int, int]:
        """Offsets of a line's first byte and of the end."""
        stop = self._starts[number + 1] if number + 1 < len(self._starts) else self._indexed
        return self._starts[number], stop

    def find(self, text: str, after: int, *, backwards: bool = False) -> int | None:
        """Number of the next line that holds `text` (case does not matter), around the end; None if none does."""
        needle = text.encode().lower()
        if not needle or not self.count:
            return None
        here = self._starts[min(max(after, 0), self.count - 1)]
        beyond = self._starts[after + 1] if 0 <= after < len(self._starts) - 1 else self._indexed
        spans = [(0, here), (here, self._indexed)] if backwards else [(beyond, self._indexed), (0, beyond)]
        with self._parts.opened() as read:
            for begin, end in spans:
                at = _search(read, needle, begin, end, backwards)
                if at is not None:
                    return bisect_right(self._starts, at) - 1
        return None


def _search(read: Read, needle: bytes, begin: int, end: int, backwards: bool) -> int | None:
    """Offset of the first (or last) occurrence that starts in [begin, end)."""
    pieces = list(range(begin, end, INDEX_CHUNK))
    for start in reversed(pieces) if backwards else pieces:
        data = read(start, min(INDEX_CHUNK, end - start) + len(needle) - 1).lower()
        at = data.rfind(needle) if backwards else data.find(needle)
        if at >= 0:
            return start + at
    return None
