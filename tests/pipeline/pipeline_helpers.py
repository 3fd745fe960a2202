"""Starting runs from recipe text, waiting for them, and finding what they left."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdwatch.pipeline import processes
from kdwatch.pipeline.launch import start_run
from kdwatch.pipeline.recipe import load_recipe
from kdwatch.rundir.reader import RunReader

PATIENCE_S = 30.0
"""How long a test waits for something that takes well under a second on a quiet machine."""


def wait_for(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> Any:
    """The first true value of `condition`; fails the test at the limit."""
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.01)
    return found


def write_recipe(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def begin(folder: Path, text: str) -> Path:
    """Start a run; its directory."""
    return start_run(load_recipe(write_recipe(folder, text)))


def events(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    return [e for e in RunReader(run).iter_events() if kind in (None, e["type"])]


def ended(run: Path) -> dict[str, Any] | None:
    found = events(run, "run_ended")
    return found[-1] if found else None


def recorder_pid(run: Path) -> int:
    return int(json.loads((run / "manifest.json").read_text())["recorder"]["pid"])


def finish(run: Path, limit_s: float = PATIENCE_S) -> dict[str, Any]:
    """Wait for the end of a run and of its recorder; the `run_ended` event."""
    found = wait_for(lambda: ended(run), f"the end of {run.name}", limit_s)
    wait_for(lambda: not processes.is_alive(recorder_pid(run)), "the recorder's exit")
    return found


def record(folder: Path, text: str) -> Path:
    """Run a recipe to its end."""
    run = begin(folder, text)
    finish(run)
    return run


def stage_events(run: Path, stage: str) -> dict[str, dict[str, Any]]:
    """Last event of each type of one stage."""
    return {e["type"]: e for e in events(run) if e.get("stage") == stage}


def warning_codes(run: Path) -> set[str]:
    return {e["code"] for e in events(run, "warning")}


def marked(mark: str) -> list[int]:
    """Living processes with `mark` in their environment."""
    needle = mark.encode()
    found = []
    for pid in processes.pids():
        try:
            if pid != os.getpid() and needle in Path(f"/proc/{pid}/environ").read_bytes() and processes.is_alive(pid):
                found.append(pid)
        except OSError:
            continue
    return found


def python(code: str) -> str:
    """A `run:` value that runs Python code, as a YAML (JSON) list."""
    return json.dumps([sys.executable, "-c", textwrap.dedent(code)])


class Powercap:
    """A powercap tree with one package of constant power, driven by a thread. On a busy machine it comes late by
    some tenths of a second, so what is measured over a second or two is off by as much: tests allow a quarter."""

    def __init__(self, root: Path, watts: float) -> None:
        self.root = root
        self.watts = watts
        self.zone = root / "intel-rapl:0"
        self.zone.mkdir(parents=True)
        (self.zone / "name").write_text("package-0\n")
        (self.zone / "max_energy_range_uj").write_text("262143328850\n")
        self._begin = time.monotonic()
        self._end = threading.Event()
        self._fd = os.open(self.zone / "energy_uj", os.O_WRONLY | os.O_CREAT, 0o644)
        self._write()
        self._thread = threading.Thread(target=self._drive, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        microjoules = int((time.monotonic() - self._begin) * self.watts * 1e6) + 1_000_000
        os.pwrite(self._fd, f"{microjoules:015d}\n".encode(), 0)  # in place: meters keep the file open

    def _drive(self) -> None:
        while not self._end.wait(0.01):
            self._write()

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        os.close(self._fd)
