"""Stage `probe`: other stages begun one after the other in one process, each until its speed is known.

Importing torch and loading a large teacher cost more than a probe's own work; here they are paid once. What each part
used is told apart by its reports (`kdwatch.progress.part`).
"""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from kdwatch import progress
from kdwatch.stages.entry import STOPPED, Stage, Stopped, run_stage
from kdwatch.stages.files import write_json
from kdwatch.stages.pace import Pace, Pacer
from kdwatch.stages.probe_settings import PROBED, SHARED, ProbePart, ProbeSettings
from kdwatch.stages.problem import StageProblem, TrainingProblem

SCRATCH = "scratch"
REPORT_S = 0.25
"""Seconds between two reports of a part."""
POLL_S = 0.1
"""Seconds between two looks at a part in a process of its own."""


def work(settings: ProbeSettings, stage: Stage) -> None:
    """Run all parts. What they make is deleted as soon as no later part needs it."""
    imported = False
    with _scratch() as folder, ExitStack() as teachers:
        for number, part in enumerate(settings.parts):
            if not imported and _needs_torch(part):
                _import(part, teachers)
                imported = True
            _one(part, settings, stage, folder)
            later = settings.parts[number + 1 :]
            _clean(folder, later)
            if not any(_runs_teacher(other) for other in later):
                teachers.close()
            _free_memory()
            progress.progress(step=number + 1, total_steps=len(settings.parts))


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory beside the stage's configuration, gone at the end."""
    folder = Path(os.environ["KDWATCH_STAGE_CONFIG"]).parent / SCRATCH
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _needs_torch(part: ProbePart) -> bool:
    return part.uses != "preprocess" and not part.own_process


def _runs_teacher(part: ProbePart) -> bool:
    return part.uses.startswith("teacher.")


def _import(first: ProbePart, teachers: ExitStack) -> None:
    """What every stage of a full run imports for itself, as a part of its own."""
    with progress.part(SHARED):
        from kdwatch.stages.nn import models

        name = first.settings.get("teacher") or first.settings.get("student")
        models.import_class(str(name), first.settings.get("revision"))
        gc.freeze()  # modules stay: looking through them after each part would take longer than the part's own objects
    teachers.enter_context(models.kept_loaded())


def _one(part: ProbePart, settings: ProbeSettings, stage: Stage, folder: Path) -> None:
    """One part, to its end or until its speed is known."""
    inputs = {name: folder / source for name, source in part.inputs.items()}
    mine = Stage(part.name, inputs, folder / part.name, report_s=REPORT_S)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stage.stopping = mine.stopping = True

    def enough() -> None:
        mine.enough = True

    signal.signal(signal.SIGTERM, stop)
    stage.check_stop()
    pace = Pace(settings.least_seconds, settings.seconds, part.least)
    if part.uses == "preprocess" and not part.measured:
        pace = Pace(0.0, 0.0, int(part.settings.get("limit") or 0))
    to_the_end = part.whole and part.uses != "preprocess" and not part.least
    with nullcontext() if to_the_end else Pacer(part.name, pace, enough), progress.part(part.name):
        try:
            (_apart if part.own_process else _here)(part, mine)
        except Stopped:
            if stage.stopping:
                raise
        except StageProblem as problem:
            raise type(problem)(f"{part.name}: {problem}") from None


def _here(part: ProbePart, mine: Stage) -> None:
    module, kind = PROBED[part.uses]
    importlib.import_module(module).work(kind.model_validate(part.settings), mine)


def _apart(part: ProbePart, mine: Stage) -> None:
    """A part that needs processes of its own. Raises TrainingProblem where it failed."""
    progress.phase("process")
    assert mine.output is not None
    config = mine.output.with_suffix(".json")
    inputs = {name: str(path) for name, path in mine.inputs.items()}
    write_json(config, {"name": part.name, "settings": part.settings, "inputs": inputs, "output": str(mine.output)})
    environment = os.environ | {"KDWATCH_STAGE_CONFIG": str(config)}
    child = subprocess.Popen([sys.executable, "-P", "-m", PROBED[part.uses][0]], env=environment)
    told = False
    while (code := child.poll()) is None:
        if (mine.enough or mine.stopping) and not told:
            child.terminate()
            told = True
        time.sleep(POLL_S)
    if mine.stopping:
        raise Stopped
    if code not in (0, STOPPED):
        raise TrainingProblem(f"it failed (exit status {code}): its message stands above")


def _clean(folder: Path, later: Sequence[ProbePart]) -> None:
    needed = {source for part in later for source in part.inputs.values()}
    for path in folder.iterdir():
        if path.is_dir() and path.name not in needed:
            shutil.rmtree(path, ignore_errors=True)


def _free_memory() -> None:
    """Let go of the part's model before the next one comes."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    run_stage(ProbeSettings, work)
