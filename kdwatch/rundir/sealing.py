"""What happens to a closed segment, beside the recorder's own thread: rollup, gzip."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kdwatch.rundir.diskfile import AppendFile
from kdwatch.rundir.layout import is_info
from kdwatch.rundir.parse import full_columns, parse_rows, read_lines
from kdwatch.rundir.rollup import BucketRoller, encode, powers_by_key
from kdwatch.rundir.stream import seal_segment

ROWS_AT_ONCE = 2_000


class Sealer:
    """Seals closed segments one number after the other in a thread of its own.

    The recorder's polls go on meanwhile: packing releases the interpreter lock. A segment that cannot be
    sealed (disk full) stays plain, which readers accept.
    """

    def __init__(
        self, rollups: AppendFile, devices: Iterable[Mapping[str, Any]], on_error: Callable[[Path, OSError], None]
    ) -> None:
        self._rollups = rollups
        self._powers = powers_by_key(devices)
        self._on_error = on_error
        self._work: queue.SimpleQueue[tuple[int, list[Path]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, number: int, paths: list[Path]) -> None:
        """Seal the segments of one number."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kdwatch-seal", daemon=True)
            self._thread.start()
        self._work.put((number, paths))

    def close(self) -> None:
        """Finish what was submitted. Idempotent."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            self._seal(*job)

    def _seal(self, number: int, paths: list[Path]) -> None:
        roller = BucketRoller(self._powers)
        for path in paths:
            if not is_info(path.name.rpartition("-")[0]):
                _roll(roller, list(read_lines(path)))
        self._rollups.write(encode(number, roller.buckets()))
        for path in paths:
            try:
                seal_segment(path)
            except OSError as problem:
                if path.exists():
                    self._on_error(path, problem)


def _roll(roller: BucketRoller, lines: list[str]) -> None:
    """Take the power of a segment: column by column where every row has all of it, else row by row."""
    header = lines[0] if lines else ""
    for start in range(0, len(lines), ROWS_AT_ONCE):
        rows = lines[start : start + ROWS_AT_ONCE]
        headers = [line for line in rows if line.startswith("t_s,")]
        columns = full_columns(header, rows) if not headers else None
        for key, times, watts in columns or ():
            roller.add_many(key, times, watts)
        if columns is None:
            for parser, t, cells in parse_rows([header, *rows]):
                for sample in parser.samples(t, cells):
                    roller.add(sample)
        header = headers[-1] if headers else header
