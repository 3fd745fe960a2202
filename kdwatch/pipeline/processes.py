"""Finding and ending processes by /proc. Standard library only: the shim imports this without site-packages.

A process belongs to a stage if it descends from the stage's shim (a subreaper, so orphans stay below it),
or if its environment holds the stage's token (which finds those that outlived the shim).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable

TOKEN = "KDWATCH_STAGE_TOKEN"
"""Environment variable that marks every process of a stage."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> bool:
    """Call prctl(2); False where the system has none or refuses."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat from the state (field 3) on; empty where there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = os.read(fd, 1024)
    except OSError:
        return []
    finally:
        os.close(fd)
    return data[data.rfind(b")") + 2 :].split()


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None where there is no such process."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def pids() -> list[int]:
    """Every process of the machine that can be seen."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def descendants(root: int, exclude: Iterable[int] = ()) -> list[int]:
    """Living descendants of a process, without those excluded and what is below them."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        fields = _stat(pid)
        if fields and fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(pid)
    skip = set(exclude)
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in skip:
                found.append(pid)
                todo.append(pid)
    return found


def own_children() -> list[int] | None:
    """Direct children of this thread, exactly, zombies included; None where the kernel does not list them."""
    try:
        with open("/proc/thread-self/children", encoding="ascii") as f:  # noqa: PTH123
            return [int(word) for word in f.read().split()]
    except OSError:
        return None


def holders(token: str, exclude: Iterable[int] = ()) -> list[int]:
    """Living processes of this user whose environment holds the stage's token."""
    mark = f"{TOKEN}={token}".encode()
    skip = {os.getpid(), *exclude}
    found = []
    for pid in pids():
        if pid in skip or not is_alive(pid):
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:  # noqa: PTH123
                if mark in f.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return found


def command_of(pid: int) -> str:
    """Name of a process as the kernel knows it (no arguments: those may hold secrets)."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:  # noqa: PTH123
            return f.read().strip()
    except OSError:
        return "?"


def send(pid: int, number: int) -> None:
    """Signal one process; one that is gone is no error."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def send_group(pgid: int, number: int) -> None:
    """Signal a process group; one that is gone is no error."""
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_until_gone(
    find: Callable[[], list[int]],
    limit_s: float,
    reap: Callable[[], None] = lambda: None,
) -> list[int]:
    """SIGKILL what `find` returns until it returns nothing or the time is over; the survivors.

    Each round stops all first, so that a process that forks quickly cannot run away.
    """
    deadline = time.monotonic() + limit_s
    while True:
        reap()
        found = find()
        if not found or time.monotonic() > deadline:
            return found
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                send(pid, number)
        time.sleep(0.005)
