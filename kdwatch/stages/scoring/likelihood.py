"""Perplexity on held-out rows, and agreement with the teacher's first choice from its cached logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from kdwatch import progress
from kdwatch.stages.cache.reader import LogitCache
from kdwatch.stages.data.tokens import TokenSet
from kdwatch.stages.entry import Stage
from kdwatch.stages.nn.batches import by_tokens, collate, response_logits
from kdwatch.stages.nn.losses import cross_entropy_sum
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring.counts import Counts

BATCH_TOKENS = 8192


def scored_rows(data: TokenSet) -> list[int]:
    """The held-out rows; all rows where none is held out."""
    rows = data.validation_rows()
    return (rows if len(rows) else np.arange(len(data))).tolist()


@torch.no_grad()
def perplexity(
    model: Any, data: TokenSet, vocabulary: int, device: torch.device, stage: Stage, counts: Counts
) -> float:
    """exp of the mean cross-entropy over answer positions, summed in float64."""
    total, positions = 0.0, 0
    for batch, logits in _passes(model, data, vocabulary, device, stage, counts):
        total += float(cross_entropy_sum(logits, batch.labels))
        positions += len(batch.labels)
    if not positions:
        raise StageProblem("perplexity: the input data has no answer position")
    return math.exp(total / positions)


@torch.no_grad()
def agreement(
    model: Any,
    data: TokenSet,
    cache: LogitCache,
    vocabulary: int,
    device: torch.device,
    stage: Stage,
    counts: Counts,
) -> float:
    """Share of answer positions where the model's first choice is the teacher's."""
    if cache.layout.method != "top_k":
        raise StageProblem("agreement needs a logit cache of method top_k: sampled ids do not hold the first choice")
    same, positions = 0, 0
    for batch, logits in _passes(model, data, vocabulary, device, stage, counts):
        first = torch.from_numpy(cache.rows(batch.numbers).ids[:, 0]).to(device)
        same += int((logits.argmax(dim=1) == first).sum())
        positions += len(first)
    return same / max(positions, 1)


def _passes(model: Any, data: TokenSet, vocabulary: int, device: torch.device, stage: Stage, counts: Counts) -> Any:
    pad = data.meta["vocabulary"]["pad"]
    for numbers in by_tokens(data, scored_rows(data), BATCH_TOKENS):
        stage.check_stop()
        batch = collate(data, numbers, pad, device)
        yield batch, response_logits(model, batch, vocabulary)
        counts.add(batch.tokens, 0)
        progress.progress(tokens=counts.tokens)
