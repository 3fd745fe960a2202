"""Which stages of the past tell about one to come: the same work, and of these the ones with the same settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kdwatch.pipeline.outlook.past import PastStage
from kdwatch.pipeline.resolve import ResolvedStage

SAME_SIZE = 0.05
"""Relative difference of two models' sizes, or of two lengths, that counts as none."""
_RATE = {
    "student.train": ("batch_rows", "packing", "gradient_checkpointing", "weights", "dtype", "optimizer", "processes"),
    "teacher.cache_logits": ("batch_tokens", "dtype"),
    "teacher.generate": ("batch_rows", "dtype", "engine"),
    "teacher.evaluate": ("exact_match", "limit", "max_new_tokens", "lm_eval", "command", "perplexity", "agreement"),
    "evaluate": ("exact_match", "limit", "max_new_tokens", "lm_eval", "command", "perplexity", "agreement"),
}
"""Settings that change the energy of a token, or what is done at all."""


def same_work(stage: ResolvedStage, past: Sequence[PastStage]) -> list[PastStage]:
    """Stages of the same name and command, or of the same built-in stage and objective."""
    return [old for old in past if _is_same(stage, old)]


def _is_same(stage: ResolvedStage, old: PastStage) -> bool:
    if stage.builtin is None:
        return old.uses is None and old.name == stage.name and list(old.command) == stage.argv
    return old.uses == stage.recipe.uses and _setting(stage, old, "objective") == stage.settings.get("objective")


def same_size(ours: float | None, past: Sequence[PastStage]) -> list[PastStage]:
    """Those whose model is as large; without a model on both sides all are."""
    return [old for old in past if same_model_size(ours, old.params_b)]


def same_model_size(ours: float | None, theirs: float | None) -> bool:
    """Whether two models, in billions of parameters, are as large; two of unknown size are."""
    if ours is None or theirs is None:
        return ours is None and theirs is None
    return math.isclose(ours, theirs, rel_tol=SAME_SIZE)


def same_settings(stage: ResolvedStage, past: Sequence[PastStage]) -> list[PastStage]:
    """Those with the same batch, number format and so on."""
    names = _RATE.get(stage.recipe.uses or "", ())
    return [old for old in past if all(_setting(stage, old, name) == stage.settings.get(name) for name in names)]


def _setting(stage: ResolvedStage, old: PastStage, name: str) -> Any:
    """A setting of a past stage; where its recipe did not name it, the default."""
    return old.settings[name] if name in old.settings else default_of(stage, name)


def default_of(stage: ResolvedStage, name: str) -> Any:
    """What a setting is where a recipe of this built-in stage does not name it."""
    model = stage.builtin.settings if stage.builtin else None
    field = model.model_fields.get(name) if model else None
    return field.get_default() if field else None
