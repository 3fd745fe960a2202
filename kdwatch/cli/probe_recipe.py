"""From a recipe to its probes: each stage cut short, at two batches, two lengths, two student sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from kdwatch.rundir.errors import UsageProblem

if TYPE_CHECKING:
    from kdwatch.pipeline.recipe_model import Recipe, StageRecipe

DATA = "probe-data"
MANY_STEPS = 100_000
"""Updates that a student's probe may take; it is stopped long before."""
BATCHES = 6
"""Batches that a generation probe answers."""
LEAST_TESTS = 8
"""Rows of each benchmark that an evaluation's probe takes at least."""


@dataclass(frozen=True)
class ProbePlan:
    """The recipe that probes, stages that others wait for (never stopped early), and what could not be probed."""

    text: str
    needed: frozenset[str]
    left_out: tuple[str, ...]


def probe_plan(recipe: Recipe, rows: int, second_student: str | None = None) -> ProbePlan:
    """Probes for every built-in stage of a recipe. Raises UsageProblem where it has nothing to probe."""
    stages: list[dict[str, Any]] = []
    left_out = []
    prepared = next((stage for stage in recipe.stages if stage.uses == "preprocess"), None)
    if prepared is not None:
        stages.append(_stage(DATA, prepared, limit=rows, validation=0.0))
    for stage in recipe.stages:
        if stage.uses in ("preprocess", "prerun"):
            continue
        made = _probes_of(stage, recipe, prepared is not None, second_student)
        stages += made
        if not made:
            left_out.append(stage.name)
    probed = [stage for stage in stages if stage["name"] != DATA]
    if not probed:
        raise UsageProblem("the recipe has no built-in stage that can be probed: name one with `uses:`")
    needed = {source for stage in stages for source in stage.get("inputs", {}).values()}
    head = {"name": f"probe-{recipe.name}"[:64], "regime": "custom"}
    top = {
        key: value
        for key, value in recipe.model_dump(mode="json", exclude_none=True).items()
        if key in ("env", "workdir") and value
    }
    return ProbePlan(
        yaml.safe_dump(head | top | {"stages": stages}, sort_keys=False), frozenset(needed), tuple(left_out)
    )


def _stage(name: str, stage: StageRecipe, inputs: Mapping[str, str] | None = None, **settings: Any) -> dict[str, Any]:
    """A stage of the probe recipe: the original's settings with some replaced (None: taken out)."""
    merged = {key: value for key, value in (stage.settings | settings).items() if value is not None}
    made: dict[str, Any] = {"name": name, "uses": stage.uses, "with": merged}
    if inputs:
        made["inputs"] = dict(inputs)
    if stage.gpus is not None:
        made["gpus"] = stage.gpus
    if stage.env:
        made["env"] = dict(stage.env)
    return made if name == DATA else made | {"reuse": False}


def _probes_of(stage: StageRecipe, recipe: Recipe, has_data: bool, second: str | None) -> list[dict[str, Any]]:
    if stage.uses == "teacher.cache_logits" and has_data:
        return _forward(stage)
    if stage.uses == "teacher.generate" and has_data:
        return _generation(stage)
    if stage.uses == "student.train" and has_data and stage.settings.get("objective") != "on_policy":
        return _students(stage, recipe, second)
    if stage.uses == "teacher.evaluate" and stage.settings.get("exact_match"):
        return [_stage(f"probe-{stage.name}", stage, limit=_tests(stage))]
    if stage.uses == "evaluate" and stage.settings.get("exact_match"):
        student = next((s.settings.get("student") for s in recipe.stages if s.uses == "student.train"), None)
        return [_stage(f"probe-{stage.name}", stage, limit=_tests(stage), student=student)] if student else []
    return []


def _tests(stage: StageRecipe) -> int:
    """Rows of each benchmark: a quarter of a batch, so that several benchmarks fill one."""
    return max(LEAST_TESTS, int(stage.settings.get("batch_rows", 64)) // 4)


def _forward(stage: StageRecipe) -> list[dict[str, Any]]:
    """Two batches; the first one's output is what a KD probe trains on."""
    whole = int(stage.settings.get("batch_tokens", 8192))
    names = ((f"probe-{stage.name}", whole), (f"probe-{stage.name}-small", max(64, whole // 4)))
    return [_stage(name, stage, {"data": DATA}, batch_tokens=size) for name, size in names]


def _generation(stage: StageRecipe) -> list[dict[str, Any]]:
    """Two batches times two lengths."""
    batch, length = int(stage.settings.get("batch_rows") or 16), int(stage.settings.get("max_new_tokens", 512))
    made = []
    for rows in dict.fromkeys((batch, max(1, batch // 4))):
        for tokens in dict.fromkeys((length, max(4, length // 4))):
            name = f"probe-{stage.name}-b{rows}-l{tokens}"
            made.append(
                _stage(name, stage, {"data": DATA}, batch_rows=rows, max_new_tokens=tokens, prompts=BATCHES * rows)
            )
    return made


def _students(stage: StageRecipe, recipe: Recipe, second: str | None) -> list[dict[str, Any]]:
    inputs = {"data": DATA}
    if stage.settings.get("objective") == "kd":
        cache = next((s.name for s in recipe.stages if s.uses == "teacher.cache_logits"), None)
        inputs["logits"] = f"probe-{cache}"
    changes = {"max_steps": MANY_STEPS, "early_stop": None, "epochs": None}
    made = [_stage(f"probe-{stage.name}", stage, inputs, **changes)]
    if second:
        made.append(_stage(f"probe-{stage.name}-second", stage, inputs, student=second, **changes))
    return made
