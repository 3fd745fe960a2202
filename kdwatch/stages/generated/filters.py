"""Which answers become training rows, and why the others do not."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np

from kdwatch.stages.data.chat import Encoded
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.data.tokens import TokenSet, write_tokens
from kdwatch.stages.files import whole_file
from kdwatch.stages.generated.answers import AnswerStore, RowAnswer
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import GenerateSettings

GRAM = 4
COMMAND_LIMIT_S = 3600


def keep_and_write(
    output: Path, settings: GenerateSettings, data: TokenSet, tokenizer: TextTokenizer, store: AnswerStore
) -> dict[str, int]:
    """Write the kept rows as a data set and as `examples.jsonl`; the counts of kept and dropped ones.

    Raises StageProblem where nothing is left.
    """
    answers = list(store)
    dropped: Counter[str] = Counter()
    seen: set[tuple[bytes, tuple[int, ...]]] = set()
    kept: list[RowAnswer] = []
    for answer in answers:
        why = reason(answer, settings)
        key = (data.prompt(answer.row).tobytes(), tuple(answer.ids))
        if why is None and settings.drop_duplicates and key in seen:
            why = "duplicate"
        if why is None:
            seen.add(key)
            kept.append(answer)
        else:
            dropped[why] += 1
    texts = [(tokenizer.decode(data.prompt(a.row).tolist()), tokenizer.decode(a.ids)) for a in kept]
    if settings.filter_command:
        verdicts = ask_command(settings.filter_command, texts)
        dropped["filter_command"] = verdicts.count(False)
        kept = [a for a, good in zip(kept, verdicts, strict=True) if good]
        texts = [t for t, good in zip(texts, verdicts, strict=True) if good]
    if not kept:
        raise StageProblem(f"no answer passed the filters ({dict(dropped)}): loosen them, or raise max_new_tokens")
    counts = {
        "generated": len(answers),
        "kept": len(kept),
        "prompt_tokens": store.prompt_tokens,
        "output_tokens": store.tokens,
        **{f"dropped: {why}": n for why, n in sorted(dropped.items())},
    }
    with whole_file(output / "examples.jsonl") as f:
        for prompt, response in texts:
            f.write(json.dumps({"prompt": prompt, "response": response}).encode() + b"\n")
    rows = [training_row(a, data, tokenizer.eos_id) for a in kept]
    write_tokens(output, rows, np.zeros(len(rows), dtype=bool), tokenizer, {"counts": counts})
    return counts


def reason(answer: RowAnswer, settings: GenerateSettings) -> str | None:
    """Why this answer is dropped; None where it is not."""
    if len(answer.ids) < settings.min_tokens:
        return "too short"
    if not answer.ended and not settings.keep_truncated:
        return "truncated"
    if repetition(answer.ids) > settings.max_repetition:
        return "repetitive"
    return None


def repetition(ids: list[int]) -> float:
    """Share of 4-grams that occurred before in the same answer; 0 for answers shorter than that."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def training_row(answer: RowAnswer, data: TokenSet, eos: int) -> Encoded:
    """Prompt and answer; the end is a target only where the teacher itself ended."""
    prompt = data.prompt(answer.row).tolist()
    tail = [*answer.ids, eos] if answer.ended else answer.ids
    return Encoded([*prompt, *tail], [False] * len(prompt) + [True] * len(tail))


def ask_command(command: list[str], texts: list[tuple[str, str]]) -> list[bool]:
    """Verdicts of the user's command on (prompt, response) pairs. StageProblem where it fails or answers otherwise."""
    lines = "".join(json.dumps({"prompt": p, "response": r}) + "\n" for p, r in texts)
    try:
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise StageProblem(f"filter_command {command[0]} failed ({error}): run it by hand on examples.jsonl") from None
    words = done.stdout.split()
    if len(words) != len(texts) or set(words) - {"true", "false"}:
        raise StageProblem(
            f"filter_command {command[0]} gave {len(words)} words for {len(texts)} rows: it must print true "
            f"or false for each"
        )
    return [word == "true" for word in words]
