"""What a recipe may hold: one model for the run, one for a stage."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from kdwatch.ledger.units import parse_duration, parse_energy
from kdwatch.pipeline.caplog import DEFAULT_CAP_B
from kdwatch.pipeline.spawn import NAME
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
SHELL_SIGN = re.compile(r";(?=\s|$)|(?<!\S)(?:\d?>>?|<<?|\|\|?|&&?)|\$\{?[A-Za-z_(]\w*")
"""What a shell would act on, outside quotes; within a word, as in a URL, only `$NAME`."""


def _seconds(value: Any) -> Any:
    """`2h`, `10s` or a number of seconds, to seconds."""
    if isinstance(value, str):
        return _usage(parse_duration, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value


def _joules(value: Any) -> Any:
    """`20kWh` or `72MJ`, to joules; a bare number has no unit and is refused."""
    if isinstance(value, str):
        return _usage(parse_energy, value)
    raise ValueError("an energy needs its unit: write 20kWh, 500Wh or 72MJ")


def _usage(parse: Any, value: str) -> float:
    try:
        return parse(value)
    except UsageProblem as problem:
        raise ValueError(str(problem)) from None


def _environment(value: Any) -> Any:
    """Numbers and booleans in `env:` become the text that a shell would see."""
    if not isinstance(value, dict):
        return value
    for key, item in value.items():
        if isinstance(item, dict | list) or item is None:
            raise ValueError(f"{clean(key, 60)}: give one text or number; to unset a variable give an empty text")
    return {str(k): ("true" if v else "false") if isinstance(v, bool) else str(v) for k, v in value.items()}


def _bytes(value: Any) -> Any:
    """`100MB` to bytes, decimal units."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(kB|KB|MB|GB)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("needs a number with kB, MB or GB: write 100MB")
    return round(float(match[1]) * {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[match[2][0]])


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False)]
Joules = Annotated[float, BeforeValidator(_joules), Field(ge=0, allow_inf_nan=False)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1000)]
Environment = Annotated[dict[str, str], BeforeValidator(_environment)]
Kind = Literal["prerun", "preprocess", "teacher", "student", "evaluate", "other"]


class StageRecipe(BaseModel):
    """One stage: a built-in (`uses`) or any command (`run`)."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """Name in reports and files; letters, digits, `.`, `_`, `-`."""
    kind: Kind | None = None
    """What the stage is in the accounting; built-in stages know theirs."""
    uses: str | None = None
    """Name of a built-in stage."""
    run: str | list[str] | None = None
    """Command: a text is split into words as a shell would; a list is taken as it is. No shell runs it."""
    settings: dict[str, Any] = Field(default_factory=dict, alias="with")
    """Settings of a built-in stage."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Input of a built-in stage by name: the stage that makes it."""
    gpus: list[int | str] | str | int | None = None
    """GPUs of this stage: becomes CUDA_VISIBLE_DEVICES, and shares out energy when stages overlap."""
    env: Environment = Field(default_factory=dict)
    """Environment of this stage, over the recipe's and the caller's."""
    workdir: Path | None = None
    """Working directory; relative to the recipe's."""
    timeout: Seconds | None = None
    """Time in seconds after which the stage is ended; None: never."""
    grace: Seconds | None = None
    """Seconds between TERM and KILL, and how long processes may outlive the stage's first; None: what a built-in needs
    to save, 10 for a command."""
    reuse: bool | None = None
    """Take a stored output that matches instead of running; None: the built-in's own default."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
        return value

    @field_validator("run")
    @classmethod
    def _run(cls, value: str | list[str] | None) -> list[str] | None:
        if value is None:
            return None
        if isinstance(value, str) and (sign := SHELL_SIGN.search(QUOTED.sub("_", value))):
            raise ValueError(f"{sign[0].strip()} is for a shell, and none runs this: write sh -c '...', or quote it")
        words = shlex.split(value) if isinstance(value, str) else value
        if not words or not words[0]:
            raise ValueError("is empty: give a command")
        if any("\0" in word for word in words):
            raise ValueError("holds a NUL character")
        return words

    @model_validator(mode="after")
    def _one_way(self) -> StageRecipe:
        if (self.uses is None) == (self.run is None):
            raise ValueError("give either `uses:` (a built-in stage) or `run:` (a command), and only one")
        if self.run is not None and (self.settings or self.inputs):
            raise ValueError("`with:` and `inputs:` belong to built-in stages (`uses:`); give a command its arguments")
        return self

    @property
    def argv(self) -> list[str]:
        """Words of the command; empty for a built-in stage."""
        return list(self.run) if self.run else []

    @property
    def gpu_list(self) -> list[int | str] | None:
        """Declared GPUs one by one: indices as numbers, UUIDs as text; None: not declared."""
        if self.gpus is None:
            return None
        entries = self.gpus if isinstance(self.gpus, list) else str(self.gpus).split(",")
        words = [str(entry).strip() for entry in entries]
        return [int(word) if word.isdigit() else word for word in words if word]

    @property
    def cuda_devices(self) -> str | None:
        """CUDA_VISIBLE_DEVICES of this stage; None: as inherited."""
        return None if self.gpu_list is None else ",".join(map(str, self.gpu_list))


class Recipe(BaseModel):
    """A run, as its file describes it."""

    model_config = ConfigDict(extra="forbid")

    name: str = "run"
    """Name of the run; part of its id."""
    regime: Literal["sft", "kd", "synthetic_sft", "custom"] = "custom"
    budget: Joules | None = None
    """Energy budget in joules."""
    stop_over_budget: bool = False
    """End the run when its energy passes the budget."""
    region: str | None = None
    """Country of the grid, ISO 3166 alpha-3."""
    intensity: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Carbon intensity in g CO2e per kWh; overrides the region's."""
    pue: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Power usage effectiveness of the site."""
    env: Environment = Field(default_factory=dict)
    workdir: Path | None = None
    """Working directory of all stages; relative to the recipe's file."""
    idle_baseline: Seconds | None = None
    """Seconds of idle power to measure before the first stage."""
    log_cap: Bytes = DEFAULT_CAP_B
    """Bytes of output that are kept of each stage: head and tail."""
    sweep: dict[str, Any] | list[Any] | None = None
    """Grid of settings for `kdwatch sweep` (`kdwatch.pipeline.sweep`); `kdwatch run` refuses a recipe that has one."""
    stages: list[StageRecipe] = Field(min_length=1)

    _path: Path | None = PrivateAttr(default=None)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
        return value

    def renamed(self, name: str) -> Recipe:
        """The same recipe under another name. Raises UsageProblem for a name that cannot be."""
        if not NAME.fullmatch(name):
            raise UsageProblem(
                f"--name {name!r}: use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
            )
        return self.model_copy(update={"name": name})

    @property
    def folder(self) -> Path:
        """Directory that relative paths of the recipe start from."""
        base = self._path.parent if self._path else Path.cwd()
        return (base / self.workdir if self.workdir else base).resolve()

    def workdir_of(self, stage: StageRecipe) -> Path:
        """Working directory of a stage, absolute."""
        return (self.folder / stage.workdir).resolve() if stage.workdir else self.folder
