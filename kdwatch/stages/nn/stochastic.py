"""Optimizers that step one tensor at a time in float32; weights kept in bfloat16 are rounded stochastically.

With 8 bits of mantissa, 1 - 5e-5 rounds back to 1: plain bfloat16 training stands still at small rates. Rounding up
or down with the right odds keeps the expected weight right, at half the memory of float32 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


def round_to_bfloat16(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """float32 to bfloat16, up with the odds of the cut-off bits: E[result] = value. Infinities and NaN stay."""
    bits = value.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=bits.device, generator=generator)
    rounded = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(torch.isfinite(value), rounded, value).to(torch.bfloat16)


class _Stochastic(torch.optim.Optimizer):
    """Steps every parameter on its own; random numbers follow from (seed, update)."""

    def __init__(self, params: Iterable[Any], lr: float, seed: int, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.seed = seed

    def update(self, p: torch.Tensor, grad: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        """What to subtract, before the rate; float32, of the parameter's shape."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """One update of every parameter that has a gradient."""
        generators: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                count = int(state.get("count", 0)) + 1
                state["count"] = count
                if p.device not in generators:
                    generators[p.device] = torch.Generator(p.device).manual_seed(self.seed * 1_000_003 + count)
                value = p.float()
                change = self.update(value, p.grad.float(), state)
                value = value * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * change
                rounds = p.dtype == torch.bfloat16
                p.copy_(round_to_bfloat16(value, generators[p.device]) if rounds else value)


class StochasticAdamW(_Stochastic):
    """Loshchilov and Hutter 2019; moments stay float32."""

    def update(self, p: torch.Tensor, grad: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        """m / (1 - b1^t) over sqrt(v / (1 - b2^t)) + eps."""
        if "m" not in state:
            state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
        state["m"].lerp_(grad, 0.1)
        state["v"].mul_(0.999).addcmul_(grad, grad, value=0.001)
        t = state["count"]
        return (state["m"] / (1 - 0.9**t)) / ((state["v"] / (1 - 0.999**t)).sqrt() + 1e-8)


class Adafactor(_Stochastic):
    """Shazeer and Stern 2018: factored second moment, update clipped to a root mean square of 1, fixed rate."""

    def update(self, p: torch.Tensor, grad: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        """Gradient over the root of the factored second moment."""
        keep = 1 - state["count"] ** -0.8
        square = grad * grad + 1e-30
        if p.dim() < 2:
            state["v"] = state.get("v", torch.zeros_like(p)).lerp(square, 1 - keep)
            change = grad * state["v"].rsqrt()
        else:
            rows, columns = square.mean(dim=-1), square.mean(dim=-2)
            state["rows"] = state.get("rows", torch.zeros_like(rows)).lerp(rows, 1 - keep)
            state["columns"] = state.get("columns", torch.zeros_like(columns)).lerp(columns, 1 - keep)
            scale = state["rows"] / state["rows"].mean(dim=-1, keepdim=True)
            change = grad * scale.rsqrt().unsqueeze(-1) * state["columns"].rsqrt().unsqueeze(-2)
        return change / change.square().mean().sqrt().clamp(min=1.0)
