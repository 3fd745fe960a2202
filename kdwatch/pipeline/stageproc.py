"""The recorder's side of a shim: start it, hear it, end its stage."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdwatch.pipeline import processes
from kdwatch.pipeline.caplog import DEFAULT_CAP_B

log = logging.getLogger("kdwatch.recorder")
SHIM = Path(__file__).with_name("shim.py")
READY_LIMIT_S = 20.0
"""A shim starts in about 20 ms; on a machine that is out of memory, later."""


@dataclass(frozen=True)
class StageCommand:
    """What to start for a stage, whole."""

    stage: str
    argv: list[str]
    cwd: Path
    env: Mapping[str, str]
    log: Path
    events: Path
    origin: float
    """CLOCK_MONOTONIC at run time 0."""
    grace_s: float = 10.0
    log_cap_b: int = DEFAULT_CAP_B


@dataclass
class StageOutcome:
    """How the processes of a stage ended. Times are CLOCK_MONOTONIC."""

    started_t: float = 0.0
    main_exit_t: float | None = None
    ended_t: float | None = None
    status: int | None = None
    """wait(2) status of the first process; None if unknown."""
    cpu_s: float | None = None
    max_rss_b: int | None = None
    failure: str | None = None
    """Why the command could not be started."""
    left: list[tuple[int, str]] = field(default_factory=list)
    unkillable: list[tuple[int, str]] = field(default_factory=list)
    log_dropped_b: int = 0
    shim_lost: bool = False

    @property
    def signal(self) -> int | None:
        """Signal that ended the first process."""
        if self.status is not None and os.WIFSIGNALED(self.status):
            return os.WTERMSIG(self.status)
        return None

    @property
    def exit_code(self) -> int | None:
        """Exit code as a shell tells it: 128+n for a signal."""
        if self.status is None:
            return None
        return 128 + self.signal if self.signal else os.WEXITSTATUS(self.status)


class StageProcess:
    """One stage's shim. `fd` becomes readable when there is something to `hear`."""

    def __init__(self, command: StageCommand) -> None:
        self.command = command
        self.outcome = StageOutcome()
        self.pid: int | None = None
        self.done = False
        self._token = os.urandom(16).hex()
        self._buffer = b""
        self._stop_steps: list[tuple[float, int]] = []
        env = {**command.env, processes.TOKEN: self._token}
        self._shim = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SHIM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=True,
            bufsize=0,
        )
        assert self._shim.stdin and self._shim.stdout
        self._in, self.fd = self._shim.stdin.fileno(), self._shim.stdout.fileno()
        os.set_blocking(self.fd, False)

    @property
    def shim_pid(self) -> int:
        """Process id of the shim."""
        return self._shim.pid

    def prepare(self) -> bool:
        """Hand the shim its specification and wait until it is ready to start; False if it died."""
        c = self.command
        spec = {
            "stage": c.stage,
            "argv": c.argv,
            "cwd": str(c.cwd),
            "log": str(c.log),
            "log_cap_b": c.log_cap_b,
            "events": str(c.events),
            "origin": c.origin,
            "grace_s": c.grace_s,
            "token": self._token,
        }
        self._send(spec)
        if self._hear_until("ready"):
            return True
        if not self.done:
            self._shim.kill()
            self._lost()
        return False

    def go(self) -> None:
        """Start the command; returns when it runs or could not be started (or a slow disk lets it wait)."""
        self._send({"go": True})
        self._hear_until("started")

    def _hear_until(self, word: str) -> bool:
        """Take messages until one of this kind; False if the shim died, or said nothing for READY_LIMIT_S."""
        deadline = time.monotonic() + READY_LIMIT_S
        while not self.done:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            if word in self._next_messages():
                return True
        return False

    def hear(self) -> None:
        """Take the messages that wait."""
        self._next_messages()

    def _next_messages(self) -> set[str]:
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return set()
        if not data:
            self._lost()
            return set()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        words: set[str] = set()
        for line in lines:
            message = json.loads(line)
            words |= message.keys()
            self._take(message)
        return words

    def _take(self, m: dict[str, Any]) -> None:
        o = self.outcome
        if "ready" in m:
            self.pid = m["ready"]
        elif "started" in m:
            o.started_t, o.failure = m["t"], m["failure"]
        elif "exited" in m:
            o.status, o.main_exit_t = m["exited"], m["t"]
        elif "left" in m:
            o.left = [(int(pid), str(name)) for pid, name in m["left"]]
        elif "unkillable" in m:
            o.unkillable = [(int(pid), str(name)) for pid, name in m["unkillable"]]
        elif "done" in m:
            o.status, o.ended_t = m["done"], m["t"]
            o.cpu_s, o.max_rss_b, o.log_dropped_b = m["cpu_s"], m["max_rss_b"], m["log_dropped_b"]
            self._finish()

    def _finish(self) -> None:
        self.done = True
        for pipe in (self._shim.stdin, self._shim.stdout):
            if pipe:
                pipe.close()
        try:
            self._shim.wait(2.0)
        except subprocess.TimeoutExpired:
            self._shim.kill()
            self._shim.wait()

    def _lost(self) -> None:
        """The shim died: end what it left, by group, token and descent from this process (a subreaper)."""
        o = self.outcome
        o.shim_lost = True
        o.ended_t = o.main_exit_t or time.monotonic()
        if self.pid:
            processes.send_group(self.pid, signal.SIGKILL)
        left = processes.kill_until_gone(lambda: processes.holders(self._token), 1.8, self._reap_orphans)
        o.unkillable = [(pid, processes.command_of(pid)) for pid in left]
        o.ended_t = o.main_exit_t or time.monotonic()
        self._finish()

    def _reap_orphans(self) -> None:
        """Collect what came to this process, a subreaper, when the shim died."""
        for pid in processes.own_children() or ():
            if pid != self._shim.pid:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def _send(self, message: dict[str, Any]) -> None:
        try:
            os.write(self._in, json.dumps(message).encode() + b"\n")
        except OSError:
            log.warning("the shim of %s does not listen", self.command.stage)

    # -- ending

    def signal(self, number: int, everyone: bool = False) -> None:
        """Signal the stage's group; everyone: also what left the group."""
        if not self.done:
            self._send({"signal": number, "all": everyone})

    def stop(self, now: bool = False) -> None:
        """TERM, and KILL after the grace; now: KILL at once. A second call can only hasten."""
        if now:
            self._stop_steps = []
            self.signal(signal.SIGKILL, everyone=True)
        elif not self._stop_steps:
            self.signal(signal.SIGTERM)
            self._stop_steps = [(time.monotonic() + self.command.grace_s, signal.SIGKILL)]

    def tick(self) -> None:
        """Escalate when the grace is over."""
        if self._stop_steps and time.monotonic() >= self._stop_steps[0][0]:
            self._stop_steps = [(time.monotonic() + 5.0, signal.SIGKILL)]
            self.signal(signal.SIGKILL, everyone=True)
