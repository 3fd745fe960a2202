"""All scores that one evaluation asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kdwatch import progress
from kdwatch.stages.data.tokenizer import TextTokenizer, model_directory
from kdwatch.stages.data.tokens import TokenSet, read_tokens
from kdwatch.stages.entry import Stage
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring.counts import Counts
from kdwatch.stages.settings import EvaluateSettings, TeacherEvaluateSettings


def check(settings: EvaluateSettings, stage: Stage) -> None:
    """Raise StageProblem before anything heavy is imported where the settings ask for nothing, or miss an input."""
    asked = (settings.exact_match, settings.perplexity, settings.agreement, settings.lm_eval, settings.command)
    if not any(asked):
        raise StageProblem("evaluate: no benchmark: set exact_match, perplexity, agreement, lm_eval or command")
    if (settings.perplexity or settings.agreement) and "data" not in stage.inputs:
        raise StageProblem("perplexity and agreement need the input data: name a preprocess stage there")
    if settings.agreement and "logits" not in stage.inputs:
        raise StageProblem("agreement needs the input logits: name a teacher.cache_logits stage there")


def scores_of(name: str, settings: EvaluateSettings, stage: Stage) -> tuple[dict[str, float], Counts]:
    """({benchmark: score}, tokens) of a model; phases are reported."""
    check(settings, stage)
    folder = model_directory(name, settings.revision, weights=True)
    counts = Counts()
    scores: dict[str, float] = {}
    if settings.exact_match or settings.perplexity or settings.agreement:
        scores |= _own(folder, settings, stage, counts)
    if settings.lm_eval:
        from kdwatch.stages.scoring.harness import harness_scores

        progress.phase("work")
        scores |= harness_scores(settings, folder, _device_name(settings), counts)
    if settings.command:
        from kdwatch.stages.scoring.command import command_scores

        progress.phase("work")
        scores |= command_scores(settings.command, folder, counts)
    if counts.tokens:
        progress.progress(tokens=counts.tokens, input_tokens=counts.prompt)
    return scores, counts


def _device_name(settings: EvaluateSettings) -> str:
    from kdwatch.stages.nn.compute import pick_device

    return str(pick_device(settings))


def _own(folder: Path, settings: EvaluateSettings, stage: Stage, counts: Counts) -> dict[str, float]:
    progress.phase("import")
    from kdwatch.stages.nn import compute, models
    from kdwatch.stages.nn.decoding import Decoder

    progress.phase("load")
    tokenizer = TextTokenizer.load(str(folder))
    device = compute.pick_device(settings)
    role = "teacher" if isinstance(settings, TeacherEvaluateSettings) else "student"
    model = models.load_model(str(folder), settings, device, dtype=compute.DTYPES[settings.dtype], role=role)
    real, _ = models.real_vocabulary(model, tokenizer, "evaluated model")
    data = read_tokens(stage.inputs["data"]) if "data" in stage.inputs else None
    progress.phase("work")
    scores: dict[str, float] = {}
    if settings.exact_match:
        from kdwatch.stages.scoring.exact import exact_match

        decoder = Decoder(model, real, tokenizer.eos_id, tokenizer.pad_id, device)
        scores |= exact_match(decoder, tokenizer, settings, stage, counts)
    if data is not None:
        scores |= _likelihood(model, data, settings, real, device, stage, counts)
    return scores


def _likelihood(
    model: Any, data: TokenSet, settings: EvaluateSettings, real: int, device: Any, stage: Stage, counts: Counts
) -> dict[str, float]:
    from kdwatch.stages.cache.reader import LogitCache
    from kdwatch.stages.scoring import likelihood

    scores = {}
    if settings.perplexity:
        value = likelihood.perplexity(model, data, real, device, stage, counts)
        print(f"perplexity {value:.4f}", flush=True)
        scores["inverse_perplexity"] = 1 / value
    if settings.agreement:
        cache = LogitCache(stage.inputs["logits"], data)
        scores["teacher_agreement"] = likelihood.agreement(model, data, cache, real, device, stage, counts)
    return scores
