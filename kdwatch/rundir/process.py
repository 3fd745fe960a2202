"""Which process records a run, and whether it still lives: pid, its start time, boot and host."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def host_hash() -> str:
    """A short name for this host that does not say its name; read once, since screens ask in every frame."""
    seed = _text("/etc/machine-id") or platform.node()
    return hashlib.sha256(f"kdwatch:{seed}".encode()).hexdigest()[:16]


@cache
def boot_id() -> str | None:
    """The kernel's id of this boot, read once; None where there is none (macOS)."""
    return _text("/proc/sys/kernel/random/boot_id")


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which `pid` began; None if it is gone, a zombie, or there is no /proc."""
    stat = _text(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in {"Z", "X"}:
        return None
    return int(fields[19])


def identity(pid: int | None = None) -> dict[str, Any]:
    """The manifest's `recorder` object for a process of this host (default: this one)."""
    pid = os.getpid() if pid is None else pid
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id(), "host_hash": host_hash()}


def is_here(recorder: Mapping[str, Any]) -> bool:
    """Whether the recorder ran on this host."""
    return recorder.get("host_hash") in (None, host_hash())


def is_alive(recorder: Mapping[str, Any]) -> bool:
    """Whether the process that `identity` described still runs on this host."""
    pid = recorder.get("pid")
    if not isinstance(pid, int) or pid <= 0 or not is_here(recorder):
        return False
    if recorder.get("boot_id") not in (None, boot_id()):
        return False
    began = recorder.get("start_time")
    if isinstance(began, int):
        return start_time(pid) == began
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
