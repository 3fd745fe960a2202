"""Starting a recorder: a process in a session of its own that outlives this one. Light, for measured programs."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import home, runs_dir

START_LIMIT_S = 60.0
"""Time for finding sensors and writing the manifest."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a run or a stage may be called: the name becomes part of file names."""


def check_home() -> None:
    """Raise UsageProblem where runs cannot be recorded or written."""
    if os.name == "nt":
        raise UsageProblem("recording needs Linux or macOS: on Windows run kdwatch inside WSL")
    folder = runs_dir()
    try:
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise UsageProblem(
            f"{folder}: cannot be made ({error.strerror}): set KDWATCH_HOME to a place you can write"
        ) from None
    if not writable:
        raise UsageProblem(f"{folder}: cannot be written: set KDWATCH_HOME to a place you can write")


def spawn(spec: Mapping[str, Any], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a recorder and hand it its specification."""
    whole = {**os.environ, **(env or {})}
    place = Path(whole.get("KDWATCH_HOME") or home()).expanduser().absolute()
    process = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("recorder.py"))],  # -P: no module of the user's directory
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**whole, "KDWATCH_HOME": str(place)},  # stages have other working directories
        bufsize=0,
    )
    assert process.stdin
    try:
        process.stdin.write(json.dumps(spec).encode() + b"\n")
    except BrokenPipeError:
        pass
    return process


def wait_for_answer(process: subprocess.Popen[bytes], limit_s: float = START_LIMIT_S) -> dict[str, Any]:
    """The recorder's first line. Raises UsageProblem with its text where it could not begin."""
    assert process.stdout
    deadline = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, left))
        data = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not data:
            why = "ended before it wrote its manifest" if ready else f"did not answer within {limit_s:.0f} s"
            if not ready:
                process.kill()
            raise UsageProblem(f"the recorder {why}: try `kdwatch doctor`")
        line += data
    answer = json.loads(line.splitlines()[0])
    if "error" in answer:
        raise UsageProblem(str(answer["error"]))
    return answer
