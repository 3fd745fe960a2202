"""Energy of a stage before it runs, from probes: short runs of the same stage (`planners.probes`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdwatch.pipeline.outlook.amounts import Amounts
from kdwatch.pipeline.outlook.data import AT_MOST, SAMPLED, DataCount
from kdwatch.pipeline.outlook.like import default_of, same_model_size
from kdwatch.pipeline.resolve import ResolvedStage
from planners.costmodel import Declined, Prediction
from planners.probed import TRAINING
from planners.probes import (
    Probe,
    predict_evaluation,
    predict_forward,
    predict_generation,
    predict_preprocess,
    predict_student,
)

_SCORES = ("exact_match", "max_new_tokens", "batch_rows", "lm_eval", "command", "perplexity", "agreement")
_SAME = {
    "preprocess": ("tokenizer", "chat_template", "max_length", "too_long"),
    "student.train": ("objective", "dtype", *TRAINING),
    "teacher.cache_logits": ("dtype", "method", "top_k", "temperatures"),
    "teacher.generate": ("dtype", "engine"),
    "teacher.evaluate": _SCORES,
    "evaluate": _SCORES,
}
"""Settings in which a probe must be like the stage; batch and length of a teacher's pass are modelled."""


def from_probes(stage: ResolvedStage, amounts: Amounts, probes: Sequence[Probe]) -> Prediction:
    """Energy in J. Raises Declined where no probe is like the stage, or an amount is unknown."""
    uses, tokens = stage.recipe.uses, amounts.tokens
    mine = [probe for probe in probes if probe.uses == uses and _alike(stage, probe)]
    if uses == "student.train":
        return predict_student(mine, amounts.model.params_b, _known(tokens, "tokens"))
    size = amounts.model.params_b
    mine = [probe for probe in mine if uses == "preprocess" or same_model_size(size, probe.params_b)]
    if not mine:
        raise Declined("not probed")
    if uses == "preprocess":
        return predict_preprocess(mine, _known(amounts.read_tokens, "tokens"))
    if uses == "teacher.cache_logits":
        return predict_forward(mine, _known(tokens, "tokens"), float(stage.settings["batch_tokens"]))
    rows = _known(amounts.rows, "prompts")
    if uses == "teacher.generate":
        given = stage.settings.get("batch_rows")
        batch = float(given) if given else None
        return predict_generation(mine, rows, batch, float(stage.settings["max_new_tokens"]), size)
    return predict_evaluation(mine, rows)


def _known(amount: float | None, what: str) -> float:
    if amount is None:
        raise Declined(f"the number of {what} is unknown: put the data on this disk, or set `limit`")
    return amount


def _alike(stage: ResolvedStage, probe: Probe) -> bool:
    names = _SAME.get(probe.uses, ())
    return all(probe.settings.get(name, default_of(stage, name)) == stage.settings.get(name) for name in names)


def with_answers(stage: ResolvedStage, amounts: Amounts, probes: Sequence[Probe]) -> Amounts:
    """A generation's amounts with answers as long, and as often kept, as those of its probe."""
    if stage.recipe.uses != "teacher.generate" or amounts.how != AT_MOST or not amounts.rows:
        return amounts
    length = float(stage.settings["max_new_tokens"])
    for probe in probes:
        fits = probe.uses == stage.recipe.uses and _alike(stage, probe) and probe.length == length
        if fits and probe.made and probe.samples and same_model_size(amounts.model.params_b, probe.params_b):
            answer = probe.tokens / probe.samples
            rows = amounts.rows * probe.made.rows / probe.samples
            per_row = probe.made.tokens / probe.made.rows
            made = DataCount(rows, rows * per_row, rows * min(answer, per_row), SAMPLED)
            return replace(amounts, tokens=amounts.rows * answer, how=SAMPLED, makes=made)
    return amounts
