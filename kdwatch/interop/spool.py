"""Pairs of doubles in bounded memory: small sets stay in memory, large ones go to an unnamed temporary file."""

from __future__ import annotations

import heapq
import tempfile
import weakref
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

BLOCK = 131_072
"""Pairs held in memory before they are sorted and written: 2 MiB."""
HELD = 2_000_000
"""Pairs that all spools together hold in memory, about: beyond that those with a few go to the file too."""
SMALLEST = 1_024
READ = 4_096
"""Pairs read at a time from each block while merging."""

Columns = tuple["array[float]", "array[float]"]


class _Pool:
    """What the spools of a process share while there are any: one file, and how much they hold."""

    def __init__(self) -> None:
        self.file: IO[bytes] | None = None
        self.held = 0

    def write(self, *columns: array[float]) -> int:
        """Append columns to the file; returns where they begin."""
        if self.file is None:
            self.file = tempfile.TemporaryFile(prefix="kdwatch-import-")  # noqa: SIM115  (lives as long as the spools)
        offset = self.file.seek(0, 2)
        for column in columns:
            column.tofile(self.file)
        return offset

    def doubles(self, offset: int, count: int) -> array[float]:
        assert self.file is not None
        self.file.seek(offset)
        values = array("d")
        values.frombytes(self.file.read(8 * count))
        return values


_pools: weakref.WeakValueDictionary[str, _Pool] = weakref.WeakValueDictionary()


def _pool() -> _Pool:
    pool = _pools.get("")
    if pool is None:
        pool = _pools[""] = _Pool()
    return pool


class Spool:
    """An external stable sort by the first of each pair."""

    def __init__(self) -> None:
        self._pool = _pool()
        self._count = 0
        self._first = array("d")
        self._second = array("d")
        self._blocks: list[tuple[int, int, float, float]] = []
        """Offset in bytes, pairs, first and last key of each sorted block."""
        self._last = float("-inf")
        self._in_order = True

    def __len__(self) -> int:
        return self._count

    def add(self, key: float, value: float) -> None:
        """Append a pair."""
        if key < self._last:
            self._in_order = False
        self._last = key
        self._first.append(key)
        self._second.append(value)
        self._took(1)

    def extend(self, keys: Sequence[float], values: Sequence[float]) -> None:
        """Append pairs whose keys rise or stay, from the last one added on."""
        for start in range(0, len(keys), BLOCK):
            self._first.extend(keys[start : start + BLOCK])
            self._second.extend(values[start : start + BLOCK])
            self._last = self._first[-1]
            self._took(len(keys[start : start + BLOCK]))

    def _took(self, pairs: int) -> None:
        self._count += pairs
        pool = self._pool
        pool.held += pairs
        if len(self._first) >= BLOCK or (pool.held > HELD and len(self._first) >= SMALLEST):
            self._spill()

    def sorted_blocks(self) -> Iterator[Columns]:
        """All pairs in order of the first, some thousand at a time; equal keys in the order they came."""
        if not self._blocks:
            if not self._in_order:
                self._sort()
            for start in range(0, len(self._first), READ):
                yield self._first[start : start + READ], self._second[start : start + READ]
            return
        if len(self._first):
            self._spill()
        if self._blocks_follow_each_other():
            for block in self._blocks:
                yield from self._columns(block)
        else:
            yield from self._merged()

    def sorted_pairs(self) -> Iterator[tuple[float, float]]:
        """The same, pair by pair."""
        return (pair for keys, values in self.sorted_blocks() for pair in zip(keys, values, strict=True))

    def _merged(self) -> Iterator[Columns]:
        pairs = heapq.merge(*(self._pairs(block) for block in self._blocks), key=lambda pair: pair[0])
        while found := list(islice(pairs, READ)):
            keys, values = zip(*found, strict=True)
            yield array("d", keys), array("d", values)

    def _sort(self) -> None:
        order = sorted(range(len(self._first)), key=self._first.__getitem__)
        self._first = array("d", [self._first[i] for i in order])
        self._second = array("d", [self._second[i] for i in order])
        self._in_order = True
        self._last = self._first[-1]

    def _spill(self) -> None:
        last = self._last
        if not self._in_order:
            self._sort()
        offset = self._pool.write(self._first, self._second)
        self._pool.held -= len(self._first)
        self._blocks.append((offset, len(self._first), self._first[0], self._first[-1]))
        self._first = array("d")
        self._second = array("d")
        self._last, self._in_order = last, True

    def _blocks_follow_each_other(self) -> bool:
        return all(a[3] <= b[2] for a, b in zip(self._blocks, self._blocks[1:], strict=False))

    def _pairs(self, block: tuple[int, int, float, float]) -> Iterator[tuple[float, float]]:
        for keys, values in self._columns(block):
            yield from zip(keys, values, strict=True)

    def _columns(self, block: tuple[int, int, float, float]) -> Iterator[Columns]:
        offset, pairs, _, _ = block
        for start in range(0, pairs, READ):
            count = min(READ, pairs - start)
            yield self._pool.doubles(offset + 8 * start, count), self._pool.doubles(offset + 8 * (pairs + start), count)
