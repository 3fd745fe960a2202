"""From a recipe to its probes: each stage cut short, at two batches, two lengths, two student sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from kdwatch.rundir.errors import UsageProblem

if TYPE_CHECKING:
    from kdwatch.pipeline.recipe_model import Recipe, StageRecipe

MANY_STEPS = 100_000
"""Updates that a student's probe may take; it stops itself long before."""
BATCHES = 6
"""Batches that a generation probe answers, the first one at least."""
SMALL_BATCH, LARGE_BATCH = 16, 128
"""Rows of a batch that is probed beside the one left to the memory, and that one's as it is guessed."""
TEST_BATCHES = 6
"""Batches of each benchmark that an evaluation's probe asks."""
Part = dict[str, Any]


@dataclass(frozen=True)
class ProbePlan:
    """The recipe that probes, and the stages that could not be probed."""

    text: str
    left_out: tuple[str, ...]


def probe_plan(recipe: Recipe, rows: int, seconds: float, second_student: str | None = None) -> ProbePlan:
    """Probes for every built-in stage of a recipe: one process for all stages of the same GPUs and environment.

    Raises UsageProblem where there is nothing to probe.
    """
    places: dict[str, list[Part]] = {}
    known: dict[str, Part] = {}
    left_out = []
    for stage in recipe.stages:
        made = _parts_of(stage, recipe, known, rows, second_student)
        places.setdefault(_place(stage), []).extend(made)
        known |= {part["name"]: part for part in made}
        if not made and stage.uses != "prerun":
            left_out.append(stage.name)
    if all(part["uses"] == "preprocess" for part in known.values()):
        raise UsageProblem("the recipe has no built-in stage that can be probed: name one with `uses:`")
    needed = {source for part in known.values() for source in part.get("inputs", {}).values()}
    for part in known.values():
        part |= {"whole": True} if part["name"] in needed else {}
    stages: list[dict[str, Any]] = []
    for place, parts in places.items():
        if parts:
            number = f"-{len(stages) + 1}" if stages else ""
            settings = {"seconds": seconds, "parts": list(_with_needed(parts, known))}
            stages.append({"name": f"probe{number}", "uses": "probe", "with": settings} | json.loads(place))
    head = {"name": f"probe-{recipe.name}"[:64], "regime": "custom"}
    top = {
        key: value
        for key, value in recipe.model_dump(mode="json", exclude_none=True).items()
        if key in ("env", "workdir") and value
    }
    return ProbePlan(yaml.safe_dump(head | top | {"stages": stages}, sort_keys=False), tuple(left_out))


def _place(stage: StageRecipe) -> str:
    """Where a stage runs, as the keys of a stage of the probing recipe."""
    kept = stage.model_dump(mode="json", include={"gpus", "env", "workdir"}, exclude_none=True)
    return json.dumps({key: value for key, value in kept.items() if value or key == "gpus"}, sort_keys=True)


def _with_needed(parts: Sequence[Part], known: Mapping[str, Part]) -> Iterator[Part]:
    """The parts, each behind those that it needs; what is measured in another place is only made again here."""
    there, here = {part["name"] for part in parts}, set[str]()

    def before(part: Part) -> Iterator[Part]:
        for source in part.get("inputs", {}).values():
            if source not in here:
                yield from before(known[source])
        here.add(part["name"])
        yield part if part["name"] in there else part | {"measured": False}

    for part in parts:
        if part["name"] not in here:
            yield from before(part)


def _part(
    stage: StageRecipe,
    end: str = "",
    inputs: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Part:
    """A part with the stage's settings, of which some are replaced (None: taken out)."""
    merged = {key: value for key, value in (stage.settings | dict(settings or {})).items() if value is not None}
    part: Part = {"name": f"{stage.name}{end}"[:64], "uses": stage.uses, "with": merged}
    return part | ({"inputs": dict(inputs)} if inputs else {})


def _parts_of(
    stage: StageRecipe, recipe: Recipe, known: Mapping[str, Part], rows: int, second: str | None
) -> list[Part]:
    """Parts of one stage; none where it cannot be begun by itself. Of the data, which is read until its speed is known,
    later parts get a few rows that are read again."""
    uses, settings = stage.uses, stage.settings
    inputs = {name: source for name, source in stage.inputs.items() if name in ("data", "logits") and source in known}
    if uses == "preprocess":
        few = {"limit": min(rows, settings.get("limit") or rows), "validation": 0.0}
        return [_part(stage, "-all"), _part(stage, settings=few) | {"measured": False}]
    if uses == "teacher.cache_logits" and "data" in inputs:
        return _forward(stage, inputs)
    if uses == "teacher.generate" and "data" in inputs:
        return _generation(stage, inputs)
    if uses == "student.train" and "data" in inputs and settings.get("objective") != "on_policy":
        return _students(stage, inputs, second)
    if uses in ("evaluate", "teacher.evaluate") and _only_exact_match(settings):
        some = TEST_BATCHES * int(settings.get("batch_rows", 64))
        tests = {"limit": min(some, settings.get("limit") or some)}
        if uses == "teacher.evaluate":
            return [_part(stage, settings=tests)]
        student = next((s.settings.get("student") for s in recipe.stages if s.uses == "student.train"), None)
        return [_part(stage, settings=tests | {"student": student})] if student else []
    return []


def _only_exact_match(settings: Mapping[str, Any]) -> bool:
    others = ("perplexity", "agreement", "lm_eval", "command")
    return bool(settings.get("exact_match")) and not any(settings.get(name) for name in others)


def _forward(stage: StageRecipe, inputs: Mapping[str, str]) -> list[Part]:
    """Two batches; the first one's output is what a KD probe trains on."""
    whole = int(stage.settings.get("batch_tokens", 8192))
    sizes = (("", whole), ("-small", max(64, whole // 4)))
    return [_part(stage, end, inputs, {"batch_tokens": size}) for end, size in sizes]


def _generation(stage: StageRecipe, inputs: Mapping[str, str]) -> list[Part]:
    """Two batches times two lengths; the first one's answers are what a student's probe trains on. A batch that the
    recipe leaves to the memory is left to it here too."""
    batch, length = stage.settings.get("batch_rows"), int(stage.settings.get("max_new_tokens", 512))
    made: list[Part] = []
    for rows in dict.fromkeys((batch, max(1, batch // 4) if batch else SMALL_BATCH)):
        for tokens in dict.fromkeys((length, max(4, length // 4))):
            end = f"-b{rows or 'all'}-l{tokens}" if made else ""
            prompts = BATCHES * (rows or LARGE_BATCH)
            shards = min(int(stage.settings.get("shard_rows", 512)), prompts)  # each costs a save, as in the full run
            shape = {"batch_rows": rows, "max_new_tokens": tokens, "shard_rows": shards, "prompts": prompts}
            made.append(_part(stage, end, inputs, shape))
    made[0]["least"] = made[0]["with"].pop("prompts")
    return made


def _students(stage: StageRecipe, inputs: Mapping[str, str], second: str | None) -> list[Part]:
    if stage.settings.get("objective") == "kd" and not (stage.settings.get("logits") or "logits" in inputs):
        return []
    changes = {"max_steps": MANY_STEPS, "early_stop": None, "epochs": None}
    made = [_part(stage, "", inputs, changes)]
    if second:
        made.append(_part(stage, "-second", inputs, changes | {"student": second}))
    return made
