"""Scores that any command prints as JSON."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring.counts import Counts


def command_scores(command: list[str], model: Path, counts: Counts) -> dict[str, float]:
    """What `command MODEL` prints as one JSON object on its last line: `{benchmark: score}`, or `{"scores":
    {benchmark: score}, "tokens": N, "input_tokens": N}`, whose tokens are counted.

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
        if isinstance(value.get("scores"), dict):
            tokens, prompt = (_count(value.get(name, 0)) for name in ("tokens", "input_tokens"))
            counts.add(prompt, max(0, tokens - prompt))
            value = value["scores"]
        return {str(name): _score(score) for name, score in value.items()}
    except (ValueError, TypeError, AttributeError):
        raise StageProblem(f"command {command[0]} must print one JSON object of numbers as its last line") from None


def _score(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError("no number")
    return number


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("no count")
    return value
