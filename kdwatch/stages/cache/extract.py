"""From a teacher's logits to cache positions, in float32. Imports torch."""

from __future__ import annotations

import numpy as np
import torch

from kdwatch.stages.cache.layout import Layout, Positions

CHUNK = 1 << 22
"""Logits that are worked on at once on a CPU: they stay in its cache."""
CHUNK_ON_DEVICE = 1 << 27
"""The same on a GPU: float32 copies of some positions, never of a whole batch's."""


def top_positions(logits: torch.Tensor, layout: Layout) -> Positions:
    """The k highest of logits [M, V] in float32, ties broken by the smaller id, with log-sum-exp and tail by
    temperature."""
    chunk = CHUNK if logits.device.type == "cpu" else CHUNK_ON_DEVICE
    parts = [_top(part.float(), layout) for part in logits.split(max(1, chunk // logits.shape[1]))]
    ids, values, lse, tail = (torch.cat(arrays).cpu().numpy() for arrays in zip(*parts, strict=True))
    return Positions(ids, values, lse, tail=tail)


def _top(z: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, ...]:
    """(ids, values, lse, tail) of float32 logits [M, V]."""
    values, ids = _ordered_top(z, layout.top_k)
    highest = values[:, :1]
    values = values - highest
    outside = (z - highest).scatter_(1, ids, -torch.inf)
    share = torch.empty_like(outside)
    lse, tail = [], []
    for temperature in layout.temperatures:
        inside = torch.logsumexp(values / temperature, dim=1)
        # nothing outside is above 0, and what underflows is far below what is told apart from none
        rest = torch.exp(torch.div(outside, temperature, out=share), out=share).sum(dim=1).log()
        whole = torch.logaddexp(inside, rest)
        lse.append(whole)
        tail.append(rest - whole)
    return ids, values, torch.stack(lse, dim=1), torch.stack(tail, dim=1)


def _ordered_top(z: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Top-k by (value falling, id rising): the same set whatever topk does among equals."""
    values, ids = torch.topk(z, min(k + 1, z.shape[1]), dim=1)
    if values.shape[1] > k and bool((values[:, k - 1] == values[:, k]).any()):
        values, ids = torch.sort(z, dim=1, descending=True, stable=True)
    values, ids = values[:, :k], ids[:, :k]
    by_id = torch.argsort(ids, dim=1)
    values, ids = values.gather(1, by_id), ids.gather(1, by_id)
    by_value = torch.argsort(values, dim=1, descending=True, stable=True)
    return values.gather(1, by_value), ids.gather(1, by_value)


def sampled_positions(logits: torch.Tensor, layout: Layout, draws: int, generator: torch.Generator) -> Positions:
    """Ids drawn from softmax(logits), with counts: at most k = `draws` different ones a position."""
    z = logits.float()
    highest = z.max(dim=1, keepdim=True).values
    drawn = torch.multinomial(torch.softmax(z, dim=1).cpu(), draws, replacement=True, generator=generator).numpy()
    ids, counts = _counted(np.sort(drawn, axis=1), layout.top_k)
    there = torch.from_numpy(ids).to(z.device)
    relative = z - highest
    lse = [torch.logsumexp(relative / t, dim=1) for t in layout.temperatures]
    values = relative.gather(1, there)
    return Positions(ids, values.cpu().numpy(), torch.stack(lse, dim=1).cpu().numpy(), counts=counts)


def _counted(drawn: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(different ids [N, k], counts [N, k]) of sorted draws; unused places repeat the last id with count 0."""
    first = np.ones_like(drawn, dtype=bool)
    first[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    place = np.cumsum(first, axis=1) - 1
    ids = np.repeat(drawn[:, -1:], k, axis=1)
    counts = np.zeros((len(drawn), k), dtype=np.int64)
    row = np.arange(len(drawn))[:, None].repeat(drawn.shape[1], axis=1)
    ids[row, place] = drawn
    np.add.at(counts, (row, place), 1)
    return ids, counts
