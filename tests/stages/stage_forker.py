"""Runs stages as children of a process that has torch loaded already: `python stage_forker.py MODULE...`.

One JSON line in, one out. `{"uses", "config", "events", "log", "kill_after", "headroom_b"}`: fork, run the stage as the
recorder's process would, and send SIGKILL after `kill_after` seconds (null: never); its address space may grow by
`headroom_b` bytes (null: freely). Answer: `{"code", "seconds"}` with the exit status as subprocess gives it. Importing
torch for each of hundreds of kills would take hours.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kdwatch.stages.entry import run_stage
from kdwatch.stages.registry import BUILTIN


def child(order: dict[str, Any]) -> NoReturn:
    """The stage itself; output goes to the log file."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["KDWATCH_STAGE_CONFIG"] = order["config"]
    os.environ["KDWATCH_EVENTS"] = order["events"]
    if order["headroom_b"] is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + order["headroom_b"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    code = 1
    try:
        entry = BUILTIN[order["uses"]]
        assert entry.settings is not None
        run_stage(entry.settings, importlib.import_module(entry.module).work)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(order: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait, kill in time."""
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        child(order)
    limit = order["kill_after"]
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return {"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - begin}
        if limit is not None and time.monotonic() - begin >= limit:
            os.kill(pid, signal.SIGKILL)
            limit = None
        time.sleep(0.001)


def main() -> None:
    """Until the input ends."""
    import torch

    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
