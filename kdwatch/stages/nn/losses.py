"""Distillation losses on the logits of M response positions.

L = (1/M) sum_i [alpha CE_i + (1 - alpha) T^2 KL_i], the sum over the vocabulary, the mean over the positions of a
whole optimizer update (Hinton et al. 2015 for T^2). Functions return sums over positions, in float32; the caller
divides by M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

Divergence = Literal["forward", "reverse", "jsd"]
HIDDEN = -1e30
"""Stands for minus infinity where that would make gradients NaN."""


@dataclass(frozen=True, slots=True)
class TeacherTop:
    """What a cache knows of the teacher at M positions, for one temperature T."""

    ids: torch.Tensor
    """int64 [M, K]"""
    log_p: torch.Tensor
    """float32 [M, K]: log softmax(z / T) at the ids, over the whole vocabulary."""
    log_tail: torch.Tensor | None
    """float32 [M]: log of the mass outside the ids; None for sampled ids."""
    weights: torch.Tensor | None = None
    """float32 [M, K]: importance weights of sampled ids; None for a top-k."""


def cross_entropy_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over positions of -log softmax(logits)[label]."""
    return torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")


def split_log_sums(scaled: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(values at ids [M, K], log-sum-exp of all [M], log-sum-exp outside the ids [M]) of logits already divided by T.

    The outside is summed directly, not as 1 - mass, so it keeps its precision where it is tiny.
    """
    at = scaled.gather(1, ids)
    outside = torch.logsumexp(scaled.scatter(1, ids, HIDDEN), dim=1)
    whole = torch.logaddexp(torch.logsumexp(at, dim=1), outside)
    return at, whole, outside


def ghost_sum(
    logits: torch.Tensor, teacher: TeacherTop, temperature: float, kind: Divergence = "forward", beta: float = 0.5
) -> torch.Tensor:
    """Sum over positions of T^2 D(p || q) on K + 1 classes: the K ids, and all others together.

    By the log-sum inequality it is at most the divergence on the whole vocabulary, and it is 0 only where top-k and
    tail mass agree.
    """
    assert teacher.log_tail is not None
    at, whole, outside = split_log_sums(logits.float() / temperature, teacher.ids)
    if teacher.ids.shape[1] >= logits.shape[1]:
        log_q, log_p = at - whole[:, None], teacher.log_p
    else:
        log_q = torch.cat([at, outside[:, None]], dim=1) - whole[:, None]
        log_p = torch.cat([teacher.log_p, teacher.log_tail[:, None]], dim=1)
    log_p = log_p - torch.logsumexp(log_p, dim=1, keepdim=True)
    return temperature**2 * divergence_sum(log_p, log_q, kind, beta)


def truncated_sum(logits: torch.Tensor, teacher: TeacherTop, temperature: float) -> torch.Tensor:
    """The study's harness: sum over the top-k only, neither side renormalised. Biased; it can be below 0."""
    scaled = logits.float() / temperature
    log_q = scaled.gather(1, teacher.ids) - torch.logsumexp(scaled, dim=1, keepdim=True)
    return temperature**2 * (teacher.log_p.exp() * (teacher.log_p - log_q)).sum()


def sampled_sum(logits: torch.Tensor, teacher: TeacherTop, temperature: float) -> torch.Tensor:
    """Importance-weighted forward KL over ids drawn from the teacher: unbiased (arXiv 2503.16870, section 3)."""
    assert teacher.weights is not None
    scaled = logits.float() / temperature
    log_q = scaled.gather(1, teacher.ids) - torch.logsumexp(scaled, dim=1, keepdim=True)
    return temperature**2 * (teacher.weights * (teacher.log_p - log_q)).sum()


def dense_sum(
    logits: torch.Tensor, teacher_logits: torch.Tensor, temperature: float, kind: Divergence, beta: float = 0.5
) -> torch.Tensor:
    """Sum over positions of T^2 D(p || q) on the whole vocabulary, from the teacher's own logits [M, V]."""
    log_p = torch.log_softmax(teacher_logits.float() / temperature, dim=1)
    log_q = torch.log_softmax(logits.float() / temperature, dim=1)
    return temperature**2 * divergence_sum(log_p, log_q, kind, beta)


def divergence_sum(log_p: torch.Tensor, log_q: torch.Tensor, kind: Divergence, beta: float) -> torch.Tensor:
    """forward: KL(p || q); reverse: KL(q || p); jsd: beta KL(p || m) + (1 - beta) KL(q || m), m = beta p + "
    "(1 - beta) q.

    The mixture is formed in log space, so that two vanishing probabilities give 0 and not NaN.
    """
    if kind == "forward":
        return _kl(log_p, log_q)
    if kind == "reverse":
        return _kl(log_q, log_p)
    mixed = torch.logaddexp(log_p + math.log(beta), log_q + math.log1p(-beta))
    return beta * _kl(log_p, mixed) + (1 - beta) * _kl(log_q, mixed)


def _kl(log_a: torch.Tensor, log_b: torch.Tensor) -> torch.Tensor:
    return (log_a.exp() * (log_a - log_b)).sum()
