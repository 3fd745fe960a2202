"""Opening a run: meters, manifest, directory, record. What both kinds of run need before they begin."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kdwatch.meters.base import Reading
from kdwatch.meters.discover import discover
from kdwatch.meters.models import NoModel, power_model
from kdwatch.pipeline.housekeeping import Recorder
from kdwatch.pipeline.manifest import build_manifest
from kdwatch.pipeline.recording import Recording
from kdwatch.pipeline.sampling import Samplers
from kdwatch.rundir.paths import runs_dir
from kdwatch.rundir.writer import RunWriter

log = logging.getLogger("kdwatch.recorder")

EDGE_S = 0.3
"""How long the idle baseline waits for the readings at its edges."""


def new_run_id(name: str) -> str:
    """An id that sorts by time, says the name, and is unique: `20250131-142500-kd-demo-1f3a`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{secrets.token_hex(2)}"


def open_run(
    spec: Mapping[str, Any],
    *,
    gpus: str | None,
    name: str,
    regime: str,
    stages: Sequence[Mapping[str, Any]],
    recipe: Mapping[str, Any],
    environment: Mapping[str, str],
    workdir: Path,
    accounting: Mapping[str, Any],
) -> Recorder:
    """Find the sensors and make the run directory. `gpus`: those to measure, as in CUDA_VISIBLE_DEVICES; None: all.

    Raises UsageProblem where the directory cannot be made.
    """
    found = discover(gpus)
    path = Path(spec["run_dir"]) if spec.get("run_dir") else runs_dir() / new_run_id(name)
    manifest = build_manifest(
        run_id=path.name,
        name=name,
        regime=regime,
        stages=stages,
        recipe=recipe,
        meters=found.meters,
        sensors=found.sensors,
        environment=environment,
        workdir=workdir,
        accounting=accounting,
    )
    writer = RunWriter.create(path, manifest)
    redirect_log(path)
    recording = Recording(writer)
    return Recorder(writer, Samplers(found.meters, recording), recording)


def leave_launcher() -> None:
    """Let go of the launcher's pipes: nothing of the terminal is held any more."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def redirect_log(run: Path) -> None:
    """Standard error and the log go to logs/recorder.log."""
    fd = os.open(run / "logs" / "recorder.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(fd, 2)
    os.close(fd)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def note_tdp(recorder: Recorder) -> None:
    """Put the CPU's TDP into the manifest where the CPU is measured: the paper's protocol needs it.

    After the run: the first look on a machine asks CodeCarbon, which takes seconds of CPU time that would be measured;
    later ones read what was kept.
    """
    if not any(d.kind == "cpu" and d.source == "counter" for m in recorder.samplers.meters for d in m.devices):
        return
    try:
        tdp_w = power_model().tdp_w
    except NoModel as problem:
        log.info("no TDP: %s", problem)
        return
    recorder.writer.update_manifest(hardware={**recorder.writer.manifest["hardware"], "cpu_tdp_w": tdp_w})


class PowerTap:
    """Collects readings for mean powers."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def __call__(self, readings: Sequence[Reading]) -> None:
        self.readings.extend(readings)

    def mean_w(self) -> dict[str, float]:
        """Mean power by device key: from the counter where it moved over the time, else the mean of the samples."""
        means: dict[str, float] = {}
        for key in {r.key for r in self.readings}:
            own = [r for r in self.readings if r.key == key]
            counters = [(r.t, r.counter_j) for r in own if r.counter_j is not None]
            watts = [r.power_w for r in own if r.power_w is not None] or [
                r.average_w for r in own if r.average_w is not None
            ]
            if len(counters) > 1 and counters[-1][1] > counters[0][1]:
                means[key] = (counters[-1][1] - counters[0][1]) / (counters[-1][0] - counters[0][0])
            elif watts:
                means[key] = sum(watts) / len(watts)
        return means


def idle_baseline(recorder: Recorder, seconds: float, given_up: Callable[[], bool]) -> None:
    """Measure idle power before the first stage. Refused where another process uses one of the GPUs; left where the run
    is to end."""
    busy = [p for m in recorder.samplers.meters for p in getattr(m, "foreign_pids", lambda: ())()]
    if busy:
        text = "no idle baseline: another process is using the GPU; net energy stays unknown"
        recorder.recording.warn("baseline_refused", text)
        return
    tap = PowerTap()
    recorder.recording.tap = tap
    recorder.samplers.set_active(True)
    try:
        recorder.samplers.edge(wait_s=EDGE_S)
        if recorder.loop.run_until(given_up, seconds):
            return
        recorder.samplers.edge(wait_s=EDGE_S)
    finally:
        recorder.recording.tap = None
    watts = {key: round(w, 3) for key, w in tap.mean_w().items()}
    if watts:
        recorder.recording.event("baseline", idle_w=watts, duration_s=seconds)
