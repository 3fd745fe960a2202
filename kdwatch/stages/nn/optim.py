"""Optimizers and the learning rate's course."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from kdwatch.stages.nn.stochastic import Adafactor, StochasticAdamW
from kdwatch.stages.settings import TrainSettings


def learning_rate(settings: TrainSettings, update: int, total: int) -> float:
    """Rate of one update: linear warm-up, then constant or a cosine that reaches 0 after the last update."""
    if update < settings.warmup_steps:
        return settings.learning_rate * (update + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.learning_rate
    span = max(1, total - settings.warmup_steps)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, (update - settings.warmup_steps) / span)))


def make_optimizer(settings: TrainSettings, model: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW or Adafactor with a fixed rate (no relative step, no scaling by the parameter's size).

    Norms and biases are not decayed.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    if settings.optimizer == "adafactor":
        return Adafactor(groups, lr=settings.learning_rate, seed=settings.seed)
    if settings.weights == "bfloat16":
        return StochasticAdamW(groups, lr=settings.learning_rate, seed=settings.seed)
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The same rate for every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradients(parameters: Iterable[torch.nn.Parameter], most: float | None) -> torch.Tensor | None:
    """Scale gradients to a norm of at most `most`; the norm before, still on the device."""
    if most is None:
        return None
    return torch.nn.utils.clip_grad_norm_(list(parameters), most)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(tensors, numbers) of an optimizer's state under flat names, without pickle."""
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}/{name}"] = value.detach().contiguous()
            else:
                numbers[f"{index}/{name}"] = value
    return tensors, numbers


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor], numbers: dict[str, Any]
) -> None:
    """Inverse of `optimizer_tensors`; number formats stay as they were saved (torch's own way casts them)."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, value in (*tensors.items(), *numbers.items()):
        index, name = key.split("/", 1)
        p = parameters[int(index)]
        on_device = isinstance(value, torch.Tensor) and value.dim() > 0
        optimizer.state[p][name] = value.to(p.device) if on_device else value
