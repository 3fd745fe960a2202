"""Recording what another process runs: a command under `kdwatch exec`, or stages inside a user's own program.

The client sends JSON lines over the recorder's standard input and may read answers from its standard output:

    {"op": "start", "stage", "kind", "t", "window", "parent", "pid", "gpus"}      t: CLOCK_MONOTONIC seconds
    {"op": "end", "stage", "t", "window", "status", "exit_code", "signal", "cpu_s", "max_rss_b"}
    {"op": "event", "stage", "type", "t", ...}                          as in a KDWATCH_EVENTS file
    {"op": "query", "window", "id"}     -> {"id", "devices": [...]}     energy of a window
    {"op": "close", "status", "exit_code", "reason"}

End of file without `close` means that the client is gone. A command that `kdwatch exec` started then ends too (TERM,
then KILL); the processes of other clients are left alone.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kdwatch.pipeline import processes, setup
from kdwatch.pipeline.answers import answer
from kdwatch.pipeline.exec_sentinel import KILL_LIMIT_S, ORPHAN_GRACE_S
from kdwatch.pipeline.housekeeping import Recorder
from kdwatch.pipeline.manifest import stage_entry
from kdwatch.pipeline.progress_tail import checked
from kdwatch.pipeline.windows import Windows
from kdwatch.rundir import control

log = logging.getLogger("kdwatch.recorder")

CONTROL_S = 0.5
MESSAGE_LIMIT_B = 1 << 20
QUERY_EDGE_S = 0.25
"""How long an answer waits for the readings around a stage's end."""


