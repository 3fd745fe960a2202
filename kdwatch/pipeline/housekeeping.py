"""What every run needs besides its stages: the meters, the record, and what is looked at now and then."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path

from kdwatch.pipeline.hosts import ActiveRuns, low_disk
from kdwatch.pipeline.loop import Loop
from kdwatch.pipeline.progress_tail import ProgressTail
from kdwatch.pipeline.recording import Recording
from kdwatch.pipeline.sampling import Samplers
from kdwatch.rundir.writer import RunWriter

log = logging.getLogger("kdwatch.recorder")

HOUSEKEEPING_S = 0.5
LAST_READS = 64
"""A stage's last reports are read up to this many MiB; a flood beyond is left."""
CLOCK_S = 60.0
HOSTS_S = 2.0
DISK_S = 30.0
BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Recorder:
    """What every run needs: meters, record, housekeeping. A driver (recipe or attached) decides what runs."""

    def __init__(self, writer: RunWriter, samplers: Samplers, recording: Recording) -> None:
        self.writer = writer
        self.run = writer.path
        self.recording = recording
        self.samplers = samplers
        self.loop = Loop()
        self.hosts = ActiveRuns(self.run.name)
        self.tails: dict[str, ProgressTail] = {}
        self.early_signals: list[int] = []
        """TERM and INT that came before a driver listened."""
        self._slow_due = dict.fromkeys(("clock", "hosts", "disk"), 0.0)

    @property
    def origin(self) -> float:
        """CLOCK_MONOTONIC at run time 0."""
        return float(self.writer.manifest["clock"]["monotonic_origin"])

    def begin(self) -> None:
        """Start the meters and the housekeeping."""
        self.loop.catch((signal.SIGTERM, signal.SIGINT), self.early_signals.append)
        self.recording.event("run_started", wall=time.time(), boottime=time.clock_gettime(BOOTTIME))
        self.hosts.enter()
        self.samplers.start()
        self.loop.every(HOUSEKEEPING_S, self._housekeeping)
        self._housekeeping()

    def end(self, status: str, exit_code: int, reason: str | None = None) -> None:
        """Take the tail of the readings, write the end, close everything."""
        self.samplers.edge(wait_s=0.5)
        self._wait_for_tail()
        self.samplers.stop()
        self.read_progress()
        self._look_at_hosts()
        self.recording.event("run_ended", status=status, exit_code=exit_code, reason=reason)
        self.recording.seal()
        self.recording.close()
        self.hosts.leave()

    def _wait_for_tail(self) -> None:
        """An averaged power field knows a moment only a window later; with a counter there is nothing to wait for."""
        devices = [d for m in self.samplers.meters for d in m.devices]
        window = max((d.average_window_s for d in devices if d.source == "integrated"), default=0.0)
        if window:
            self.loop.run_until(lambda: False, min(window, 2.0) + 0.15)

    # -- stages' own reports

    def follow(self, stage: str) -> Path:
        """Begin to take what a stage reports; returns the file for KDWATCH_EVENTS."""
        path = self.run / "progress" / f"{stage}.jsonl"
        self.tails[stage] = ProgressTail(path)
        return path

    def unfollow(self, stage: str) -> None:
        """Take the rest of what a stage reported, and stop following."""
        tail = self.tails.get(stage)
        if tail is None:
            return
        for _ in range(LAST_READS):
            before = tail.offset
            self._read_tail(stage, tail)
            if tail.offset == before:
                break
        if tail.refused:
            text = f"{tail.refused} lines of its KDWATCH_EVENTS were not understood and left out"
            self.recording.warn("progress_refused", text, stage=stage)
        del self.tails[stage]

    def read_progress(self) -> None:
        """Take what stages have reported since the last call."""
        for stage, tail in list(self.tails.items()):
            self._read_tail(stage, tail)

    def _read_tail(self, stage: str, tail: ProgressTail) -> None:
        for kind, monotonic, fields in tail.read():
            now = self.recording.now()
            t = now if monotonic is None else min(max(0.0, self.recording.run_time(monotonic)), now)
            self.recording.event(kind, t=t, stage=stage, **fields)

    # -- now and then

    def _housekeeping(self) -> None:
        self.read_progress()
        self.recording.flush()
        problem = self.writer.take_problem()
        if problem is not None:
            log.error("%s", problem)
            self.recording.warn("write_problem", "the run directory could not be written for a while")
        now = time.monotonic()
        for name, period, call in (
            ("clock", CLOCK_S, self._clock),
            ("hosts", HOSTS_S, self._look_at_hosts),
            ("disk", DISK_S, self._look_at_disk),
        ):
            if now >= self._slow_due[name]:
                self._slow_due[name] = now + period
                call()
        self.recording.seal_if_due()

    def _clock(self) -> None:
        self.recording.event("clock", wall=time.time(), boottime=time.clock_gettime(BOOTTIME))

    def _look_at_hosts(self) -> None:
        if self.hosts.others():
            text = "another run was recorded on this host at the same time: package and board energy holds both"
            self.recording.warn("shared_host", text)

    def _look_at_disk(self) -> None:
        text = low_disk(self.run)
        if text:
            self.recording.warn("low_disk", text.split(" (")[0] + ": free space or set KDWATCH_HOME")
