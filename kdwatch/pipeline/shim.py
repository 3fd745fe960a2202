"""Parent of one stage's processes; run as `python -I -S shim.py`, so it starts in about 20 ms.

It exists so that a stage can never outlive the recorder. It is a child subreaper: every process that the stage
starts stays below it, whatever sessions and groups they make. It holds a pipe from the recorder; end of file
there means that the recorder is gone, and then everything below is killed. A sentinel (a fork of the shim in a
session of its own) does the same for the shim, by the token in the processes' environment. The stage's
first process also gets the kernel's parent-death signal.

Messages are JSON lines. From the recorder: the specification, `{"go": true}`, `{"signal": 15, "all": false}`.
To the recorder: `ready` (with the first process's id), `started`, `exited` (first process), `left` (processes that stay
behind), `unkillable`, `done`.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from kdwatch.pipeline import processes
from kdwatch.pipeline.caplog import CappedLog

CHUNK_B = 1 << 18
KILL_LIMIT_S = 1.8
"""Time after the recorder's death within which everything must be dead."""
RESTORED = ("SIGHUP", "SIGINT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ")


class Shim:
    """One stage: its first process, its log, its descendants."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.main_pid = 0
        self.main_status: int | None = None
        self.exited_t = 0.0
        self.last_t = 0.0
        self.cpu_s = 0.0
        self.max_rss_b = 0
        self.sentinel_pid = 0
        self.sentinel_fd = -1
        self.log_fd = -1
        self.error_r = self.go_w = -1
        self.log = CappedLog(spec["log"], spec["log_cap_b"])
        self.inbox = b""
        self.kill_at: float | None = None
        self.escalation: list[tuple[float, int]] = []
        self.wake_r, self.wake_w = os.pipe()
        os.set_blocking(self.wake_r, False)
        os.set_blocking(self.wake_w, False)

    # -- life of the stage

    def fork(self) -> None:
        """Fork the stage's first process in a process group of its own; it waits for `release`."""
        log_r, log_w = os.pipe()
        self.error_r, error_w = os.pipe()
        go_r, self.go_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.child(log_w, error_w, go_r)
        for fd in (log_w, error_w, go_r):
            os.close(fd)
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass
        self.main_pid, self.log_fd = pid, log_r
        os.set_blocking(log_r, False)

    def release(self) -> None:
        """Let the first process become the command."""
        now = time.monotonic()
        try:
            os.write(self.go_w, b"g")
        except OSError:
            pass
        os.close(self.go_w)
        failure = os.read(self.error_r, 4096)
        os.close(self.error_r)
        say(started=self.main_pid, t=now, failure=failure.decode(errors="replace") or None)

    def child(self, log_w: int, error_w: int, go_r: int) -> None:
        """In the fork: wait for the word, then become the stage's command. Never returns."""
        try:
            os.setpgid(0, 0)
            processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(self.go_w)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log_w, 1)
            os.dup2(log_w, 2)
            for name in RESTORED:
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            os.chdir(self.spec["cwd"])
            if os.read(go_r, 1) != b"g":
                os._exit(127)
            os.execvpe(self.spec["argv"][0], self.spec["argv"], os.environ)
        except BaseException as error:
            what = f"{self.spec['argv'][0]}: {getattr(error, 'strerror', None) or error}"
            os.write(error_w, what.encode(errors="replace")[:4000])
        os._exit(127)

    def others(self) -> list[int]:
        """Living processes of the stage beside its first one. Call after `reap`.

        A walk of /proc can miss a process that changes its parent meanwhile; the kernel's list of our own
        children cannot, and whatever lives below us has one of them above it.
        """
        skip = {self.sentinel_pid, self.main_pid}
        children = processes.own_children()
        if children is not None and skip.issuperset(children):
            return []
        below = processes.descendants(os.getpid(), exclude=skip)
        return below + [pid for pid in children or () if pid not in skip and pid not in below]

    def any_left(self) -> bool:
        """Whether anything of the stage beside its first process lives, cheaply. Call after `reap`."""
        children = processes.own_children()
        if children is None:
            return bool(self.others())
        return not {self.sentinel_pid, self.main_pid}.issuperset(children)

    def everyone(self) -> list[int]:
        """All living processes of the stage, by descent and by token."""
        below = processes.descendants(os.getpid(), exclude=(self.sentinel_pid,))
        return below + [
            p for p in processes.holders(self.spec["token"], exclude=(self.sentinel_pid,)) if p not in below
        ]

    def reap(self) -> None:
        """Collect exited children; the rusage of the first one includes what it waited for."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.sentinel_pid:
                self.sentinel_pid = 0
                continue
            self.last_t = time.monotonic()
            self.account(usage)
            if pid == self.main_pid:
                self.main_status, self.exited_t = status, self.last_t

    def account(self, usage: resource.struct_rusage) -> None:
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.max_rss_b = max(self.max_rss_b, usage.ru_maxrss * 1024)

    # -- messages

    def hear(self) -> None:
        """Read the recorder's messages; end of file means that it is gone."""
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            return
        if not data:
            self.recorder_died()
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "signal" in message:
                self.signal(int(message["signal"]), bool(message.get("all")))

    def signal(self, number: int, everyone: bool) -> None:
        """Signal the stage's group; everyone: also those that left the group."""
        if self.main_pid:
            processes.send_group(self.main_pid, number)
        if everyone and number == signal.SIGKILL:
            processes.kill_until_gone(self.everyone, KILL_LIMIT_S, self.reap)
        elif everyone:
            for pid in self.everyone():
                processes.send(pid, number)

    def recorder_died(self) -> None:
        """Kill everything below within KILL_LIMIT_S; what remains is named in the events. Never returns."""
        if self.main_pid:
            processes.send_group(self.main_pid, signal.SIGKILL)
        left = processes.kill_until_gone(self.everyone, KILL_LIMIT_S, self.reap)
        self.drain()
        self.log.close()
        note = {"type": "stage_ended", "status": "interrupted", "exit_code": None, "signal": None}
        self.note({**note, "cpu_s": round(self.cpu_s, 3), "max_rss_b": self.max_rss_b})
        if left:
            names = ", ".join(f"{pid} ({processes.command_of(pid)})" for pid in left)
            self.note({"type": "warning", "code": "orphan", "text": f"could not be killed: {names}"})
        self.release_sentinel()
        os._exit(0)

    def note(self, event: dict[str, Any]) -> None:
        """Append one event to the run's record: the recorder, its only other writer, is gone."""
        t = round(time.monotonic() - self.spec["origin"], 6)
        line = "\n" + json.dumps({"t": t, "stage": self.spec["stage"], **event}) + "\n"
        try:
            fd = os.open(self.spec["events"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.write(fd, line.encode())
            os.close(fd)
        except OSError:
            pass

    def drain(self) -> bool:
        """Move what the stage wrote into its log; False when nothing can come any more."""
        if self.log_fd < 0:
            return False
        for _ in range(16):
            try:
                data = os.read(self.log_fd, CHUNK_B)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                os.close(self.log_fd)
                self.log_fd = -1
                return False
            self.log.write(data)
        return True

    # -- the sentinel

    def start_sentinel(self) -> None:
        """Fork a process that outlives the shim only to kill what the stage left."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(write)
                os.setsid()
                self.watch_over(read)
            finally:
                os._exit(0)
        os.close(read)
        self.sentinel_pid, self.sentinel_fd = pid, write

    def watch_over(self, read: int) -> None:
        """In the sentinel: wait for the shim's end; without its farewell, kill by token."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        if os.read(read, 1) != b"k":
            processes.kill_until_gone(lambda: processes.holders(self.spec["token"]), KILL_LIMIT_S)

    def release_sentinel(self) -> None:
        """Tell the sentinel that nothing is left to do."""
        try:
            os.write(self.sentinel_fd, b"k")
        except OSError:
            pass

    def await_sentinel(self) -> None:
        """Collect the sentinel, which ends at once: else the recorder would inherit a zombie from each stage."""
        try:
            if self.sentinel_pid:
                os.waitpid(self.sentinel_pid, 0)
        except ChildProcessError:
            pass

    # -- the loop

    def loop(self) -> None:
        """Serve messages, output and exits until nothing of the stage is left."""
        left_at, pause_s = 0.0, 0.02
        while True:
            readable = [0, self.wake_r] + ([self.log_fd] if self.log_fd >= 0 else [])
            ended = self.main_status is not None
            ready, _, _ = select.select(readable, [], [], pause_s if ended else None)
            pause_s = min(0.5, pause_s * 1.5)
            if 0 in ready:
                self.hear()
            if self.wake_r in ready:
                os.read(self.wake_r, 4096)
                self.reap()
            if self.log_fd in ready:
                self.drain()
            if self.main_status is None:
                continue
            if not ended:
                say(exited=self.main_status, t=self.exited_t)
            self.reap()
            if not self.any_left():
                return
            if not left_at:
                left_at, left = time.monotonic(), self.others()
                say(left=[[pid, processes.command_of(pid)] for pid in left[:20]])
                grace = self.spec["grace_s"]
                self.escalation = [(left_at + grace, signal.SIGTERM), (left_at + 2 * grace, signal.SIGKILL)]
            if self.escalate():
                return

    def escalate(self) -> bool:
        """TERM, then KILL those that stay behind; True when some cannot be killed."""
        if not self.escalation or time.monotonic() < self.escalation[0][0]:
            return False
        _, number = self.escalation.pop(0)
        if number == signal.SIGKILL:
            survivors = processes.kill_until_gone(self.others, KILL_LIMIT_S, self.reap)
            if survivors:
                say(unkillable=[[pid, processes.command_of(pid)] for pid in survivors])
            return True
        for pid in self.others():
            processes.send(pid, number)
        return False

    def finish(self) -> None:
        """Empty the pipe, close the log, report."""
        deadline = time.monotonic() + 2.0
        while self.drain() and time.monotonic() < deadline:
            if not select.select([self.log_fd], [], [], 0.0)[0]:
                break
        self.log.close()
        self.release_sentinel()
        self.await_sentinel()
        say(
            done=self.main_status,
            t=self.last_t,
            cpu_s=round(self.cpu_s, 3),
            max_rss_b=self.max_rss_b,
            log_dropped_b=self.log.dropped_b,
        )


def say(**message: Any) -> None:
    """One message to the recorder; a recorder that is gone is noticed by `hear`."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:
        pass


def read_line() -> dict[str, Any]:
    """The next message, byte by byte, so that nothing after it is taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)
        line += byte
    return json.loads(line)


def main() -> None:
    """Run one stage to its end."""
    for name in ("SIGHUP", "SIGINT", "SIGTERM", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    shim = Shim(read_line())
    shim.start_sentinel()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(shim.wake_w, warn_on_full_buffer=False)
    shim.fork()
    say(ready=shim.main_pid)
    if not read_line().get("go"):
        os._exit(0)
    os.set_blocking(0, False)
    shim.release()
    shim.loop()
    shim.finish()


if __name__ == "__main__":
    main()
