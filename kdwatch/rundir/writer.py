"""Writing a run directory: whole at any moment, whatever kills the writer."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kdwatch.rundir.diskfile import AppendFile, write_whole
from kdwatch.rundir.errors import UsageProblem, WriteProblem
from kdwatch.rundir.layout import CHECKPOINTS, EVENTS, FOLDERS, ROLLUPS, SCHEMA
from kdwatch.rundir.paths import MANIFEST
from kdwatch.rundir.sealing import Sealer
from kdwatch.rundir.stream import SampleStream

FLUSH_S = 0.4
"""Samples wait in memory no longer than this."""


def finite(value: Any) -> Any:
    """The value with NaN and infinities replaced by None, at any depth: JSON has none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON text; NaN and infinities become null, what JSON does not know becomes its text."""
    try:
        return json.dumps(value, allow_nan=False, default=str, indent=indent)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False, default=str, indent=indent)


class RunWriter:
    """The only writer of a run directory.

    No method raises when the disk refuses: lines then wait in memory (16 MiB a file) and go out in order
    once there is space; `on_problem` is called, and `take_problem` returns a WriteProblem, once a spell.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.on_problem: Callable[[WriteProblem], None] | None = None
        self._origin = float(manifest["clock"]["monotonic_origin"])
        self._number = 1
        self._streams: dict[str, SampleStream] = {}
        self._problems: deque[WriteProblem] = deque(maxlen=16)
        self._events = AppendFile(path / EVENTS, self._disk_error)
        self._rollups = AppendFile(path / ROLLUPS, self._disk_error)
        self._sealer = Sealer(self._rollups, manifest.get("devices") or (), self._disk_error)
        self._flushed = self._newest = 0.0

    @classmethod
    def create(cls, path: Path, manifest: dict[str, Any]) -> RunWriter:
        """Make the directory (0700) and its manifest. What the manifest lacks of `schema`, `run_id`,
        `created_at` and `clock` is filled in.

        Raises UsageProblem where the directory exists as a run or cannot be written.
        """
        path = Path(path)
        if (path / MANIFEST).exists():
            raise UsageProblem(f"{path}: there is a run already: choose another directory")
        whole = with_clock({"schema": SCHEMA, "run_id": path.name, **manifest})
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            for folder in FOLDERS:
                (path / folder).mkdir(mode=0o700, exist_ok=True)
            write_whole(path / MANIFEST, to_json(whole, indent=1).encode())
        except OSError as problem:
            raise UsageProblem(
                f"{path}: cannot write the run directory ({problem.strerror}): free space or set KDWATCH_HOME"
            ) from None
        return cls(path, whole)

    def now(self) -> float:
        """Run time: seconds since the run's origin on CLOCK_MONOTONIC."""
        return time.monotonic() - self._origin

    def update_manifest(self, **fields: Any) -> None:
        """Add fields to the manifest and write it whole again."""
        self.manifest.update(fields)
        try:
            write_whole(self.path / MANIFEST, to_json(self.manifest, indent=1).encode())
        except OSError as problem:
            self._disk_error(self.path / MANIFEST, problem)

    def event(self, type: str, t: float | None = None, **fields: Any) -> dict[str, Any]:
        """Write one event at once, in one system call, and the rows that wait; returns it as a ledger takes it.

        `t` is run time; None means now.
        """
        found = {"t": round(self.now() if t is None else t, 6), "type": type, **fields}
        self._newest = max(self._newest, found["t"])
        self._events.write(to_json(found).encode() + b"\n")
        self._flush_rows()  # a run killed right after a stage's edge keeps the readings of that edge
        return found

    def open_stream(self, name: str, columns: Sequence[str]) -> None:
        """Begin a stream of samples: `columns` as in docs/run-directory.md, without `t_s`."""
        self._streams[name] = SampleStream(self.path, name, columns, self._number, self._disk_error)

    def sample(self, stream: str, t_s: float, values: Sequence[Any]) -> None:
        """Add one row (None: not read); it is in the file within half a second."""
        self._streams[stream].add(t_s, values)
        if t_s - self._flushed >= FLUSH_S or t_s < self._flushed:
            self._flushed = t_s
            self._newest = max(self._newest, t_s)
            self._flush_rows()

    def flush(self) -> None:
        """Hand everything to the files, and what the disk refused before."""
        self._flush_rows()
        self._events.retry()

    def _flush_rows(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def seal(self, ledger_state: Mapping[str, Any]) -> None:
        """Close the open segments under one number, write the checkpoint of that number, and pack them.

        The state must be that of a ledger which has taken every event and sample written so far. While the disk
        refuses rows nothing is closed: they would be lost.
        """
        self.flush()
        if self._events.waiting or any(stream.waiting for stream in self._streams.values()):
            return
        number = self._number
        self._number += 1
        self._newest = max([self._newest, *(stream.newest for stream in self._streams.values())])
        closed = [stream.rotate(self._number) for stream in self._streams.values()]
        body = {"number": number, "t": self._newest, "events_offset": self._events.size, "ledger": ledger_state}
        try:
            write_whole(self.path / CHECKPOINTS / f"{number:06d}.json", to_json(body).encode())
        except OSError as problem:
            self._disk_error(self.path / CHECKPOINTS, problem)
        self._sealer.submit(number, [path for path in closed if path.exists()])

    def free_bytes(self) -> int | None:
        """Free space where the run lies; None where that is unknown."""
        try:
            return shutil.disk_usage(self.path).free
        except OSError:
            return None

    def take_problem(self) -> WriteProblem | None:
        """The oldest problem with the disk not yet taken; None where all is well."""
        return self._problems.popleft() if self._problems else None

    def close(self) -> None:
        """Flush and close everything. Idempotent."""
        for stream in self._streams.values():
            stream.close()
        self._sealer.close()
        self._rollups.close()
        self._events.close()

    def _disk_error(self, path: Path, problem: OSError) -> None:
        text = f"{path}: {problem.strerror or problem}: recording goes on in memory until it can be written"
        found = WriteProblem(text)
        self._problems.append(found)
        if self.on_problem is not None:
            self.on_problem(found)


def with_clock(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with `clock` and `created_at`, taken now where they are missing."""
    if "clock" not in manifest:
        manifest["clock"] = {
            "monotonic_origin": time.monotonic(),
            "wall_origin": time.time(),
            "boottime_origin": time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)),
        }
    if "created_at" not in manifest:
        wall = time.gmtime(manifest["clock"]["wall_origin"])
        manifest["created_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", wall)
    return manifest
