"""Where nothing of a method was measured: energy from compute, with the wide interval that this deserves.

    training 6·P·D FLOPs, a forward pass 2·P·D; E = FLOPs · pJ/FLOP

The range of pJ/FLOP is that of public logs of the study's harness on one H100 (SFT 3.1 to 3.8, KD 15 to 34), the lower
end widened to 40 % of peak (1.8) and the upper to what small batches cost.
"""

from __future__ import annotations

import math

from planners.costmodel import Declined, Prediction
from planners.stats import normal_quantile

PJ_PER_FLOP: dict[str, tuple[float, float]] = {"sft": (1.8, 12.0), "synthetic_sft": (1.8, 12.0), "kd": (8.0, 60.0)}
"""90 % range of the energy of a training FLOP by method, pJ."""


def training_flops(params_b: float, tokens: float) -> float:
    """6 FLOPs per parameter and token."""
    return 6.0 * params_b * 1e9 * tokens


def training_prior_kwh(regime: str, params_b: float, tokens: float, hardware: str | None) -> Prediction:
    """Energy of training a student on an H100, from compute alone. Raises Declined for other hardware.

    The mean and sd are those of the log-normal whose 90 % range is `PJ_PER_FLOP`.
    """
    if hardware is None or "H100" not in hardware:
        raise Declined("the compute prior is known for the H100 only; run kdwatch probe on this hardware")
    if regime not in PJ_PER_FLOP:
        raise Declined(f"no compute prior for {regime}")
    low, high = PJ_PER_FLOP[regime]
    sigma = math.log(high / low) / (2 * normal_quantile(0.95))
    mean_pj = math.sqrt(low * high) * math.exp(sigma**2 / 2)
    mean = training_flops(params_b, tokens) * mean_pj * 1e-12 / 3.6e6
    sd = mean * math.sqrt(math.exp(sigma**2) - 1.0)
    return Prediction(mean, sd, sd, math.inf, "extrapolated")


def prior_range_kwh(regime: str, params_b: float, tokens: float) -> tuple[float, float]:
    """The 90 % range itself."""
    low, high = PJ_PER_FLOP[regime]
    flops = training_flops(params_b, tokens)
    return flops * low * 1e-12 / 3.6e6, flops * high * 1e-12 / 3.6e6
