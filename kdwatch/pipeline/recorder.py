"""The recorder's process: `python -P kdwatch/pipeline/recorder.py`.

It reads one JSON line (pipeline/launch.py makes it) from its standard input, and answers with one line:
`{"run": path}` once the manifest is written, or `{"error": text}`. It leads a session of its own and ignores the
terminal's end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from importlib import import_module

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from kdwatch.pipeline import processes
from kdwatch.pipeline.answers import answer

log = logging.getLogger("kdwatch.recorder")

DRIVERS = {"recipe": "kdwatch.pipeline.runner", "attached": "kdwatch.pipeline.attached"}
"""Who decides what runs: a recipe, or a client (exec, kdwatch.stage)."""


def prepare_process() -> None:
    """Be the reaper of orphans, and outlive the terminal."""
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def main() -> int:
    """Record one run. Returns its exit code."""
    prepare_process()
    from kdwatch.rundir.errors import UsageProblem

    try:
        spec = json.loads(read_line())
        driver = import_module(DRIVERS[spec["mode"]])  # one of two: each start should be quick
        return int(driver.record(spec))
    except UsageProblem as problem:
        answer(error=str(problem))
        return 2
    except Exception as error:
        log.exception("recorder")
        answer(error=f"the recorder failed: {type(error).__name__}: {error}")
        return 1


def read_line() -> bytes:
    """One line of standard input, no byte more."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
