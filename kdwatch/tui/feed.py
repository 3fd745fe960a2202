"""From a run directory to frames: live, finished or still being written, always through the same two parts.

A feed belongs to one thread. `history` may be drawn from elsewhere under `lock`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.grid import intensity
from kdwatch.ledger.load import resume
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.parse import Sample
from kdwatch.rundir.process import is_here
from kdwatch.rundir.reader import RunReader
from kdwatch.rundir.text import clean
from kdwatch.tui.build import NAME_LIMIT, CpuShare, device_names, device_rows, run_info, stage_rows
from kdwatch.tui.detail import first_detailed
from kdwatch.tui.forecasting import StepEnergies
from kdwatch.tui.frame import Frame, Notice, ReplayState, StageRow
from kdwatch.tui.history import History
from kdwatch.tui.logfile import LogFile
from kdwatch.tui.notices import Notices
from kdwatch.tui.rollups import read_rollups

SILENT_S = 8.0
"""A live recorder that writes nothing for this long is said to give no answer."""

INFO_EVERY_S = 5.0
"""Slow facts (memory, temperature) are read no more often than this."""

INFO_STALE_S = 30.0
"""Slow facts older than this are not shown as now's."""

LOG_LINES = 100
"""Last lines of a log that a frame carries."""


class RunFeed:
    """A run as it is now: what is on disk, then what is added to it."""

    def __init__(self, path: Path, *, g_per_kwh: float | None = None) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.reader = RunReader(path)
        self.manifest: Mapping[str, Any] = self.reader.manifest
        self.run = run_info(self.manifest, str(path), _intensity(self.manifest, g_per_kwh))
        self.notices = Notices()
        self._names = device_names(self.manifest)
        self.history = History(self._devices())
        self.ledger = Ledger(self.manifest)
        self.t = 0.0
        self._lost: set[str] = set()
        self._steps = StepEnergies()
        self._info: Mapping[str, Any] = {}
        self._info_t = -INFO_EVERY_S
        self._cpu = CpuShare()
        self.log_stage: str | None = None
        """Stage whose log is shown; None follows the running one."""
        self._logs: dict[str, LogFile] = {}
        self._last: Frame | None = None
        self._opened = False

    def _devices(self) -> list[dict[str, Any]]:
        devices = self.manifest.get("devices")
        return [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []

    def open(self, until: float | None = None) -> None:
        """Stand at the newest checkpoint (not after run time `until`): ledger and whole-run plot."""
        self.ledger, segment, events_offset = resume(self.reader, until)
        history = History(self._devices())
        if segment:
            self._read_history(history, segment, self.ledger.last_t)
        self._stand(segment, events_offset, self.ledger.last_t)
        self._steps = StepEnergies()
        with self.lock:
            self.history = history
        self._opened = True

    def _read_history(self, history: History, segment: int, t: float) -> None:
        """Fill the plot up to run time `t`: samples where that is quick, rolled-up rows before them."""
        first = first_detailed(self.path, segment)
        samples = self.reader.iter_samples(end=t, after=first - 1) if first <= segment else iter(())
        sample = next(samples, None)
        if first > 1:
            history.roll_up(read_rollups(self.path), sample.t if sample else t)
        while sample is not None:
            history.sample(sample)
            sample = next(samples, None)
        history.settle()

    def _stand(self, segment: int, events_offset: int, t: float) -> None:
        """Go on reading after a checkpoint."""
        self.reader.skip_to(segment, events_offset)
        self.t = t

    def frame(self) -> Frame:
        """Read what is new and return the picture of now."""
        first = not self._opened
        if first:
            self.open()
        self.take(*self.reader.poll())
        self._read_info()
        status = self._status()
        if status == "interrupted":
            self.ledger.interrupt()
        return self.picture(status, live=status == "running", first=first)

    def _status(self) -> str:
        """As the reader says; while the recorder lives and has written no end, without reading the events' tail."""
        return "running" if self.ledger.status == "running" and self.reader.alive() else self.reader.status()

    def take(self, events: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> None:
        """Events and samples in order of time; an event comes before samples of its moment."""
        at = 0
        with self.lock:
            for event in events:
                while at < len(samples) and samples[at].t < event["t"]:
                    self.take_sample(samples[at])
                    at += 1
                self.take_event(event)
            for sample in samples[at:]:
                self.take_sample(sample)
            self.history.settle()

    def take_sample(self, sample: Sample) -> None:
        """One reading into ledger and plot; the caller holds the lock."""
        if sample.t > self.t:
            self.t = sample.t
        self.ledger.sample(*sample)
        self.history.sample(sample)

    def take_event(self, event: Mapping[str, Any]) -> None:
        """One event into the ledger; sensors lost and found change what the total waits for."""
        self.t = max(self.t, event["t"])
        self.ledger.event(event)
        if event["type"] == "sensor":
            key = str(event.get("device"))
            if event.get("what") == "lost":
                self._lost.add(key)
                self.history.lost(key)
            elif event.get("what") == "recovered":
                self._lost.discard(key)
        elif event["type"] == "progress":
            self._note_step(event)
        self.notices.event(event)

    def _note_step(self, event: Mapping[str, Any]) -> None:
        """Remember what the stage had used at this step, for the forecast."""
        stage, step, steps = event.get("stage"), event.get("step"), event.get("total_steps")
        if event.get("part") or not isinstance(stage, str) or not isinstance(step, int) or not isinstance(steps, int):
            return
        if not self._steps.due(stage, step, steps):
            return
        joules = next((s.energy_j.get("total") for s in self.ledger.totals(event["t"]).stages if s.name == stage), None)
        if joules is not None:
            self._steps.note(clean(stage, NAME_LIMIT), step, joules)

    def _read_info(self) -> None:
        if abs(self.t - self._info_t) >= INFO_EVERY_S:
            self._info_t = self.t
            found = self.reader.info(self.t + INFO_EVERY_S)
            self._info = found if self.t - found.get("t_s", 0.0) <= INFO_STALE_S else {}

    def now(self, live: bool) -> float:
        """Run time of the picture: while the run goes on, the clock's; else the last that was recorded."""
        if not live:
            return self.t
        clock = _run_clock(self.manifest)
        return max(self.t, clock) if clock is not None else self.t

    def picture(self, status: str, *, live: bool, first: bool = False, replay: ReplayState | None = None) -> Frame:
        """The frame of this moment."""
        now = self.now(live) if replay is None else self.t
        totals = self.ledger.totals(now)
        rows = stage_rows(totals.stages, now)
        devices = device_rows(self._names, totals.devices, self.history, now, self._info, self._lost)
        powers = [d.power_w for d in devices if d.power_w is not None]
        silent = now - self.t if live and now - self.t > SILENT_S else None
        frame = Frame(
            run=self.run,
            t=now,
            status=status,
            live=live,
            stages=rows,
            devices=devices,
            power_w=sum(powers) if powers else None,
            total_j=totals.total_j,
            total_source=_total_source(devices),
            unattributed_j=totals.unattributed_j,
            budget_j=totals.budget_j,
            forecast=self._steps.forecast(rows, totals.total_j) if status == "running" or replay else None,
            warnings=tuple((clean(w["code"], 30), clean(w["text"], 300)) for w in totals.warnings),
            quality=(totals.quality or {}).get("q"),
            silent_s=silent,
            replay=replay,
            cpu_share=self._cpu.read(),
            **self.log_part(rows, replay),
        )
        self._last = frame
        return self.notices.on(frame, quiet=first)

    def log_part(self, rows: Sequence[StageRow], replay: ReplayState | None) -> dict[str, Any]:
        """Title and last lines of the log pane."""
        name = self.log_stage or next((r.name for r in reversed(rows) if r.start_s is not None), None)
        if name is None:
            return {}
        if name not in self._logs:
            self._logs[name] = LogFile(self.log_path(name))
        return {"log_title": f"log {name}", "log": self._logs[name].tail(LOG_LINES)}

    def trouble(self, problem: OSError) -> Frame | None:
        """The last frame with a notice that reading failed; None before the first."""
        if self._last is None:
            return None
        text = f"{clean(self.path, 120)}: cannot be read ({problem.strerror}); trying again"
        return replace(self._last, notices=(Notice("warning", text, "warning"),))

    def log_path(self, stage: str) -> Path:
        """The log of a stage; it may not exist. A name never leads out of the run directory."""
        return self.path / "logs" / f"{Path(stage).name}.log"

    def close(self) -> None:
        """Nothing is held open between reads."""


def _total_source(devices: tuple[Any, ...]) -> str | None:
    found = {d.source for d in devices if d.energy_j}
    return next((s for s in ("imported", "estimated", "integrated", "counter") if s in found), None)


def _intensity(manifest: Mapping[str, Any], fallback: float | None) -> float | None:
    """g CO2e per kWh: the run's own, else its region's, else the settings'."""
    own, region = manifest.get("intensity_g_per_kwh"), manifest.get("region")
    try:
        found = intensity(region if isinstance(region, str) else None, own if isinstance(own, int | float) else None)
    except UsageProblem:
        return fallback
    return found.g_per_kwh if found else fallback


def _run_clock(manifest: Mapping[str, Any]) -> float | None:
    """Run time now on this host's clock, if the run began in this boot."""
    clock, recorder = manifest.get("clock"), manifest.get("recorder")
    if not isinstance(clock, dict) or not isinstance(recorder, dict) or not is_here(recorder):
        return None
    origin = clock.get("monotonic_origin")
    return time.monotonic() - origin if isinstance(origin, int | float) else None
