"""Starting a stage again as several processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from types import FrameType

from kdwatch.stages.cpu import usable_cores
from kdwatch.stages.entry import Stage, Stopped
from kdwatch.stages.problem import StageProblem, TrainingProblem

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node"]
ACCELERATE = [
    "accelerate.commands.launch",
    *("--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
    *("--main_process_port", "0", "--num_processes"),
]
"""Its `multi_gpu` starts processes on any device; number formats are the stage's own matter. Port 0: a free one."""

SAVE_S = "110"
"""Seconds that the launcher gives its processes to save after SIGTERM (30 by default): what the recorder gives the
stage, less some to end. After it a process that waits for a dead peer is killed."""


def spread(module: str, processes: int, launcher: str, stage: Stage) -> bool:
    """Run `module` in this many processes and wait for them; False where this process is to do the work itself.

    SIGTERM is passed on, so that each of them can save. Raises TrainingProblem where one of them failed, StageProblem
    where accelerate is asked for and not installed.
    """
    if os.environ.get("RANK", "0") != "0":
        os.environ.pop("KDWATCH_EVENTS", None)
    if processes == 1 or "RANK" in os.environ:
        return False
    if launcher == "accelerate" and find_spec("accelerate") is None:
        raise StageProblem("launcher: accelerate is not installed here: install it, or take launcher: torchrun")
    words = ACCELERATE if launcher == "accelerate" else TORCHRUN
    share = {"OMP_NUM_THREADS": str(max(1, usable_cores() // processes))}
    env = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": SAVE_S, **share, **os.environ}
    child = subprocess.Popen([sys.executable, "-m", *words, str(processes), "-m", module], env=env)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        stage.stopping = True
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    code = child.wait()
    if stage.stopping:
        raise Stopped
    if code:
        raise TrainingProblem(f"one of the {processes} processes failed (exit status {code}): its message stands above")
    return True