class AttachedRun:
    """A run whose stages are told by a client."""

    def __init__(self, recorder: Recorder, spec: Mapping[str, Any]) -> None:
        self.recorder = recorder
        self.recording = recorder.recording
        self.client_pid = spec.get("client_pid")
        self.forwards = bool(spec.get("forwards_signals"))
        """Whether the client passes signals on (exec); else a request to stop goes to the client itself."""
        self.token: str | None = spec.get("token")
        """Marks the processes of a command under exec."""
        self.open: dict[str, int] = {}
        """Stages that run, and the process that each is."""
        self.verdict: tuple[str, int, str | None] | None = None
        self.windows = Windows()
        self._depth: dict[str, int] = {}
        self._buffer = b""
        self._control_due = 0.0
        self._ops: dict[str, Callable[[dict[str, Any]], None]] = {
            "start": self._start,
            "end": self._end,
            "event": self._event,
            "query": self._query,
            "close": self._close,
        }

    def execute(self) -> tuple[str, int, str | None]:
        """Serve the client until it closes or is gone."""
        loop = self.recorder.loop
        loop.catch((signal.SIGTERM, signal.SIGINT), lambda _: self._stop(False))
        if self.recorder.early_signals:
            self._stop(False)
        os.set_blocking(0, False)
        loop.watch(0, self._hear)
        loop.every(CONTROL_S, self._tick)
        loop.run_until(lambda: self.verdict is not None)
        loop.unwatch(0)
        assert self.verdict is not None
        return self.verdict

    def _hear(self) -> None:
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._client_gone()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._buffer) > MESSAGE_LIMIT_B:
            self._buffer = b""

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            op = self._ops.get(message["op"])
        except (ValueError, KeyError, TypeError):
            return
        if op:
            op(message)

    def _client_gone(self) -> None:
        status = "interrupted" if self.open else "completed"
        reason = "the measured process ended without a word" if self.open else None
        if self.open and self.token:
            self._end_command(self.token)
        for stage in list(self.open):
            self._finish(stage, time.monotonic(), {"status": "interrupted"})
        self.verdict = self.verdict or (status, 1 if reason else 0, reason)

    def _end_command(self, token: str) -> None:
        """End what `kdwatch exec` started: nobody waits for it any more."""
        for pid in processes.holders(token):
            processes.send(pid, signal.SIGTERM)
        self.recorder.loop.unwatch(0)
        self.recorder.loop.run_until(lambda: not processes.holders(token), ORPHAN_GRACE_S)
        left = processes.kill_until_gone(lambda: processes.holders(token), KILL_LIMIT_S)
        if left:
            self.recording.warn("orphan", f"could not be killed: {', '.join(map(str, left))}")

    # -- what clients say

    def _start(self, m: dict[str, Any]) -> None:
        stage, t = str(m["stage"]), float(m["t"])
        if m.get("window") is not None:
            self.windows.begin(int(m["window"]), stage, m.get("parent"), self.recording.totals())
        self._depth[stage] = self._depth.get(stage, 0) + 1
        if self._depth[stage] > 1:  # nested in itself, or in two threads: one window of the stage
            return
        pid = int(m.get("pid") or 0) or None
        fields = {k: m[k] for k in ("parent", "gpus") if m.get(k) is not None}
        kind = str(m.get("kind") or "other")
        self.recording.event(
            "stage_started", t=self.recording.run_time(t), stage=stage, kind=kind, pid=pid, pgid=None, **fields
        )
        self.open[stage] = pid or 0
        self.recorder.samplers.set_active(True)
        self._watch_processes()
        self.recorder.samplers.edge()

    def _watch_processes(self) -> None:
        pids = {pid for pid in self.open.values() if pid} or ({self.client_pid} if self.client_pid else set())
        self.recorder.samplers.own_processes(sorted(p for p in pids if p))

    def _end(self, m: dict[str, Any]) -> None:
        stage = str(m["stage"])
        self._depth[stage] = self._depth.get(stage, 1) - 1
        if self._depth[stage] <= 0:
            self.recorder.samplers.edge()
            self._finish(stage, float(m["t"]), m)
        if m.get("window") is not None:
            self.windows.end(int(m["window"]))

    def _finish(self, stage: str, t: float, m: Mapping[str, Any]) -> None:
        self.open.pop(stage, None)
        self.recorder.unfollow(stage)
        fields = {k: m.get(k) for k in ("exit_code", "signal", "cpu_s", "max_rss_b")}
        status = str(m.get("status") or "completed")
        self.recording.event("stage_ended", t=self.recording.run_time(t), stage=stage, status=status, **fields)
        self.recorder.samplers.set_active(bool(self.open))

    def _event(self, m: dict[str, Any]) -> None:
        found = checked(m)
        if found:
            kind, monotonic, fields = found
            t = self.recording.now() if monotonic is None else self.recording.run_time(monotonic)
            self.recording.event(kind, t=max(0.0, t), stage=str(m.get("stage")), **fields)

    def _query(self, m: dict[str, Any]) -> None:
        self.recorder.samplers.edge(wait_s=QUERY_EDGE_S)
        totals = self.recording.totals()
        self.windows.settle(totals)
        found = self.windows.result(m.get("window"), totals)
        answer(id=m.get("id"), devices=None if found is None else [self._device(d) for d in found])

    def _device(self, found: dict[str, Any]) -> dict[str, Any]:
        """As the client shows it: with the vendor's index, without our key."""
        entry: dict[str, Any] = dict(found)
        key = entry.pop("key")
        index = {d["key"]: d.get("index") for d in self.recorder.writer.manifest["devices"]}
        return {**entry, "index": index.get(key)}

    def _close(self, m: dict[str, Any]) -> None:
        for stage in list(self.open):
            self._finish(stage, time.monotonic(), {"status": "stopped"})
        self.verdict = (str(m.get("status") or "completed"), int(m.get("exit_code") or 0), m.get("reason"))

    # -- requests of others

    def _tick(self) -> None:
        for request in control.take(self.recorder.run):
            self.recording.event("control", action=request["action"])
            if request.get("action") in ("stop", "stop_stage", "skip", "kill"):
                self._stop(request["action"] == "kill" or bool(request.get("now")))

    def _stop(self, now: bool) -> None:
        """Pass a request to stop to the client: exec hands it to its command, another program gets the signal."""
        number = signal.SIGKILL if now else signal.SIGTERM
        if self.forwards:
            answer(signal=int(number))
        elif self.client_pid:
            processes.send(int(self.client_pid), number)


def record(spec: Mapping[str, Any]) -> int:
    """Record what a client runs (the recorder's main). Returns its exit code."""
    stages = [
        stage_entry(s["name"], s.get("kind") or "other", command=s.get("command") or (), gpus=s.get("gpus"))
        for s in spec.get("stages") or ()
    ]
    recorder = setup.open_run(
        spec,
        gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
        name=str(spec["name"]),
        regime="custom",
        stages=stages,
        recipe={},
        environment=os.environ,
        workdir=Path.cwd(),
        accounting={k: spec.get(k) for k in ("budget_j", "pue", "region", "intensity_g_per_kwh")},
    )
    recorder.begin()
    events = {s["name"]: str(recorder.follow(s["name"])) for s in stages}
    answer(run=str(recorder.run), pid=os.getpid(), events=events)
    try:
        status, code, reason = AttachedRun(recorder, spec).execute()
    except Exception as error:
        log.exception("run")
        status, code, reason = "failed", 1, f"the recorder failed: {type(error).__name__}"
    recorder.end(status, code, reason)
    answer(ended=status)
    setup.note_tdp(recorder)
    return code
