"""How the process of a built-in stage begins and ends: configuration in, one clear line out on failure."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from pydantic import ValidationError

from kdwatch import progress
from kdwatch.stages import cpu
from kdwatch.stages.problem import SAYS, StageProblem, first_line
from kdwatch.stages.settings import Settings

S = TypeVar("S", bound=Settings)
STOPPED = 128 + signal.SIGTERM


class Stopped(Exception):
    """The stage was told to end and has saved what it had."""


@dataclass(slots=True)
class Stage:
    """What the recorder gave this process."""

    name: str
    inputs: dict[str, Path]
    """Directories of the input artifacts."""
    output: Path | None
    """Directory to write into; it may hold what an earlier, killed process left there."""
    stopping: bool = False
    """True once SIGTERM came; long loops look at it, save and raise Stopped."""
    enough: bool = False
    """True once a probe has seen what it came for: loops that can do so end as at their last step."""
    report_s: float = 1.0
    """Seconds between two reports of a loop that has many steps a second; on a GPU each waits for the device once."""

    def need_output(self) -> Path:
        """The output directory, made if need be. StageProblem where the recorder gave none."""
        if self.output is None:
            raise StageProblem(f"stage {self.name}: no output directory was given: run it through a recipe")
        self.output.mkdir(parents=True, exist_ok=True)
        return self.output

    def check_stop(self) -> None:
        """Raise Stopped if SIGTERM came, or a probe has seen enough."""
        if self.stopping or self.enough:
            raise Stopped


def read_stage() -> tuple[Stage, dict[str, object]]:
    """(stage, its settings as plain values) from the file that KDWATCH_STAGE_CONFIG names."""
    if "KDWATCH_STAGE_CONFIG" not in os.environ:
        raise StageProblem("this module is a stage of a recipe: start it with kdwatch run RECIPE")
    config = progress.stage_config()
    inputs = {name: Path(path) for name, path in (config.get("inputs") or {}).items()}
    output = config.get("output")
    return Stage(config["name"], inputs, Path(output) if output else None), config.get("settings") or {}


def resumed(where: str) -> None:
    """Say that this process goes on with the work of an earlier one; tokens are counted from here on."""
    print(f"resumed {where}", flush=True)
    progress.warning("resumed", f"resumed {where}: energy and tokens before that are in the run that was stopped")


def run_stage(kind: type[S], work: Callable[[S, Stage], None]) -> None:
    """Run `work` and end the process: 0 done, 143 stopped, 2 bad input, 1 anything else."""
    cpu.prepare()
    sys.exit(_guarded(kind, work))


def _guarded(kind: type[S], work: Callable[[S, Stage], None]) -> int:
    try:
        stage, values = read_stage()
        settings = kind.model_validate(values)
        _watch_signals(stage)
        work(settings, stage)
    except Stopped:
        _say("stopped; what was done is saved and is taken up by the next run")
        return STOPPED
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        _say(f"setting {'.'.join(map(str, first['loc']))}: {first['msg']}")
        return 2
    except StageProblem as problem:
        _say(str(problem))
        return problem.exit_code
    except OSError as error:
        _say(_disk_line(error))
        return 1
    except Exception as error:  # libraries have kinds of their own for both
        if os.strerror(errno.ENOSPC) in str(error):
            _say(_disk_line(OSError(errno.ENOSPC, "")))
        elif _out_of_memory(error):
            _say(f"out of memory ({first_line(error, 120)}): lower {_memory_settings(kind)}")
        else:
            raise
        return 1
    return 0


def _watch_signals(stage: Stage) -> None:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        stage.stopping = True

    signal.signal(signal.SIGTERM, stop)


def _out_of_memory(error: BaseException) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or "can't allocate memory" in str(error)


def _memory_settings(kind: type[Settings]) -> str:
    known = [n for n in ("batch_rows", "batch_tokens", "max_new_tokens") if n in kind.model_fields]
    extra = (
        " (raise accumulate by as much), or set gradient_checkpointing: true"
        if "accumulate" in kind.model_fields
        else ""
    )
    return " or ".join(known) + extra


def _disk_line(error: OSError) -> str:
    where = f" {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"disk full{where}: free some space and run again; nothing half-written is used"
    return f"{error.strerror or error}{where}"


def _say(text: str) -> None:
    print(f"{SAYS}{text}", file=sys.stderr, flush=True)
