"""Quality between measured sizes: affine in ln(size), with an interval; nothing is said outside the measured sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planners.assumed import ASSUMED_QUALITY_SD
from planners.costmodel import Declined, Prediction
from planners.linear import fit
from planners.stats import f_sf

UNTESTED_CURVATURE = 0.04
"""Sd of Q that the line in ln(size) may be off by between two sizes (the study's SFT-7B lies 0.02 off its line)."""


def predict_quality(points: Sequence[tuple[float, float]], params_b: float) -> Prediction:
    """Q of a student of `params_b` billions from (size, Q) of runs of its method.

    Raises Declined with fewer than two sizes, outside the measured sizes, or where the sizes do not lie on a line.
    """
    sizes = sorted({size for size, _ in points})
    if len(sizes) < 2:
        raise Declined(f"quality is known at {len(sizes)} size(s) of this method; measure at least two")
    if not sizes[0] * (1 - 1e-9) <= params_b <= sizes[-1] * (1 + 1e-9):
        raise Declined(f"quality at {params_b:g}B is outside the measured {sizes[0]:g}B to {sizes[-1]:g}B; measure it")
    fitted = fit([[1.0, math.log(size)] for size, _ in points], [q for _, q in points], relative=False)
    features = [1.0, math.log(params_b)]
    mean = fitted.mean(features)
    if fitted.sd is None or fitted.dof < 2 or len(sizes) < 3:
        sd = max(fitted.sd or 0.0, ASSUMED_QUALITY_SD)
        wrong, dof = UNTESTED_CURVATURE, math.inf
    else:
        sd, dof, wrong = fitted.sd, float(fitted.dof), 0.0
        lack = _lack(points, fitted.mean)
        if lack is not None:
            sd, dof = max(sd, lack[0]), float(lack[1])
    se = math.hypot(sd * math.sqrt(fitted.leverage(features)), wrong)
    return Prediction(mean, se, math.hypot(se, sd), dof, "interpolated")


def _lack(points: Sequence[tuple[float, float]], mean: object) -> tuple[float, int] | None:
    """Scatter of the sizes' means around the line where repeats do not explain it (F test at 2 %), with its dof."""
    groups: dict[float, list[float]] = {}
    for size, quality in points:
        groups.setdefault(size, []).append(quality)
    error_dof = sum(len(values) - 1 for values in groups.values())
    dof = len(groups) - 2
    if dof < 1 or error_dof < 1:
        return None
    centre = {size: sum(values) / len(values) for size, values in groups.items()}
    error = sum((q - centre[size]) ** 2 for size, values in groups.items() for q in values) / error_dof
    line = mean  # a callable of the features
    squares = sum(len(groups[size]) * (value - line([1.0, math.log(size)])) ** 2 for size, value in centre.items())  # type: ignore[operator]
    if f_sf(squares / dof / max(error, 1e-30), dof, error_dof) >= 0.02:
        return None
    return math.sqrt(squares / dof), dof
