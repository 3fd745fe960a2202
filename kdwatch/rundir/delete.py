"""Deleting runs: only what is a run, never one that still records."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

from kdwatch.rundir.errors import NotARun, UsageProblem
from kdwatch.rundir.paths import is_run, list_runs
from kdwatch.rundir.reader import RunReader, load_manifest
from kdwatch.rundir.text import clean


def check_deletable(path: Path) -> None:
    """Raise UsageProblem where the path is no run, is a link, or its recorder still runs."""
    shown = clean(path, 200)
    if path.is_symlink():
        raise UsageProblem(f"{shown}: a link, not a run directory: delete what it points to, or the link itself")
    if not is_run(path):
        raise NotARun(f"{shown}: not a run directory: give a run from `kdwatch ls`")
    try:
        alive = RunReader(path).alive()
    except UsageProblem:
        return  # a damaged or newer manifest: nothing of ours records there
    if alive:
        raise UsageProblem(f"{shown}: still recording: stop it first with `kdwatch stop {clean(path.name, 80)}`")


def delete_run(path: Path) -> None:
    """Delete a run directory. The manifest goes last, so that a deletion cut short can be repeated."""
    check_deletable(path)
    try:
        for entry in path.iterdir():
            if entry.name == "manifest.json":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        shutil.rmtree(path)
    except OSError as problem:
        raise UsageProblem(f"{clean(path, 200)}: cannot delete ({problem.strerror}): check its permissions") from None


def size_bytes(path: Path) -> int:
    """Bytes of all files below a directory; links are not followed."""
    total = 0
    for found in path.rglob("*"):
        try:
            if found.is_file() and not found.is_symlink():
                total += found.stat().st_size
        except OSError:
            continue
    return total


def started(path: Path) -> float | None:
    """Start of a run in seconds since the epoch, from its manifest; None where that cannot be told."""
    try:
        manifest = load_manifest(path)
    except UsageProblem:
        return None
    clock = manifest.get("clock")
    wall = clock.get("wall_origin") if isinstance(clock, dict) else None
    if isinstance(wall, int | float) and not isinstance(wall, bool):
        return float(wall)
    try:
        return datetime.fromisoformat(str(manifest.get("created_at"))).timestamp()
    except ValueError:
        return None


def old_runs(before: float) -> list[Path]:
    """Runs under the home that started before an epoch time and do not record, the oldest first.

    A run whose start cannot be told stays.
    """
    found = []
    for path in reversed(list_runs()):
        began = started(path)
        if began is None or began >= before or path.is_symlink():
            continue
        try:
            check_deletable(path)
        except UsageProblem:
            continue
        found.append(path)
    return found
