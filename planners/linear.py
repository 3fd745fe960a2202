"""Weighted least squares for a handful of points and up to four coefficients, in plain Python.

Noise of energies is relative: a point's variance is (cv·mean)², so weights are 1/mean² and are iterated once from
the fitted means. The residual standard deviation then is a coefficient of variation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Vector = list[float]
Matrix = list[Vector]


class Degenerate(ValueError):
    """The points do not determine the coefficients."""


@dataclass(frozen=True)
class Fit:
    """Coefficients, their covariance for unit residual variance, residual sd (relative or absolute) and its dof."""

    coefficients: Vector
    unscaled: Matrix
    sd: float | None
    dof: int
    relative: bool

    def mean(self, features: Sequence[float]) -> float:
        """Fitted mean."""
        return sum(c * x for c, x in zip(self.coefficients, features, strict=True))

    def leverage(self, features: Sequence[float]) -> float:
        """xᵀ(XᵀWX)⁻¹x: the mean's variance is this times sd²."""
        return sum(a * self.unscaled[i][j] * b for i, a in enumerate(features) for j, b in enumerate(features))

    def scale(self, features: Sequence[float]) -> float:
        """What a residual sd is multiplied by at this point: the mean for relative noise, else 1."""
        return abs(self.mean(features)) if self.relative else 1.0


def solve(matrix: Matrix, right: Matrix) -> Matrix:
    """matrix⁻¹·right by Gauss-Jordan elimination with pivoting. Raises Degenerate."""
    size = len(matrix)
    rows = [list(a) + list(b) for a, b in zip(matrix, right, strict=True)]
    scale = max((abs(value) for row in matrix for value in row), default=0.0)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if abs(rows[pivot][column]) <= 1e-12 * scale:
            raise Degenerate("points do not determine the coefficients")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        lead = rows[column][column]
        rows[column] = [value / lead for value in rows[column]]
        for other in range(size):
            if other != column and rows[other][column]:
                factor = rows[other][column]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[column], strict=True)]
    return [row[size:] for row in rows]


def _weighted(features: Sequence[Vector], values: Vector, weights: Vector) -> tuple[Vector, Matrix]:
    count = len(features[0])
    norm = [max(abs(row[i]) for row in features) or 1.0 for i in range(count)]
    scaled = [[x / n for x, n in zip(row, norm, strict=True)] for row in features]
    normal = [
        [sum(w * row[i] * row[j] for w, row in zip(weights, scaled, strict=True)) for j in range(count)]
        for i in range(count)
    ]
    right = [[sum(w * row[i] * y for w, row, y in zip(weights, scaled, values, strict=True))] for i in range(count)]
    identity = [[float(i == j) for j in range(count)] for i in range(count)]
    both = solve(normal, [[*r, *e] for r, e in zip(right, identity, strict=True)])
    coefficients = [row[0] / n for row, n in zip(both, norm, strict=True)]
    inverse = [[both[i][1 + j] / (norm[i] * norm[j]) for j in range(count)] for i in range(count)]
    return coefficients, inverse


def fit(features: Sequence[Sequence[float]], values: Sequence[float], *, relative: bool) -> Fit:
    """Least squares of `values` on `features` (one row a point). Raises Degenerate where they do not suffice."""
    rows, y = [list(row) for row in features], list(values)
    if not rows or len(rows) < len(rows[0]):
        raise Degenerate("too few points")
    weights = [1.0 / max(v * v, 1e-300) for v in y] if relative else [1.0] * len(y)
    coefficients, inverse = _weighted(rows, y, weights)
    if relative:
        means = [sum(c * x for c, x in zip(coefficients, row, strict=True)) for row in rows]
        if all(mean > 0 for mean in means):
            weights = [1.0 / (mean * mean) for mean in means]
            coefficients, inverse = _weighted(rows, y, weights)
    dof = len(y) - len(rows[0])
    residuals = [v - sum(c * x for c, x in zip(coefficients, row, strict=True)) for v, row in zip(y, rows, strict=True)]
    squares = sum(w * r * r for w, r in zip(weights, residuals, strict=True))
    return Fit(coefficients, inverse, math.sqrt(squares / dof) if dof > 0 else None, dof, relative)


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Effective degrees of freedom of a sum of independent (variance, dof) parts; infinite dof are exact."""
    total = sum(variance for variance, _ in parts)
    below = sum(variance**2 / dof for variance, dof in parts if dof > 0 and not math.isinf(dof))
    return total**2 / below if below > 0 else math.inf
