"""Energy of the teacher's stage: logits by forward tokens, generation by output tokens, batch and length.

    forward:     E = e0 + tokens·j
    generation:  J/token = c0 + c1/B + c2·L        B batch, L tokens generated per sample

1/B is the shared read of the weights, L the growing key-value cache and the draining of a batch (public logs of the
study's harness: 2.49 + 0.00177·L at batch 4). With fewer points than coefficients the decode law of
`planners.decode`, scaled to what was measured, stands in with a wide interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planners.assumed import ASSUMED_ENERGY_CV
from planners.costmodel import Declined, Prediction
from planners.decode import decode_j_per_token
from planners.linear import Degenerate, Fit, fit

SCALED_LAW_SD = 0.15
"""Relative sd of the decode law after it was scaled to a measured point: its worst left-out model was off by 16 %."""
KWH_J = 3.6e6


class Generated(NamedTuple):
    """One generation run: output tokens, batch, tokens generated per sample, energy in J."""

    tokens: float
    batch: float
    length: float
    energy_j: float

    @property
    def j_per_token(self) -> float:
        return self.energy_j / self.tokens


@dataclass(frozen=True)
class GenerationModel:
    """J per generated token as a function of batch and length, on one hardware and teacher."""

    fitted: Fit | None
    observed: tuple[Generated, ...]
    teacher_params_b: float | None
    names: tuple[str, ...]

    def j_per_token(self, batch: float, length: float) -> Prediction:
        """J/token of the next run. Raises Declined far outside what was measured."""
        if self.fitted is None:
            return self._scaled_law(batch)
        features = _features(self.names, batch, length)
        mean = self.fitted.mean(features)
        if mean <= 0:
            raise Declined(f"no positive J/token at batch {batch:g} and length {length:g}; probe nearer to it")
        outside = self._outside(batch, length)
        cv = max(self.fitted.sd or 0.0, ASSUMED_ENERGY_CV)
        dof = math.inf if self.fitted.dof < 2 else float(self.fitted.dof)
        se = math.hypot(cv * math.sqrt(self.fitted.leverage(features)), 0.1 * outside * mean)
        return Prediction(mean, se, math.hypot(se, cv * mean), dof, "extrapolated" if outside else "interpolated")

    def energy_kwh(self, tokens: float, batch: float, length: float) -> Prediction:
        """Energy of generating `tokens` tokens."""
        return scaled(self.j_per_token(batch, length), tokens / KWH_J)

    def _outside(self, batch: float, length: float) -> float:
        """Sum of ln factors by which batch and length lie outside the measured ranges. Raises Declined beyond four."""
        total = 0.0
        for name, value in (("batch", batch), ("length", length)):
            seen = [getattr(o, name) for o in self.observed]
            beyond = max(0.0, math.log(value / max(seen)), math.log(min(seen) / value))
            if beyond > math.log(4.0) + 1e-12:
                raise Declined(
                    f"{name} {value:g} is more than 4 times outside the measured {min(seen):g} to {max(seen):g}"
                )
            total += beyond
        return total

    def _scaled_law(self, batch: float) -> Prediction:
        if not self.teacher_params_b or not self.observed:
            raise Declined("no generation was measured for this teacher")
        laws = [decode_j_per_token(self.teacher_params_b, o.batch) for o in self.observed]
        scale = sum(o.j_per_token / law for o, law in zip(self.observed, laws, strict=True)) / len(laws)
        mean = scale * decode_j_per_token(self.teacher_params_b, batch)
        sd = SCALED_LAW_SD * mean
        return Prediction(mean, sd, sd, math.inf, "extrapolated")


def _features(names: Sequence[str], batch: float, length: float) -> list[float]:
    values = {"one": 1.0, "batch": 1.0 / batch, "length": length}
    return [values[name] for name in names]


def fit_generation(observed: Sequence[Generated], teacher_params_b: float | None = None) -> GenerationModel:
    """Fit what the points can carry: constant, batch and length terms for what differs between them."""
    points = tuple(o for o in observed if o.tokens > 0 and o.energy_j > 0)
    names = ["one"]
    for name in ("batch", "length"):
        if len({getattr(o, name) for o in points}) > 1:
            names.append(name)
    if len(names) < 2 or len(points) < len(names):
        return GenerationModel(None, points, teacher_params_b, ())
    try:
        rows = [_features(names, o.batch, o.length) for o in points]
        return GenerationModel(
            fit(rows, [o.j_per_token for o in points], relative=True), points, teacher_params_b, tuple(names)
        )
    except Degenerate:
        return GenerationModel(None, points, teacher_params_b, ())


class Forward(NamedTuple):
    """One forward pass of the teacher over a data set: tokens and energy in J."""

    tokens: float
    energy_j: float


def forward_energy_kwh(observed: Sequence[Forward], tokens: float) -> Prediction:
    """Energy of caching logits for `tokens` tokens: affine with two token counts, proportional with one.

    Raises Declined without a run, or beyond 200 times the tokens measured.
    """
    points = [o for o in observed if o.tokens > 0 and o.energy_j > 0]
    if not points:
        raise Declined("no forward pass of the teacher was measured")
    if tokens > 200 * max(o.tokens for o in points):
        raise Declined(f"{tokens:.3g} tokens are more than 200 times what was measured; probe longer")
    affine = len({o.tokens for o in points}) > 1
    rows = [[1.0, o.tokens] if affine else [o.tokens] for o in points]
    fitted = fit(rows, [o.energy_j for o in points], relative=True)
    features = [1.0, tokens] if affine else [tokens]
    cv = max(fitted.sd or 0.0, ASSUMED_ENERGY_CV)
    mean = fitted.mean(features)
    se = cv * math.sqrt(fitted.leverage(features))
    dof = math.inf if fitted.dof < 2 else float(fitted.dof)
    return scaled(Prediction(mean, se, math.hypot(se, cv * mean), dof, "extrapolated"), 1.0 / KWH_J)


def scaled(prediction: Prediction, factor: float) -> Prediction:
    """The same prediction in another unit or for another amount."""
    p = prediction
    return Prediction(p.mean * factor, p.se * factor, p.run_sd * factor, p.dof, p.basis)


def plus(parts: Sequence[Prediction]) -> Prediction:
    """Sum of independent stages."""
    from planners.linear import satterthwaite

    dof = satterthwaite([(p.run_sd**2, p.dof) for p in parts])
    order = ("measured", "interpolated", "extrapolated")
    basis = max((p.basis for p in parts), key=order.index)
    return Prediction(
        sum(p.mean for p in parts),
        math.hypot(*[p.se for p in parts]),
        math.hypot(*[p.run_sd for p in parts]),
        dof,
        basis,
    )
