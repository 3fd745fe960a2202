"""Cross-entropy and ghost-tail KL in one function with a written-out gradient.

Autograd would keep and pass over four [M, V] tensors; this keeps one (two where T is not 1), so that a KD step costs
little more than a step of plain fine-tuning. With q = softmax(z / T), K the top-k ids, p the teacher, t the tail:

    d KL / dz_v = (q_v - p_v) / T                 for v in K
                = q_v (1 - p_t / q_t) / T         for v outside
"""

from __future__ import annotations

from typing import Any

import torch

from kdwatch.stages.nn.losses import TeacherTop

TINY = 1e-38
"""Least tail mass of a student; below it the gradient on the tail vanishes."""


def mixed_sum(
    logits: torch.Tensor, labels: torch.Tensor, teacher: TeacherTop, temperature: float, alpha: float
) -> torch.Tensor:
    """Sum over positions of alpha CE + (1 - alpha) T^2 KL on K + 1 classes; float32 logits [M, V], K < V."""
    assert teacher.log_tail is not None
    log_p = torch.cat([teacher.log_p, teacher.log_tail[:, None]], dim=1)
    log_p = log_p - torch.logsumexp(log_p, dim=1, keepdim=True)
    return _Mixed.apply(logits, labels, teacher.ids, log_p, temperature, alpha)


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: torch.Tensor,
        labels: torch.Tensor,
        ids: torch.Tensor,
        log_p: torch.Tensor,
        temperature: float,
        alpha: float,
    ) -> torch.Tensor:
        at_one = torch.log_softmax(z, dim=1)
        hard = -at_one.gather(1, labels[:, None]).sum()
        q = at_one if temperature == 1 else torch.log_softmax(z / temperature, dim=1)
        log_q = q.gather(1, ids)
        q.exp_().scatter_(1, ids, 0.0)
        tail = q.sum(dim=1, keepdim=True).clamp_min_(TINY)
        soft = (log_p.exp() * (log_p - torch.cat([log_q, tail.log()], dim=1))).sum()
        ctx.kept = (q, None if temperature == 1 else at_one.exp_(), log_q, tail)
        ctx.save_for_backward(labels, ids, log_p)
        ctx.weights = (temperature, alpha)
        return alpha * hard + (1 - alpha) * temperature**2 * soft

    @staticmethod
    def backward(ctx: Any, *outside: torch.Tensor) -> Any:
        if ctx.kept is None:
            raise RuntimeError("this loss can be differentiated once: its tensors are used up in place")
        (q, at_one, log_q, tail), ctx.kept = ctx.kept, None
        labels, ids, log_p = ctx.saved_tensors
        temperature, alpha = ctx.weights
        g = outside[0]
        soft, hard = (1 - alpha) * temperature * g, alpha * g
        p = log_p.exp()
        own = hard if at_one is None else torch.zeros_like(hard)
        gradient = q.mul_(soft * (1 - p[:, -1:] / tail) + own)
        top = log_q.exp()
        gradient.scatter_(1, ids, soft * (top - p[:, :-1]) + own * top)
        if at_one is not None:
            gradient.add_(at_one.mul_(hard))
        gradient.scatter_add_(1, labels[:, None], (-hard).expand(len(labels), 1))
        return gradient, None, None, None, None, None
