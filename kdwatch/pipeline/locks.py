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
"""Without a sign of life for this long, a lock of another host is stale."""
NAMELESS_S = 5.0
"""A lock whose owner died before it named itself is stale after this long."""


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
        owner = self.owner()
        if owner is not None and is_here(owner) and is_alive(owner):
            return False
        return self._take_over()

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

    def is_held(self) -> bool:
        """Whether somebody holds it who may be alive."""
        owner = self.owner()
        if owner is None or not is_here(owner):
            return self.path.exists()
        return is_alive(owner)

    def _take_over(self) -> bool:
        """Replace a stale lock. A second directory lets only one process at a time judge and replace: else one that
        judged early would take the lock of another that has just taken over."""
        judging = self.path.with_name(f"{self.path.name}.judging")
        try:
            judging.mkdir(mode=0o700)
        except FileExistsError:
            self._forget_judge(judging)
            return False
        try:
            # the file server's clock, not ours: hosts' clocks differ
            if self._is_stale(judging.stat().st_mtime):
                aside = self.path.with_name(f"{self.path.name}.stale.{os.getpid()}.{time.monotonic_ns()}")
                self.path.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
            return self._make()
        except FileNotFoundError:
            return self._make()
        finally:
            try:
                judging.rmdir()
            except OSError:
                pass

    @staticmethod
    def _forget_judge(judging: Path) -> None:
        """Judging takes milliseconds; one that is minutes old died over it."""
        try:
            if time.time() - judging.stat().st_mtime > STALE_S:
                judging.rmdir()
        except OSError:
            pass

    def _is_stale(self, now: float) -> bool:
        owner = self.owner()
        if owner is not None and is_here(owner):
            return not is_alive(owner)
        sign = self.path / "owner.json"
        age = now - (sign if sign.exists() else self.path).stat().st_mtime
        return age > (STALE_S if owner is not None else NAMELESS_S)

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
