"""What happens to a closed segment, beside the recorder's own thread: rollup, gzip."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kdwatch.rundir.diskfile import AppendFile
from kdwatch.rundir.layout import is_info
from kdwatch.rundir.parse import parse_rows, read_lines
from kdwatch.rundir.rollup import Roller, encode, powers_by_key
from kdwatch.rundir.stream import seal_segment


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
        roller = Roller(self._powers)
        for path in paths:
            if not is_info(path.name.rpartition("-")[0]):
                for parser, t, cells in parse_rows(read_lines(path)):
                    for sample in parser.samples(t, cells):
                        roller.add(sample)
        self._rollups.write(encode(number, roller.buckets()))
        for path in paths:
            try:
                seal_segment(path)
            except OSError as problem:
                if path.exists():
                    self._on_error(path, problem)
