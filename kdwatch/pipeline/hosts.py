"""Runs that are recorded on this host now: each leaves its process identity in the home's `active/`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from kdwatch.rundir.paths import home
from kdwatch.rundir.process import identity, is_alive, is_here

MET = ".met"
"""A note to the run of that name: which run was there at the same time."""
LOW_DISK_B = 1_000_000_000
"""Less free space than this is a warning."""


class ActiveRuns:
    """This run's entry among those of the host, and a look at the others."""

    def __init__(self, run_id: str, folder: Path | None = None) -> None:
        self.folder = folder or home() / "active"
        self.run_id = run_id
        self.path = self.folder / f"{run_id}.json"

    def enter(self) -> None:
        """Make this run visible to others. A home that cannot be written costs only that."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            hidden = self.path.with_name(f".{self.path.name}")
            hidden.write_text(json.dumps({"run_id": self.run_id, **identity()}))
            hidden.replace(self.path)
        except OSError:
            pass

    def others(self) -> list[str]:
        """Ids of other runs alive on this host, or that met this one and have ended since.

        Each is left a note, so that it knows of a run that begins and ends between two of its looks. Entries of the
        dead of this host are removed.
        """
        try:
            entries = [p for p in self.folder.iterdir() if p.suffix == ".json" and p != self.path]
        except OSError:
            return []
        found = {entry: name for entry in entries if (name := self._alive(entry))}
        for entry in found:
            self._leave_note(entry.with_suffix(MET))
        try:
            met = {self.path.with_suffix(MET).read_text(errors="replace")}
        except OSError:
            met = set()
        return sorted({*found.values(), *met})

    def _leave_note(self, note: Path) -> None:
        try:
            if not note.exists():
                note.write_text(self.run_id)
        except OSError:
            pass

    @staticmethod
    def _alive(entry: Path) -> str | None:
        try:
            data: dict[str, Any] = json.loads(entry.read_text())
            if is_alive(data):
                return str(data["run_id"])
            if is_here(data):
                entry.unlink(missing_ok=True)
                entry.with_suffix(MET).unlink(missing_ok=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def leave(self) -> None:
        """Take the entry away."""
        try:
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(MET).unlink(missing_ok=True)
        except OSError:
            pass


def low_disk(path: Path) -> str | None:
    """What to say if the disk of `path` has less than 1 GB free; None otherwise."""
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return None
    if free >= LOW_DISK_B:
        return None
    shown = os.fspath(path)
    return f"{free / 1e6:.0f} MB free where the run is written ({shown}): free space or set KDWATCH_HOME"
