"""A lock that works on NFS: a directory, made atomically, that says who holds it. A dead owner's lock is taken over."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from kdwatch.rundir.process import identity, is_alive, is_here

STALE_S = 300.0
"""Without a sign of life for this long, a lock of another host (or one that never named its owner) is stale."""


class MakerLock:
    """At most one maker of a thing at a time. `refresh` is the sign of life for other hosts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free or its owner is dead. Raises OSError if the place cannot be written."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._make():
            return True
        if self._is_stale():
            self._break()
            return self._make()
        return False

    def _make(self) -> bool:
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        (self.path / "owner.json").write_text(json.dumps(identity()))
        self.held = True
        return True

    def owner(self) -> dict[str, Any] | None:
        """Who holds it; None if that cannot be read."""
        try:
            data = json.loads((self.path / "owner.json").read_text())
            return data if isinstance(data, dict) else None
        except (OSError, ValueError):
            return None

    def _is_stale(self) -> bool:
        owner = self.owner()
        if owner is not None and is_here(owner):
            return not is_alive(owner)
        limit = STALE_S if owner is not None else 5.0
        try:
            return time.time() - self._last_sign() > limit
        except OSError:
            return False

    def _last_sign(self) -> float:
        sign = self.path / "owner.json"
        return (sign if sign.exists() else self.path).stat().st_mtime

    def _break(self) -> None:
        """Move a stale lock aside: of several that try, one succeeds."""
        aside = self.path.with_name(f"{self.path.name}.stale.{os.getpid()}.{time.monotonic_ns()}")
        try:
            self.path.rename(aside)
        except OSError:
            return
        shutil.rmtree(aside, ignore_errors=True)

    def refresh(self) -> None:
        """Show that the owner lives."""
        if self.held:
            try:
                os.utime(self.path / "owner.json")
            except OSError:
                pass

    def release(self) -> None:
        """Give it back; idempotent."""
        if self.held:
            self.held = False
            shutil.rmtree(self.path, ignore_errors=True)
