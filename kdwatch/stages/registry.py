"""The built-in stages: what each is called, makes and takes. Imports no stage, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel

from kdwatch.stages import settings
from kdwatch.stages.prerun_settings import PrerunSettings
from kdwatch.stages.probe_settings import ProbeSettings

MODEL_COMPUTE = ("device", "threads")
"""Settings of every model stage that do not change its output by more than rounding."""


@dataclass(frozen=True, slots=True)
class BuiltinStage:
    """One entry: how the recorder launches a stage and what its output is."""

    kind: str
    """`prerun`, `preprocess`, `teacher`, `student` or `evaluate`."""
    module: str
    """Run as `python -m MODULE`."""
    makes: str | None
    """Kind of the artifact it writes; None: none."""
    settings: type[BaseModel] | None
    code_version: str
    """Goes up whenever the same settings would give another output."""
    inputs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Input name: kinds of artifact that it takes."""
    optional_inputs: frozenset[str] = frozenset()
    ignored_settings: frozenset[str] = frozenset()
    """Settings that do not change the output, so they are no part of its identity."""
    path_settings: frozenset[str] = frozenset()
    """Settings that may name a file or directory whose content is part of the identity."""
    reuse: bool = False
    """Whether a stored output is taken by default."""
    grace_s: float = 10.0
    """Seconds between TERM and KILL: time to save, if the disk is slow and the model large."""


def _ignored(*names: str) -> frozenset[str]:
    return frozenset((*MODEL_COMPUTE, *names))


BUILTIN: dict[str, BuiltinStage] = {
    "prerun": BuiltinStage(
        kind="prerun",
        module="kdwatch.stages.prerun",
        makes=None,
        settings=PrerunSettings,
        code_version="1",
    ),
    "preprocess": BuiltinStage(
        kind="preprocess",
        module="kdwatch.stages.preprocess",
        makes="dataset",
        settings=settings.PreprocessSettings,
        code_version="1",
        ignored_settings=frozenset({"teacher"}),
        path_settings=frozenset({"data", "tokenizer"}),
        reuse=True,
    ),
    "teacher.cache_logits": BuiltinStage(
        kind="teacher",
        module="kdwatch.stages.cache_logits",
        makes="logits",
        settings=settings.CacheSettings,
        code_version="1",
        inputs={"data": ("dataset", "generated")},
        ignored_settings=_ignored("batch_tokens", "shard_tokens"),
        path_settings=frozenset({"teacher"}),
        reuse=True,
    ),
    "teacher.generate": BuiltinStage(
        kind="teacher",
        module="kdwatch.stages.generate",
        makes="generated",
        settings=settings.GenerateSettings,
        code_version="1",
        inputs={"data": ("dataset",)},
        ignored_settings=_ignored("shard_rows", "tensor_parallel"),
        path_settings=frozenset({"teacher"}),
        reuse=True,
    ),
    "teacher.evaluate": BuiltinStage(
        kind="evaluate",
        module="kdwatch.stages.teacher_evaluate",
        makes="scores",
        settings=settings.TeacherEvaluateSettings,
        code_version="1",
        inputs={"data": ("dataset", "generated"), "logits": ("logits",)},
        optional_inputs=frozenset({"data", "logits"}),
        ignored_settings=_ignored("batch_rows"),
        path_settings=frozenset({"teacher", "exact_match"}),
        reuse=True,
    ),
    "student.train": BuiltinStage(
        kind="student",
        module="kdwatch.stages.train",
        makes="checkpoint",
        settings=settings.TrainSettings,
        code_version="1",
        inputs={"data": ("dataset", "generated"), "logits": ("logits",), "validation": ("dataset",)},
        optional_inputs=frozenset({"logits", "validation"}),
        ignored_settings=_ignored("checkpoint_every_s", "launcher"),
        path_settings=frozenset({"student", "teacher", "logits"}),
        grace_s=120.0,
    ),
    "evaluate": BuiltinStage(
        kind="evaluate",
        module="kdwatch.stages.evaluate",
        makes=None,
        settings=settings.StudentEvaluateSettings,
        code_version="1",
        inputs={
            "student": ("checkpoint",),
            "teacher_scores": ("scores",),
            "data": ("dataset", "generated"),
            "logits": ("logits",),
        },
        optional_inputs=frozenset({"teacher_scores", "data", "logits"}),
        ignored_settings=_ignored("batch_rows"),
        path_settings=frozenset({"student", "exact_match"}),
    ),
    "probe": BuiltinStage(
        kind="other",
        module="kdwatch.stages.probe",
        makes=None,
        settings=ProbeSettings,
        code_version="1",
    ),
}
