"""Rows to padded batches, and the logits at the positions that count.

Padding stands on the right and a causal model never looks right, so no mask is needed; which positions are real follows
from stored lengths, never from comparing ids with the pad id (pad is end-of-text in many models).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kdwatch.stages.data.tokens import TokenSet


@dataclass(slots=True)
class Batch:
    """Padded ids and the M positions that predict a target."""

    ids: torch.Tensor
    """int64 [B, L]"""
    row: torch.Tensor
    """int64 [M]: row of each target's prediction."""
    position: torch.Tensor
    """int64 [M]: position whose logits predict the target: one before it."""
    needed: torch.Tensor
    """int64 [P]: the different values of `position`, rising: what goes through the output layer."""
    place: torch.Tensor
    """int64 [M]: place of `position` in `needed`."""
    labels: torch.Tensor
    """int64 [M]: the target."""
    numbers: list[int]
    """Row numbers in the data set, in the order in which their targets come."""
    tokens: int
    """Real (non-pad) tokens."""
    positions: torch.Tensor | None = None
    """int64 [B, L]: position ids that begin anew with each packed example; None where rows hold one example."""


def collate(data: TokenSet, numbers: Sequence[int], pad: int, device: torch.device) -> Batch:
    """One example a row, padded on the right to the longest."""
    rows = [data.row(int(r)) for r in numbers]
    width = max(len(ids) for ids, _ in rows)
    ids = np.full((len(rows), width), pad, dtype=np.int64)
    row, position, labels = [], [], []
    for b, (tokens, targets) in enumerate(rows):
        ids[b, : len(tokens)] = tokens
        where = np.flatnonzero(targets)
        row.append(np.full(len(where), b))
        position.append(where - 1)
        labels.append(tokens[where])
    return _batch(ids, row, position, labels, [int(r) for r in numbers], sum(len(t) for t, _ in rows), device)


def collate_packed(data: TokenSet, bins: Sequence[Sequence[int]], pad: int, device: torch.device) -> Batch:
    """Several examples a row; position ids begin anew with each, which keeps them from seeing each other."""
    lengths = data.lengths
    width = max(int(lengths[list(b)].sum()) for b in bins)
    ids = np.full((len(bins), width), pad, dtype=np.int64)
    positions = np.zeros((len(bins), width), dtype=np.int64)
    row, position, labels, numbers = [], [], [], []
    for b, members in enumerate(bins):
        start = 0
        for r in members:
            tokens, targets = data.row(int(r))
            end = start + len(tokens)
            ids[b, start:end] = tokens
            positions[b, start:end] = np.arange(len(tokens))
            where = np.flatnonzero(targets)
            row.append(np.full(len(where), b))
            position.append(where - 1 + start)
            labels.append(tokens[where])
            numbers.append(int(r))
            start = end
        positions[b, start:] = np.arange(width - start)
    tokens_in_all = int(sum(lengths[list(b)].sum() for b in bins))
    batch = _batch(ids, row, position, labels, numbers, tokens_in_all, device)
    batch.positions = torch.from_numpy(positions).to(device)
    return batch


def _batch(
    ids: np.ndarray,
    row: list[np.ndarray],
    position: list[np.ndarray],
    labels: list[np.ndarray],
    numbers: list[int],
    tokens: int,
    device: torch.device,
) -> Batch:
    def tensor(parts: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(np.int64)).to(device, non_blocking=True)

    there = torch.from_numpy(ids).to(device, non_blocking=True)
    needed, place = np.unique(np.concatenate(position), return_inverse=True)  # on the host: no wait for the device
    return Batch(
        there, tensor(row), tensor(position), tensor([needed]), tensor([place]), tensor(labels), numbers, tokens
    )


def response_logits(model: Any, batch: Batch, vocabulary: int) -> torch.Tensor:
    """Logits [M, vocabulary] in the model's format at the predicting positions; padding rows of the vocabulary cut off.

    Nothing else goes through the output layer: with a vocabulary of 100k that layer is most of a small model's work,
    and its result most of the memory.
    """
    picked = False

    def before_output(_layer: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        nonlocal picked
        picked = True
        return (_at_targets(arguments[0], batch)[None],)

    extra = {} if batch.positions is None else {"position_ids": batch.positions}
    output = getattr(model, "module", model).get_output_embeddings()
    hook = nullcontext() if output is None else output.register_forward_pre_hook(before_output)
    with hook:
        logits = model(input_ids=batch.ids, logits_to_keep=batch.needed, use_cache=False, **extra).logits
    return (logits[0] if picked else _at_targets(logits, batch))[:, :vocabulary]


def _at_targets(states: torch.Tensor, batch: Batch) -> torch.Tensor:
    """[M, X] of [B, P, X], or of [B, L, X] from a model that does not know logits_to_keep."""
    where = batch.place if states.shape[1] == batch.needed.numel() else batch.position
    return states.flatten(0, 1).index_select(0, batch.row * states.shape[1] + where)


def by_tokens(data: TokenSet, numbers: Sequence[int], most: int) -> Iterator[list[int]]:
    """Row numbers in batches of like length whose padded size is at most `most` tokens (at least one row each)."""
    order = sorted(numbers, key=lambda r: int(data.offsets[r + 1] - data.offsets[r]), reverse=True)
    batch: list[int] = []
    width = 0
    for r in order:
        length = int(data.offsets[r + 1] - data.offsets[r])
        if batch and max(width, length) * (len(batch) + 1) > most:
            yield batch
            batch, width = [], 0
        batch.append(r)
        width = max(width, length)
    if batch:
        yield batch


def bins_of(data: TokenSet, numbers: Sequence[int], width: int) -> list[list[int]]:
    """First-fit decreasing bins of at most `width` tokens each."""
    lengths = data.lengths
    bins: list[list[int]] = []
    room: list[int] = []
    for r in sorted(numbers, key=lambda r: (-int(lengths[r]), r)):
        length = int(lengths[r])
        for b, left in enumerate(room):
            if length <= left:
                bins[b].append(int(r))
                room[b] -= length
                break
        else:
            bins.append([int(r)])
            room.append(width - length)
    return bins
