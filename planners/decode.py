"""The decode law: energy of a generated token by size and batch. Imports nothing.

    J per output token = 0.028 + P·(0.0051 + 0.390 / B)        P in billions of parameters, B the batch

Fitted to 76 public points of the ML.ENERGY benchmark, version 3 (dense models of 8 to 70 billion parameters, bf16,
H100, chat, batch 4 to 512): mean error 5.5 %, a model left out 1.4 to 16.5 %. It holds for that hardware only.
0.390 J per billion parameters is one read of the weights, shared by a batch; 0.0051 J is what computing takes.
"""

from __future__ import annotations

BASE_J = 0.028
COMPUTE_J = 0.0051
WEIGHT_READ_J = 0.390
SMALLEST_B = 0.5
"""Billions of parameters below which the law says nothing."""


def decode_j_per_token(params_b: float, batch: float) -> float:
    """J per generated token of a dense bf16 model on an H100."""
    return BASE_J + params_b * (COMPUTE_J + WEIGHT_READ_J / batch)


def applies(params_b: float | None, hardware: str | None) -> bool:
    """Whether the law was fitted to anything like this."""
    return params_b is not None and params_b >= SMALLEST_B and hardware is not None and "H100" in hardware
