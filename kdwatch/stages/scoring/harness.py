"""Scores of lm-evaluation-harness tasks, through its public API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.problem import StageProblem, first_line
from kdwatch.stages.scoring.counts import Counts
from kdwatch.stages.settings import EvaluateSettings

PREFERRED = (
    "exact_match,strict-match",
    "prompt_level_strict_acc,none",
    "acc,none",
    "exact_match,none",
    "acc_norm,none",
)
"""Which metric of a task is its score, best first: GSM8K, IFEval, MMLU and tasks like them."""


def harness_scores(settings: EvaluateSettings, model: Path, device: str, counts: Counts) -> dict[str, float]:
    """Scores by task; tokens are added to `counts`.

    Raises StageProblem where the harness is not installed, a task is unknown, or its data cannot be had.
    """
    wanted = settings.lm_eval
    assert wanted is not None
    if find_spec("lm_eval") is None:
        raise StageProblem("lm_eval: lm-evaluation-harness is not installed here: pip install lm-eval, or take it out")
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=wanted.include_path)
    unknown = [name for name in wanted.tasks if name not in manager.all_tasks]
    if unknown:
        raise StageProblem(f"lm_eval: no task {unknown[0]}: lm-eval ls tasks lists those there are")
    tokenizer = TextTokenizer.load(str(model))
    chat = wanted.chat_template == "auto" and tokenizer.template is not None
    try:
        found = lm_eval.simple_evaluate(
            model=registered_model(),
            model_args={
                "pretrained": str(model),
                "dtype": settings.dtype,
                "trust_remote_code": settings.trust_remote_code,
            },
            tasks=wanted.tasks,
            num_fewshot=wanted.fewshot,
            limit=wanted.limit,
            batch_size=settings.batch_rows,
            device=device,
            task_manager=manager,
            apply_chat_template=chat,
            fewshot_as_multiturn=chat,
            log_samples=True,
        )
    except (OSError, ImportError, ValueError) as error:
        raise StageProblem(
            f"lm_eval: the tasks {', '.join(wanted.tasks)} cannot be run ({first_line(error)})"
        ) from None
    for samples in found["samples"].values():
        count_samples(samples, tokenizer, counts)
    return {name: headline(found["results"][name], name) for name in wanted.tasks}


def count_samples(samples: Iterable[Mapping[str, Any]], tokenizer: TextTokenizer, counts: Counts) -> None:
    """Add the tokens of the harness's logged samples: contexts, scored continuations, generated answers.

    Choices that differ in their last token only are one pass of the model, and are counted once.
    """
    passes: set[tuple[int, ...]] = set()
    of_document = {sample["doc_id"]: sample for sample in samples}  # one for each of a task's filters otherwise
    for sample in of_document.values():
        for (context, *rest), answers in zip(sample["arguments"], sample["resps"], strict=True):
            ids = tokenizer.encode(context, special=True)
            if rest and isinstance(rest[0], str):
                passes.add(tuple([*ids, *tokenizer.encode(rest[0])][:-1]))
            else:
                texts = [a for a in answers if isinstance(a, str)]
                counts.add(len(ids), sum(len(tokenizer.encode(text)) + 1 for text in texts))
    counts.add(sum(len(ids) for ids in passes), 0)


def registered_model() -> str:
    """The harness's name for transformers models, asked of its registry since it has changed before."""
    from lm_eval.api.registry import get_model

    for name in ("hf", "huggingface", "hf-auto"):
        try:
            get_model(name)
        except (KeyError, ValueError):
            continue
        return name
    raise StageProblem("lm_eval: this version has no model type for transformers: install another lm-eval")


def headline(metrics: dict[str, Any], task: str) -> float:
    """The number that stands for a task."""
    for name in PREFERRED:
        if isinstance(metrics.get(name), (int, float)):
            return float(metrics[name])
    for name, value in metrics.items():
        if isinstance(value, (int, float)) and "stderr" not in name and name != "alias":
            return float(value)
    raise StageProblem(f"lm_eval: task {task} gave no number")
