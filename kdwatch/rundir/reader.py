"""Reading a run directory, live or finished, whatever state it is in."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kdwatch.rundir import layout
from kdwatch.rundir.errors import NewerSchema, NotARun
from kdwatch.rundir.history import power_history
from kdwatch.rundir.parse import Sample, parse_event, parse_rows, read_lines
from kdwatch.rundir.paths import MANIFEST
from kdwatch.rundir.process import is_alive, is_here
from kdwatch.rundir.rollup import Bucket
from kdwatch.rundir.shape import shaped
from kdwatch.rundir.tail import EventTail, StreamTail
from kdwatch.rundir.text import clean

__all__ = ["Batch", "RunReader", "Sample"]

FRESH_S = 15.0
"""A run on another host counts as alive while its files change at least this often."""
TAIL_BYTES = 1 << 18


class Batch(NamedTuple):
    """What is new, each list in order of time."""

    events: list[dict[str, Any]]
    samples: list[Sample]


class RunReader:
    """One run directory. Never writes; never raises for damage inside, only where there is no run.

    Raises NotARun or NewerSchema (a line that names both versions).
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.manifest = load_manifest(self.path)
        self._events = EventTail(self.path / layout.EVENTS)
        self._streams: dict[str, StreamTail] = {}
        self._after = 0

    def poll(self) -> Batch:
        """Everything since the last poll. Samples are read first, so that the events that belong to them are in."""
        found = layout.segments(self.path)
        samples: list[Sample] = []
        for name, numbers in found.items():
            if not layout.is_info(name):
                samples += self._stream(name).read(numbers)
        samples.sort(key=lambda s: s.t)
        events = self._events.read()
        events.sort(key=lambda e: e["t"])
        return Batch(events, samples)

    def skip_to(self, number: int, events_offset: int) -> None:
        """Begin after the segments up to `number` and after that many bytes of events (a checkpoint's)."""
        self._after = number
        self._streams.clear()
        self._events.offset = events_offset

    def _stream(self, name: str) -> StreamTail:
        if name not in self._streams:
            self._streams[name] = StreamTail(self._after)
        return self._streams[name]

    def info(self, until: float | None = None) -> dict[str, Any]:
        """The newest slow facts by column (`g0_memory_b`, ...), with `t_s`, of all meters; of run time `until` if
        given. Empty where there are none. Values are text as recorded."""
        found: dict[str, Any] = {}
        for name, numbers in layout.segments(self.path).items():
            if layout.is_info(name):
                row = _newest_row(numbers, until)
                row["t_s"] = max(row.get("t_s", 0.0), found.get("t_s", 0.0))
                found |= row
        return found

    def iter_events(self, offset: int = 0) -> Iterator[dict[str, Any]]:
        """Every readable event from a byte offset on, in the order written."""
        yield from EventTail(self.path / layout.EVENTS, offset).read()

    def iter_samples(
        self, stream: str | None = None, start: float | None = None, end: float | None = None, after: int = 0
    ) -> Iterator[Sample]:
        """Readings in order of time, of one stream or all, `start <= t <= end`, of segments numbered above `after`."""
        found = layout.segments(self.path)
        names = [n for n in found if not layout.is_info(n) and stream in (None, n)]
        merged = heapq.merge(*(self._of_stream(found[n], start, end, after) for n in names), key=lambda s: s.t)
        yield from merged

    def _of_stream(
        self, numbers: dict[int, Path], start: float | None, end: float | None, after: int
    ) -> Iterator[Sample]:
        skip = self._segment_before(start) if start is not None else 0
        for number, path in numbers.items():
            if number <= max(after, skip):
                continue
            for parser, t, cells in parse_rows(read_lines(path)):
                if start is not None and t < start:
                    continue
                if end is not None and t > end:
                    return
                yield from parser.samples(t, cells)

    def _segment_before(self, start: float) -> int:
        """The last segment that ended before `start`, as far as checkpoints tell."""
        best = 0
        for number, path in self.checkpoint_files().items():
            head = checkpoint_time(path)
            if head is None or head > start:
                break
            best = number
        return best

    def checkpoint_files(self) -> dict[int, Path]:
        """Checkpoints by number, oldest first."""
        return layout.checkpoints(self.path)

    def checkpoints(self) -> list[dict[str, Any]]:
        """Every readable checkpoint, oldest first."""
        return [c for path in self.checkpoint_files().values() if (c := load_checkpoint(path))]

    def checkpoint_numbered(self, number: int) -> dict[str, Any] | None:
        """One checkpoint, or None where it is missing or damaged."""
        return load_checkpoint(self.path / layout.CHECKPOINTS / f"{number:06d}.json")

    def checkpoint(self, until: float | None = None) -> dict[str, Any] | None:
        """The newest readable checkpoint (not after run time `until`); None where there is none."""
        for path in reversed(self.checkpoint_files().values()):
            if until is not None and ((t := checkpoint_time(path)) is None or t > until):
                continue
            if found := load_checkpoint(path):
                return found
        return None

    def power_history(self, max_points: int = 1000) -> dict[str, list[Bucket]]:
        """Power by device key in at most `max_points` buckets (min, mean, max), from rollups and the open segment."""
        return power_history(self.path, self.manifest.get("devices") or [], max_points)

    def alive(self) -> bool:
        """Whether the recorder still runs. For another host: whether its files still change.

        A published copy names no process (pid 0): nothing records it.
        """
        recorder = self.manifest.get("recorder")
        if not isinstance(recorder, dict) or recorder.get("pid") == 0:
            return False
        if is_here(recorder):
            return is_alive(recorder)
        return self.ended() is None and time.time() - self._last_change() < FRESH_S

    def _last_change(self) -> float:
        newest = 0.0
        for path in (self.path / layout.EVENTS, *(self.path / layout.SAMPLES).glob("*.csv")):
            try:
                newest = max(newest, path.stat().st_mtime)
            except OSError:
                continue
        return newest

    def ended(self) -> dict[str, Any] | None:
        """The `run_ended` event, read from the end of the file; None where there is none."""
        for line in reversed(_last_bytes(self.path / layout.EVENTS, TAIL_BYTES).split(b"\n")):
            if b"run_ended" in line and (event := parse_event(line)) and event["type"] == "run_ended":
                return event
        return None

    def status(self) -> str:
        """`running`, `completed`, `failed`, `stopped`, `interrupted`, `over_budget` or `imported`."""
        if self.manifest.get("imported"):
            return "imported"
        ended = self.ended()
        if ended is not None:
            return clean(ended.get("status") or "completed", 20)
        return "running" if self.alive() else "interrupted"


