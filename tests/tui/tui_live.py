"""A run that is being written by the test's own process, which therefore counts as its living recorder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tui_runs import STAGES, Shape, devices, open_streams, sensors, write_samples

from kdwatch.rundir.process import identity
from kdwatch.rundir.writer import RunWriter


class LiveRun:
    """Writes samples up to a run time when told; the clock of the run began `ahead` seconds in the future, so that
    its time is only what was written."""

    stage_pid = 424_242

    def __init__(self, path: Path, shape: Shape, ahead: float = 3600.0) -> None:
        self.shape = shape
        self.pid = os.getpid()
        origin = time.monotonic() + ahead
        manifest: dict[str, Any] = {
            "run_id": path.name, "name": "kd-live", "regime": "kd", "created_at": "2026-01-01T00:00:00Z",
            "clock": {"monotonic_origin": origin, "wall_origin": 1_767_225_600.0, "boottime_origin": origin},
            "recorder": identity(),
            "stages": [{"name": n, "kind": k, "gpus": None, "needs": []} for n, k, _, _ in STAGES],
            "devices": devices(shape), "sensors": sensors(shape), "budget_j": shape.budget_j, "pue": 1.2,
            "region": shape.region,
        }  # fmt: skip
        self._writer = RunWriter.create(path, manifest)
        open_streams(self._writer, shape)
        self.event("run_started", t=0.0)
        self.event("stage_started", t=0.0, stage="prerun", kind="prerun", pid=self.stage_pid, pgid=self.stage_pid)
        self._written = -1.0 / shape.hz
        self.write_to(1.0)

    def event(self, type: str, **fields: Any) -> None:
        """One event, at once."""
        self._writer.event(type, **fields)

    def write_to(self, t: float) -> None:
        """All samples up to run time `t`, flushed."""
        write_samples(self._writer, self.shape, self._written + 1.0 / self.shape.hz, t)
        self._written = t
        self._writer.flush()

    def close(self) -> None:
        """End the writer, not the run."""
        self._writer.close()


@contextmanager
def live_run(path: Path, shape: Shape | None = None) -> Iterator[LiveRun]:
    """A run in its first stage."""
    run = LiveRun(path, shape or Shape(gpus=1, gap=None))
    try:
        yield run
    finally:
        run.close()
