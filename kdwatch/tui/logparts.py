"""A stage's log as one stretch of bytes, also while its recorder keeps the newest output in files beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

SEAM = b"\n[kdwatch: from here on only the newest output is kept]\n"
"""Shown between the log's head and its tail once there are two parts of this, for then output may be lost there."""

Read = Callable[[int, int], bytes]
"""Bytes from an offset on, at most so many."""


class Part(NamedTuple):
    """A file, or where there is none the SEAM, and where it stands in the whole."""

    path: Path | None
    start: int
    size: int


class LogParts:
    """`STAGE.log`; beyond half of the recipe's `log_cap`, until the stage ends, followed by `STAGE.log.tail.old` and
    `STAGE.log.tail`, of which the second takes the first one's place when it is full. Any of them may be missing."""

    def __init__(self, path: Path) -> None:
        self._paths = (path, path.with_name(path.name + ".tail.old"), path.with_name(path.name + ".tail"))
        self._parts: list[Part] = []
        self._files: tuple[int | None, ...] = (None, None, None, None)
        self.size = 0
        """Bytes of the whole when looked at last."""
        self.fixed = 0
        """Bytes at its start that stood there before, when looked at last, and still do."""
        self.changed_ns = 0
        """When the newest part was written to."""

    def look(self) -> None:
        """See which files there are and how long they are."""
        head, old, tail = self._paths
        found = [_stat(head), None, _stat(tail)]
        if found[2] is not None:
            found[1] = _stat(old)
        before, size_before = self._parts[:1], self.size
        self._parts, self.size = [], 0
        for path, info in zip((head, old, tail), found, strict=True):
            if info is None:
                continue
            if path is old:
                self._add(None, len(SEAM))
            self._add(path, info.st_size)
        turned = (
            found[1].st_mtime_ns if found[1] else None
        )  # an inode may be used again, the full part is not written to
        files = (*(info.st_ino if info else None for info in found), turned)
        if files == self._files:
            self.fixed = size_before if self.size >= size_before else 0
        else:  # the tail began, was turned, or was joined to the head, which only ever grows
            same = files[0] is not None and files[0] == self._files[0] and self._parts[0].size >= before[0].size
            self.fixed = before[0].size if same else 0
        self._files = files
        self.changed_ns = max((info.st_mtime_ns for info in found if info), default=0)

    def _add(self, path: Path | None, size: int) -> None:
        self._parts.append(Part(path, self.size, size))
        self.size += size

    @contextmanager
    def opened(self) -> Iterator[Read]:
        """Read the whole by offset; what can no longer be read is missing."""
        with ExitStack() as stack:
            files: dict[Path, BinaryIO] = {}

            def read(offset: int, count: int) -> bytes:
                pieces = []
                for part in self._parts:
                    begin, end = max(offset - part.start, 0), min(offset + count - part.start, part.size)
                    if begin >= end:
                        continue
                    if part.path is None:
                        pieces.append(SEAM[begin:end])
                        continue
                    try:
                        if part.path not in files:
                            files[part.path] = stack.enter_context(part.path.open("rb"))
                        files[part.path].seek(begin)
                        pieces.append(files[part.path].read(end - begin))
                    except OSError:
                        continue
                return b"".join(pieces)

            yield read


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