def _newest_row(numbers: dict[int, Path], until: float | None) -> dict[str, Any]:
    """The last row not after `until`, by column; empty where there is none."""
    for number in sorted(numbers, reverse=True):
        rows = [r for r in parse_rows(read_lines(numbers[number])) if until is None or r[1] <= until]
        if rows:
            parser, t, cells = rows[-1]
            return {"t_s": t, **dict(zip(parser.columns[1:], cells[1:], strict=True))}
    return {}


def load_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run directory. Raises NotARun or NewerSchema."""
    file = path / MANIFEST
    shown = clean(path, 200)
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise NotARun(f"{shown}: not a run directory, it holds no {MANIFEST}: give a run from `kdwatch ls`") from None
    except OSError as problem:
        raise NotARun(f"{shown}: cannot read {MANIFEST} ({problem.strerror}): check its permissions") from None
    except (ValueError, RecursionError):
        raise NotARun(f"{shown}: {MANIFEST} is damaged (no JSON): restore it from a copy of the run") from None
    if not isinstance(data, dict):
        raise NotARun(f"{shown}: {MANIFEST} holds no object: give a run from `kdwatch ls`")
    schema = data.get("schema", 1)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise NotARun(f"{shown}: {MANIFEST} has no valid schema number: give a run from `kdwatch ls`")
    if schema > layout.SCHEMA:
        raise NewerSchema(
            f"{shown}: written in schema {schema}, this kdwatch reads schema {layout.SCHEMA}: install a newer kdwatch"
        )
    return shaped(data)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """A checkpoint, or None where it is damaged."""
    try:
        data = json.loads(path.read_bytes())
        ok = isinstance(data["number"], int) and isinstance(data["events_offset"], int)
        return data if ok and isinstance(data["ledger"], dict) and isinstance(data["t"], int | float) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def checkpoint_time(path: Path) -> float | None:
    """Run time of a checkpoint, from its first bytes."""
    try:
        with path.open("rb") as f:
            head = f.read(200).decode("ascii", "replace")
        return float(head.split('"t":', 1)[1].split(",", 1)[0])
    except (OSError, IndexError, ValueError):
        return None


def _last_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as f:
            f.seek(0, 2)
            f.seek(max(0, f.tell() - count))
            return f.read()
    except OSError:
        return b""
