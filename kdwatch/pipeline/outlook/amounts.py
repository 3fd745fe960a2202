"""Tokens and disk that each stage will take, from the recipe's settings and the counts of its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kdwatch.pipeline.artifacts import Artifact
from kdwatch.pipeline.outlook import data
from kdwatch.pipeline.outlook.data import AT_MOST, DataCount
from kdwatch.pipeline.outlook.models import ModelFacts, model_facts
from kdwatch.pipeline.resolve import ResolvedStage

DATASET_B = 5
"""Bytes of a stored token: its id (int32) and whether it is a target (bool)."""
UNKNOWN = ModelFacts()
WEIGHT_B = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Amounts:
    """What one stage handles. None is unknown."""

    tokens: float | None = None
    """As the report counts them: forward, generated, or trained tokens."""
    how: str | None = None
    """`counted`, `sampled` or `at most`."""
    input_tokens: float | None = None
    disk_b: float | None = None
    """Bytes of its output."""
    disk_how: str | None = None
    """As `how`, of the bytes."""
    model: ModelFacts = UNKNOWN
    """The model that it runs."""
    makes: DataCount | None = None
    """Data that it hands on."""
    rows: float | None = None
    """Prompts that are answered."""
    read_tokens: float | None = None
    """Tokens that are encoded to make `tokens`, of which a `limit` keeps a part."""


Maker = Callable[[ResolvedStage, Mapping[str, Amounts], Artifact | None], Amounts]


def amounts(stage: ResolvedStage, before: Mapping[str, Amounts], found: Artifact | None) -> Amounts:
    """Amounts of a stage; `before`: those of earlier stages by name; `found`: its stored output."""
    uses = stage.recipe.uses
    makers: dict[str, Maker] = {
        "preprocess": _preprocess,
        "teacher.cache_logits": _cache,
        "teacher.generate": _generate,
    }
    makers |= {"student.train": _train, "teacher.evaluate": _evaluate, "evaluate": _evaluate}
    make = makers.get(uses or "")
    return make(stage, before, found) if make else Amounts()


def _source(stage: ResolvedStage, before: Mapping[str, Amounts], name: str = "data") -> Amounts:
    return before.get(stage.recipe.inputs.get(name, ""), Amounts())


def _preprocess(stage: ResolvedStage, _: Mapping[str, Amounts], found: Artifact | None) -> Amounts:
    stored = data.stored_count(found.path) if found else None
    count = stored or data.raw_count(stage.settings, stage.workdir)
    if count is None:
        return Amounts()
    disk = count.tokens * DATASET_B
    read = count.read or count.tokens
    return Amounts(count.tokens, count.how, disk_b=disk, disk_how=count.how, makes=count, read_tokens=read)


def _cache(stage: ResolvedStage, before: Mapping[str, Amounts], found: Artifact | None) -> Amounts:
    count = _source(stage, before).makes
    model = model_facts(stage.settings["teacher"], stage.workdir)
    size = float(found.size_b) if found else None
    if count is None:
        return Amounts(model=model, disk_b=size)
    per_position = cache_bytes(stage.settings, model.vocabulary)
    if size is None and per_position is not None:
        size = per_position * count.response
    return Amounts(count.tokens, count.how, disk_b=size, disk_how=None if found else count.how, model=model)


def cache_bytes(settings: Mapping[str, Any], vocabulary: int | None) -> int | None:
    """Bytes of one response position of a logit cache; None where the vocabulary is unknown."""
    if vocabulary is None:
        return None
    try:
        from kdwatch.stages.cache_logits import layout_of
        from kdwatch.stages.settings import CacheSettings

        return layout_of(CacheSettings.model_validate(settings), vocabulary).bytes_per_position
    except ImportError:  # kdwatch without its training extra
        return None


def _generate(stage: ResolvedStage, before: Mapping[str, Amounts], found: Artifact | None) -> Amounts:
    model = model_facts(stage.settings["teacher"], stage.workdir)
    stored = data.stored_count(found.path) if found else None
    if stored is not None:
        size = stored.tokens * DATASET_B
        return Amounts(stored.response, stored.how, stored.prompt, size, stored.how, model, stored, stored.rows)
    count = _source(stage, before).makes
    if count is None:
        return Amounts(model=model)
    prompts = stage.settings.get("prompts")
    used = count.part(prompts / count.rows) if prompts and prompts < count.rows else count
    answers = used.rows * float(stage.settings["max_new_tokens"])
    prompt = used.tokens if used.how == AT_MOST else used.prompt  # a bound does not tell prompts and answers apart
    made = DataCount(used.rows, prompt + answers, answers, AT_MOST)
    return Amounts(answers, AT_MOST, prompt, made.tokens * DATASET_B, AT_MOST, model, made, used.rows)


def _train(stage: ResolvedStage, before: Mapping[str, Amounts], _: Artifact | None) -> Amounts:
    settings = stage.settings
    model = model_facts(settings["student"], stage.workdir)
    weights = WEIGHT_B[settings["weights"]] * model.params if model.params else None
    count = _source(stage, before).makes
    if count is None or not count.rows:
        return Amounts(disk_b=weights, model=model)
    per_row = count.tokens / count.rows
    if settings["objective"] == "on_policy":
        per_row = count.prompt / count.rows + settings["max_new_tokens"]
    rows = count.rows * count.training * settings["epochs"]
    if settings["max_steps"]:
        rows = settings["max_steps"] * settings["batch_rows"] * settings["accumulate"]
    bounded = settings["early_stop"] or settings["objective"] == "on_policy"
    return Amounts(rows * per_row, AT_MOST if bounded else count.how, disk_b=weights, model=model)


def _evaluate(stage: ResolvedStage, before: Mapping[str, Amounts], _: Artifact | None) -> Amounts:
    named = stage.settings.get("teacher") or stage.settings.get("student")
    model = model_facts(named, stage.workdir) if named else _source(stage, before, "student").model
    count = _prompts(stage, model)
    if count is None or stage.settings.get("lm_eval") or stage.settings.get("command"):
        return Amounts(model=model)
    most = count.prompt + count.rows * stage.settings["max_new_tokens"]
    rows = None if stage.settings["limit"] else count.rows  # a limit is for each task, and tasks are not counted
    return Amounts(most, AT_MOST, count.prompt, model=model, rows=rows)


def _prompts(stage: ResolvedStage, model: ModelFacts) -> DataCount | None:
    """Rows and prompt tokens of an exact-match file; `limit`, which is for each task, is not applied."""
    if not stage.settings.get("exact_match") or model.folder is None:
        return None
    keys = {name: stage.settings[name] for name in ("prompt_key", "response_key", "task_key")}
    whole = {"data": stage.settings["exact_match"], "tokenizer": str(model.folder), "max_length": 1_000_000, **keys}
    return data.raw_count({"validation": 0.0, **whole}, stage.workdir)
