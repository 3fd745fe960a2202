"""The checks of `kdwatch doctor`: each has a stable id, a status, a line of text, and what to do."""

from __future__ import annotations

import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LIMIT_S = 3.0
"""No check takes longer; one that would is reported as such."""
LOW_DISK_B = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Check:
    """One answer."""

    id: str
    status: str
    """`ok`, `warn` (works, but less well than it could), `fail` (something is missing or broken) or `info`."""
    text: str
    fix: str | None = None
    """What to do; None where there is nothing to do."""
    data: dict[str, Any] | None = None
    """Numbers behind the text, for JSON."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


Group = tuple[str, Callable[[], list[Check]]]
"""Id to report under if the checks fail as a whole, and what makes them."""


def run_groups(groups: Sequence[Group], limit_s: float = LIMIT_S) -> list[Check]:
    """All groups at the same time, answers in the order given. A group that raises or overruns is one failed check
    of its id; its thread is left behind."""
    found: dict[int, list[Check]] = {}
    threads = []
    for number, (name, make) in enumerate(groups):

        def work(number: int = number, name: str = name, make: Callable[[], list[Check]] = make) -> None:
            try:
                found[number] = make()
            except Exception as error:
                found[number] = [Check(name, "fail", f"the check itself failed: {type(error).__name__}: {error}")]

        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [check for i, (name, _) in enumerate(groups) for check in found.get(i) or [_overran(name, limit_s)]]


def _overran(name: str, limit_s: float) -> Check:
    fix = "see whether nvidia-smi hangs too; if so reset the GPU or reboot" if name == "gpu" else "try again"
    return Check(name, "fail", f"no answer within {limit_s:g} s", fix)


def python_checks() -> list[Check]:
    """Interpreter and platform."""
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.system() == "Windows":
        return [Check("python", "fail", f"{system}: runs are recorded through WSL only", "run kdwatch inside WSL")]
    return [Check("python", "ok", system)]


def training_checks() -> list[Check]:
    """Whether the built-in model stages can run; found without importing them."""
    missing = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        text = f"{', '.join(missing)} not installed: built-in teacher, student and evaluate stages cannot run"
        return [Check("training", "info", text, 'pip install "kdwatch[train]"; measuring any command works without')]
    return [Check("training", "ok", "torch and transformers are installed")]


def home_checks(home: Path) -> list[Check]:
    """Where runs are written."""
    existing = next((p for p in (home, *home.parents) if p.exists()), Path("/"))
    if not os.access(existing, os.W_OK | os.X_OK):
        return [Check("home", "fail", f"{home} cannot be written", "fix its permissions, or set KDWATCH_HOME")]
    free = shutil.disk_usage(existing).free
    text = f"{home}, {free / 1e9:.1f} GB free"
    if free < LOW_DISK_B:
        return [
            Check("home", "warn", f"{text}: a run warns below 1 GB", "kdwatch prune --older-than 30d, or KDWATCH_HOME")
        ]
    return [Check("home", "ok", text)]
