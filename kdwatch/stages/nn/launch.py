"""Starting a stage again as several processes of this machine, with torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from kdwatch.stages.entry import Stage, Stopped
from kdwatch.stages.problem import TrainingProblem


def spread(module: str, processes: int, stage: Stage) -> bool:
    """Run `module` in this many processes and wait for them; False where this process is to do the work itself.

    SIGTERM is passed on, so that each of them can save. Raises TrainingProblem where one of them failed.
    """
    if os.environ.get("RANK", "0") != "0":
        os.environ.pop("KDWATCH_EVENTS", None)
    if processes == 1 or "RANK" in os.environ:
        return False
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    child = subprocess.Popen([*torchrun, f"--nproc-per-node={processes}", "-m", module])

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
