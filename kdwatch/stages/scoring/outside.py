"""Scores from outside: lm-evaluation-harness through its public API, or any command that prints JSON."""

from __future__ import annotations

import json
import math
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import LmEvalSettings

PREFERRED = (
    "exact_match,strict-match",
    "prompt_level_strict_acc,none",
    "acc,none",
    "exact_match,none",
    "acc_norm,none",
)
"""Which metric of a task is its score, best first: GSM8K, IFEval, MMLU and tasks like them."""


def command_scores(command: list[str], model: Path) -> dict[str, float]:
    """`{benchmark: score}` that `command MODEL` prints as one JSON object on its last line.

    Raises StageProblem where it fails or prints something else.
    """
    words = [*command, str(model)]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise StageProblem(
            f"command {command[0]} failed ({error}): run it by hand with the model's directory"
        ) from None
    lines = done.stdout.strip().splitlines()
    try:
        value = json.loads(lines[-1] if lines else "")
        return {str(name): _score(score) for name, score in value.items()}
    except (ValueError, TypeError, AttributeError):
        raise StageProblem(f"command {command[0]} must print one JSON object of numbers as its last line") from None


def _score(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError("no number")
    return number


def harness_scores(settings: LmEvalSettings, model: Path, batch_rows: int, device: str) -> dict[str, float]:
    """Scores of lm-evaluation-harness tasks. StageProblem where it is not installed or a task is unknown."""
    if find_spec("lm_eval") is None:
        raise StageProblem("lm_eval: lm-evaluation-harness is not installed here: pip install lm-eval, or take it out")
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=settings.include_path)
    unknown = [name for name in settings.tasks if name not in manager.all_tasks]
    if unknown:
        raise StageProblem(f"lm_eval: no task {unknown[0]}: lm-eval ls tasks lists those there are")
    found = lm_eval.simple_evaluate(
        model=registered_model(),
        model_args={"pretrained": str(model)},
        tasks=settings.tasks,
        limit=settings.limit,
        batch_size=batch_rows,
        device=device,
        task_manager=manager,
    )
    return {name: headline(found["results"][name], name) for name in settings.tasks}


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
