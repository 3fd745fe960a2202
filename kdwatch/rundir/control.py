"""Requests to a run's recorder: one small JSON file each in `control/`, from the same user only."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem

ACTIONS = ("stop", "stop_stage", "skip", "extend_budget", "kill")
LIMIT_BYTES = 65536


def request(run: Path, action: str, **fields: Any) -> Path:
    """Ask the recorder of `run` for `action`; returns the request's file.

    Raises UsageProblem for an unknown action or a directory that this user cannot write.
    """
    if action not in ACTIONS:
        raise UsageProblem(f"unknown request '{action}': use one of {', '.join(ACTIONS)}")
    folder = run / "control"
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    body = json.dumps({"action": action, **fields}, allow_nan=False).encode()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        hidden = folder / f".{name}"
        fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, body)
        finally:
            os.close(fd)
        hidden.rename(folder / name)
    except OSError as problem:
        raise UsageProblem(
            f"{folder}: cannot write the request ({problem.strerror}): are you the run's user?"
        ) from None
    return folder / name


def take(run: Path) -> list[dict[str, Any]]:
    """Requests that wait, oldest first; each is removed. Those of other users, links and nonsense are dropped."""
    folder = run / "control"
    try:
        names = sorted(e.name for e in os.scandir(folder) if e.name.endswith(".json") and not e.name.startswith("."))
    except OSError:
        return []
    return [found for name in names if (found := _take_one(folder / name)) is not None]


def _take_one(path: Path) -> dict[str, Any] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        _drop(path)
        return None
    try:
        info = os.fstat(fd)
        own = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and info.st_size <= LIMIT_BYTES
        data = json.loads(os.read(fd, LIMIT_BYTES)) if own else None
    except (OSError, ValueError, RecursionError):
        data = None
    finally:
        os.close(fd)
    _drop(path)
    return data if isinstance(data, dict) and data.get("action") in ACTIONS else None


def _drop(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
