"""Process trees from /proc: who descends from whom, and the CPU time of all of them, the exited included."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

PROC = "/proc"
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Process(NamedTuple):
    """One line of /proc/PID/stat, as far as it matters."""

    pid: int
    parent: int
    own_s: float
    """CPU seconds of the process itself."""
    waited_s: float
    """CPU seconds of its children that exited and were waited for, theirs included."""


def exists(pid: int, proc: str = PROC) -> bool:
    """Whether a process of this number exists in this pid namespace."""
    return os.path.exists(f"{proc}/{pid}")  # noqa: PTH110  (os.stat alone; called for each process each second)


def read_text(path: str) -> str | None:
    """Content of a small file of /proc or /sys; None where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        return os.read(fd, 65536).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(fd)


def process(pid: int, proc: str = PROC) -> Process | None:
    """A living process; None where it has gone."""
    text = read_text(f"{proc}/{pid}/stat")
    if text is None:
        return None
    fields = text[text.rfind(")") + 2 :].split()
    try:
        user, system, waited_user, waited_system = map(int, fields[11:15])
        return Process(pid, int(fields[1]), (user + system) / TICKS_PER_S, (waited_user + waited_system) / TICKS_PER_S)
    except (ValueError, IndexError):
        return None


def tree(roots: Iterable[int], proc: str = PROC) -> list[Process]:
    """The living among the roots and all that descend from them, each once, however the roots overlap."""
    try:
        found = [process(int(name), proc) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []
    by_pid = {p.pid: p for p in found if p is not None}
    children = defaultdict(list)
    for p in by_pid.values():
        children[p.parent].append(p.pid)
    seen: set[int] = set()
    todo = [pid for pid in roots if pid in by_pid]
    while todo:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            todo += children[pid]
    return [by_pid[pid] for pid in seen]


def tree_cpu_s(roots: Iterable[int], proc: str = PROC) -> float:
    """CPU seconds spent so far by the trees under `roots`: the living ones' own and what they waited for."""
    return sum(p.own_s + p.waited_s for p in tree(roots, proc))
