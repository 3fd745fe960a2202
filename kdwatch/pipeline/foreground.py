"""Running one measured command in the foreground, so that it behaves as if kdwatch were not there."""

from __future__ import annotations

import json
import math
import os
import secrets
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.pipeline import processes
from kdwatch.pipeline.client import RecorderClient
from kdwatch.pipeline.exec_sentinel import Sentinel
from kdwatch.pipeline.spawn import NAME, check_home
from kdwatch.rundir.errors import UsageProblem

FORWARDED = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
FROM_TERMINAL = 0x80
"""si_code of a signal that the kernel sent (the terminal's keys): the command, in the same group, has it already."""
KILL_AFTER_S = 10.0
OBEY_S = 1.0
"""How often the recorder is listened to, for `kdwatch stop`; a signal or the command's end is heard at once."""
NOT_FOUND = 127
NOT_EXECUTABLE = 126


@dataclass(frozen=True)
class Accounting:
    """How energy becomes carbon for this run."""

    region: str | None = None
    intensity: float | None = None
    pue: float | None = None

    def check(self) -> None:
        """Raise UsageProblem for a value that cannot be."""
        if self.region is not None:
            from kdwatch.ledger.grid import intensity

            intensity(self.region)
        if self.intensity is not None and not 0 <= self.intensity < math.inf:
            raise UsageProblem(f"--intensity {self.intensity}: must be a number of g CO2e/kWh, 0 or more")
        if self.pue is not None and not 1 <= self.pue < math.inf:
            raise UsageProblem(f"--pue {self.pue}: must be a number, 1 or more")


def run_measured(
    command: list[str], name: str | None, *, as_json: bool, report: Path | None, accounting: Accounting
) -> int:
    """Run a command as a run of one stage; returns the exit code to pass on.

    Raises UsageProblem before the command starts, never after: a fault of measuring is a line on stderr.
    """
    stage = stage_name(command, name)
    accounting.check()
    check_report(report)
    code = missing_command(command[0])
    if code is not None:
        print(f"kdwatch exec: {command[0]}: {'not found' if code == NOT_FOUND else 'cannot be run'}", file=sys.stderr)
        return code
    check_home()
    token = secrets.token_hex(16)
    client = RecorderClient({**spec_of(command, stage, accounting), "token": token})
    foreground = Foreground(client, stage, token)
    code = foreground.run(command, stdout_to_stderr=as_json)
    finish(client, code, as_json, report, stopped=foreground.asked_to_stop)
    return code


def spec_of(command: list[str], stage: str, accounting: Accounting) -> dict[str, Any]:
    """What the recorder needs to know."""
    return {
        "mode": "attached",
        "name": stage,
        "client_pid": os.getpid(),
        "forwards_signals": True,
        "stages": [{"name": stage, "kind": "other", "command": command}],
        "region": accounting.region,
        "intensity_g_per_kwh": accounting.intensity,
        "pue": accounting.pue,
    }


def stage_name(command: list[str], name: str | None) -> str:
    """The name asked for, or the program's made fit. Raises UsageProblem for one that cannot be."""
    if name is not None:
        if not NAME.fullmatch(name):
            raise UsageProblem(
                f"--name {name!r}: use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
            )
        return name
    own = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in Path(command[0]).name)
    own = own.lstrip("._-")[:64]
    return own or "command"


def check_report(report: Path | None) -> None:
    """Raise UsageProblem where the report could not be written; nothing is left behind."""
    if report is None:
        return
    folder = report.absolute().parent
    target = report if report.exists() else folder
    if not folder.is_dir() or not os.access(target, os.W_OK):
        raise UsageProblem(f"--report {report}: cannot be written: choose a file in a directory that you can write")


def missing_command(word: str) -> int | None:
    """Exit code of a shell for a command that is not there (127) or no program (126); None if it can be run."""
    if shutil.which(word):
        return None
    return NOT_EXECUTABLE if os.sep in word and Path(word).exists() else NOT_FOUND


