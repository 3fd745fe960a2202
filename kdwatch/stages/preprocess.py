"""Stage `preprocess`: text rows to token arrays. Imports no torch."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from kdwatch import progress
from kdwatch.stages.entry import Stage, Stopped, run_stage
from kdwatch.stages.settings import PreprocessSettings

if TYPE_CHECKING:
    from kdwatch.stages.data.chat import Encoded

CHUNK_ROWS = 256
"""Rows that are encoded together, and between two looks at the clock."""


def work(settings: PreprocessSettings, stage: Stage) -> None:
    """Read, encode, split and write; counts of what was left out go into the record."""
    progress.phase("import")
    import numpy as np

    from kdwatch.stages.data import chat, rows, tokenizer, tokens
    from kdwatch.stages.problem import StageProblem

    progress.phase("load")
    text = tokenizer.TextTokenizer.load(settings.tokenizer)
    if settings.teacher:
        tokenizer.check_same(text, tokenizer.TextTokenizer.load(settings.teacher))
    progress.phase("work")
    left_out: Counter[str] = Counter()
    keys = rows.Keys(settings.prompt_key, settings.response_key, settings.messages_key, settings.task_key)
    encoded: list[chat.Encoded] = []
    source = rows.read_rows(settings.data, keys, split=settings.split, revision=settings.revision)
    count, number, reported = 0, 0, time.monotonic()
    while chunk := list(islice(source, CHUNK_ROWS)):
        number += len(chunk)
        if time.monotonic() >= reported + stage.report_s:
            if stage.stopping:
                raise Stopped
            progress.progress(step=number, tokens=count)
            reported = time.monotonic()
        usable = [row for row in chunk if row is not None]
        left_out["no text"] += len(chunk) - len(usable)
        for entry in chat.encode_rows(usable, text, use_template=settings.chat_template == "auto"):
            if (fitted := fit(entry, settings)) is None:
                left_out["too long"] += 1
            else:
                encoded.append(fitted)
                count += len(fitted.ids)
        if stage.enough and encoded:  # not before a row is there for those that need some
            break
    left_out += Counter()  # without the reasons that did not come up
    if not encoded:
        raise StageProblem(
            f"data: {settings.data} has no usable row ({dict(left_out) or 'it is empty'}): "
            f"rows need {settings.prompt_key} and {settings.response_key}, or {settings.messages_key}"
        )
    order = np.random.default_rng(settings.seed).permutation(len(encoded))
    if settings.limit is not None:
        order = order[: settings.limit]
    kept = [encoded[i] for i in np.sort(order)]
    held_out = np.zeros(len(kept), dtype=bool)
    chosen = np.random.default_rng(settings.seed + 1).permutation(len(kept))[: round(settings.validation * len(kept))]
    held_out[chosen] = True
    progress.phase("save")
    counts = {"left_out": dict(left_out), "validation_rows": len(chosen), "source": Path(settings.data).name}
    written = tokens.write_tokens(stage.need_output(), kept, held_out, text, counts)
    progress.progress(tokens=len(written.ids), step=len(written))
    print(
        f"{len(written)} rows, {len(written.ids)} tokens, {written.meta['response_tokens']} of them answers; "
        f"left out: {dict(left_out) or 'none'}",
        flush=True,
    )


def fit(entry: Encoded, settings: PreprocessSettings) -> Encoded | None:
    """The row if it fits, its beginning where it may be cut, None where it may not or no target is left."""
    if len(entry.ids) <= settings.max_length:
        return entry
    if settings.too_long == "drop":
        return None
    cut = replace(entry, ids=entry.ids[: settings.max_length], targets=entry.targets[: settings.max_length])
    return cut if True in cut.targets else None


if __name__ == "__main__":
    run_stage(PreprocessSettings, work)
