"""Settings of the built-in stage `probe`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError, model_validator

from kdwatch.stages import settings
from kdwatch.stages.settings import Positive, Settings

PROBED: dict[str, tuple[str, type[Settings]]] = {
    "preprocess": ("kdwatch.stages.preprocess", settings.PreprocessSettings),
    "teacher.cache_logits": ("kdwatch.stages.cache_logits", settings.CacheSettings),
    "teacher.generate": ("kdwatch.stages.generate", settings.GenerateSettings),
    "teacher.evaluate": ("kdwatch.stages.teacher_evaluate", settings.TeacherEvaluateSettings),
    "student.train": ("kdwatch.stages.train", settings.TrainSettings),
    "evaluate": ("kdwatch.stages.evaluate", settings.StudentEvaluateSettings),
}
"""Stages that can be probed: module and settings."""
SHARED = "shared"
"""Name of the part that imports what all others need."""


class ProbePart(Settings):
    """One stage that is begun."""

    name: str = Field(min_length=1, max_length=64)
    uses: str
    """Name of a built-in stage."""
    settings: dict[str, Any] = Field(default_factory=dict, alias="with")
    inputs: dict[str, str] = Field(default_factory=dict)
    """Input by name: an earlier part that makes it."""
    whole: bool = False
    """Run it to its end: others need what it makes."""
    least: int = Field(default=0, ge=0)
    """Answers after which a generation that others need may end; 0: at its end."""
    measured: bool = True
    """False where it only makes what others need; nothing is learned from it."""

    @model_validator(mode="after")
    def _known(self) -> ProbePart:
        if self.uses not in PROBED:
            raise ValueError(f"{self.uses} cannot be probed: use one of {', '.join(PROBED)}")
        try:
            PROBED[self.uses][1].model_validate(self.settings)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{self.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return self

    @property
    def own_process(self) -> bool:
        """Whether it needs processes of its own: several of them, or an engine that keeps the memory."""
        return self.settings.get("processes", 1) != 1 or self.settings.get("engine") == "vllm"


class ProbeSettings(Settings):
    """Short runs of stages one after the other in one process, so that libraries and the teacher are loaded once."""

    parts: list[ProbePart] = Field(min_length=1)
    least_seconds: Positive = 2.0
    """Shortest work of a part, unless it ends before."""
    seconds: Positive = 30.0
    """Longest work of a part that is not needed whole; it ends earlier once its speed is known to 2 %."""

    @model_validator(mode="after")
    def _in_order(self) -> ProbeSettings:
        known: set[str] = {SHARED}
        for part in self.parts:
            if part.name in known:
                raise ValueError(f"part {part.name}: the name is taken: give each part its own")
            missing = set(part.inputs.values()) - known | set(part.inputs.values()) & {SHARED}
            if missing:
                raise ValueError(f"part {part.name}: no earlier part {min(missing)} to take an input from")
            known.add(part.name)
        return self