class Signals:
    """Signals to this process, held back while the command runs; those sent to it alone are passed on.

    The terminal's keys reach the command by themselves (it is in this process's group). Linux says who sent a signal;
    elsewhere a signal that the keys can make counts as the terminal's where there is one.
    """

    def __init__(self) -> None:
        self.numbers = {getattr(signal, name) for name in FORWARDED if hasattr(signal, name)}
        self.mask_before: set[Any] = set()

    def __enter__(self) -> Signals:
        self.mask_before = set(signal.pthread_sigmask(signal.SIG_BLOCK, [*self.numbers, signal.SIGCHLD]))
        return self

    def __exit__(self, *_: object) -> None:
        """What came too late for the command must not end this process before its report."""
        for _number in self.sent(0.0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)

    def sent(self, limit_s: float) -> list[int]:
        """Signals to pass on; waits for one, or for the end of a child, at most `limit_s`."""
        if hasattr(signal, "sigtimedwait"):
            return self._sent_linux(limit_s)
        time.sleep(min(limit_s, 0.05))
        pending = [n for n in signal.sigpending() if n in self.numbers]
        for number in pending:
            signal.sigwait([number])
        keys = {signal.SIGINT, signal.SIGQUIT} if sys.stdin is not None and sys.stdin.isatty() else set()
        return [number for number in pending if number not in keys]

    def _sent_linux(self, limit_s: float) -> list[int]:
        found = []
        info = signal.sigtimedwait([*self.numbers, signal.SIGCHLD], limit_s)
        while info is not None:
            if info.si_signo != signal.SIGCHLD and info.si_code != FROM_TERMINAL:
                found.append(info.si_signo)
            info = signal.sigtimedwait([*self.numbers, signal.SIGCHLD], 0)
        return found


class Foreground:
    """The command, in this process's group and terminal."""

    def __init__(self, client: RecorderClient, stage: str, token: str) -> None:
        self.client = client
        self.token = token
        self.stage = stage
        self.pid = 0
        self._kill_at: float | None = None

    def run(self, command: list[str], stdout_to_stderr: bool) -> int:
        """Start the command and wait for it."""
        with Signals() as signals:
            sentinel = Sentinel(self.token)
            try:
                self._spawn(command, stdout_to_stderr, signals.mask_before)
                return self._wait(signals)
            finally:
                sentinel.dismiss()

    def _spawn(self, command: list[str], stdout_to_stderr: bool, mask: set[Any]) -> None:
        env = {
            **os.environ,
            "KDWATCH_RUN_DIR": str(self.client.run),
            "KDWATCH_STAGE": self.stage,
            processes.TOKEN: self.token,
        }
        if self.stage in self.client.events:
            env["KDWATCH_EVENTS"] = self.client.events[self.stage]
        actions = [(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else []
        start = time.monotonic()
        self.pid = os.posix_spawnp(
            command[0],
            command,
            env,
            file_actions=actions,
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
        self.client.send("start", stage=self.stage, kind="other", t=start, pid=self.pid)

    @property
    def asked_to_stop(self) -> bool:
        """Whether `kdwatch stop` ended the command."""
        return self._kill_at is not None

    def _wait(self, signals: Signals) -> int:
        while True:
            self._obey_recorder()
            for number in signals.sent(OBEY_S):
                processes.send(self.pid, number)
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                return self._ended(status, usage, time.monotonic())
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                processes.send(self.pid, signal.SIGKILL)

    def _obey_recorder(self) -> None:
        """`kdwatch stop` reaches the command through the recorder."""
        fd = self.client.reply_fd
        if fd is None or not select.select([fd], [], [], 0)[0]:
            return
        message = self.client.receive()
        number = message.get("signal") if message else None
        if isinstance(number, int):
            processes.send(self.pid, number)
            if number == signal.SIGTERM and self._kill_at is None:
                self._kill_at = time.monotonic() + KILL_AFTER_S

    def _ended(self, status: int, usage: Any, t: float) -> int:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = 128 + number if number else os.WEXITSTATUS(status)
        self.client.send(
            "end",
            stage=self.stage,
            t=t,
            status="completed" if code == 0 else "stopped" if self.asked_to_stop else "failed",
            exit_code=code,
            signal=number,
            cpu_s=round(usage.ru_utime + usage.ru_stime, 3),
            max_rss_b=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        )
        return code


def finish(client: RecorderClient, code: int, as_json: bool, report: Path | None, stopped: bool) -> None:
    """Close the run and write the report; a fault is a line on stderr, the exit code stays the command's."""
    status = "completed" if code == 0 else "stopped" if stopped else "failed"
    reason = None if code == 0 else f"the command ended with {code}"
    ended = client.close(status=status, exit_code=code, reason=reason)
    if not ended:
        print("kdwatch exec: the recorder did not finish; the run may lack its end", file=sys.stderr)
    if not (as_json or report):
        return
    try:
        from kdwatch.ledger.report import build_report

        text = json.dumps(build_report(client.run), indent=2, allow_nan=False)
        if report:
            report.write_text(text + "\n", encoding="utf-8")
        if as_json:
            print(text, flush=True)
    except Exception as error:
        print(f"kdwatch exec: no report: {type(error).__name__}: {error}", file=sys.stderr)
