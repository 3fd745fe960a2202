"""Exact match: greedy answers, compared with the expected ones after outer blanks are taken off."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import numpy as np

from kdwatch import progress
from kdwatch.stages.data.rows import Keys, Row, read_rows
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.entry import Stage
from kdwatch.stages.nn.decoding import Decoder
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring.counts import Counts
from kdwatch.stages.settings import EvaluateSettings


def exact_match(
    decoder: Decoder, tokenizer: TextTokenizer, settings: EvaluateSettings, stage: Stage, counts: Counts
) -> dict[str, float]:
    """Share of right answers by benchmark (the rows' task; the file's name where they have none)."""
    assert settings.exact_match is not None
    with progress.phases("load"):
        groups = grouped_rows(settings)
    right: dict[str, int] = defaultdict(int)
    rows = [(name, row) for name, members in groups.items() for row in members]
    prompts = [prompt_ids(row, tokenizer) for _, row in rows]
    order = sorted(range(len(rows)), key=lambda i: -len(prompts[i]))
    asked = 0
    for begin in batch_order(len(order), settings.batch_rows):
        stage.check_stop()
        part = order[begin : begin + settings.batch_rows]
        answers = decoder.answer([prompts[i] for i in part], settings.max_new_tokens)
        for i, answer in zip(part, answers, strict=True):
            name, row = rows[i]
            right[name] += answer.ended and tokenizer.decode(answer.ids).strip() == row.response.strip()
        asked += len(part)
        counts.add(sum(len(prompts[i]) for i in part), sum(a.tokens for a in answers))
        progress.progress(tokens=counts.tokens, input_tokens=counts.prompt, step=asked, total_steps=len(rows))
    return {name: right[name] / len(members) for name, members in groups.items()}


def batch_order(rows: int, batch: int) -> list[int]:
    """Beginnings of the batches of rows that are sorted by length: the longest first, so that a batch that does not fit
    is met at once; the others mixed, so that energy and time per prompt are even from beginning to end."""
    first, *others = range(0, rows, batch)
    random.Random(rows).shuffle(others)
    return [first, *others]


def grouped_rows(settings: EvaluateSettings) -> dict[str, list[Row]]:
    """Rows by benchmark, at most `limit` each. StageProblem where none is usable."""
    source = settings.exact_match
    assert source is not None
    keys = Keys(settings.prompt_key, settings.response_key, "", settings.task_key)
    groups: dict[str, list[Row]] = {}
    for row in read_rows(source, keys):
        if row is None:
            continue
        members = groups.setdefault(row.task or Path(source).stem, [])
        if settings.limit is None or len(members) < settings.limit:
            members.append(row)
    if not groups:
        raise StageProblem(f"exact_match: {source} has no row with {settings.prompt_key} and {settings.response_key}")
    return groups


def prompt_ids(row: Row, tokenizer: TextTokenizer) -> np.ndarray:
    """The prompt as the model is asked: through its chat template where it has one."""
    if tokenizer.template is None:
        return np.array(tokenizer.encode(row.prompt, special=True))
    from kdwatch.stages.data.chat import render

    return np.array(tokenizer.encode(render(tokenizer, row.messages[:-1], generation_prompt=True)))
