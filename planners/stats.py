"""Normal and Student distributions, in plain Python: the planner needs a handful of values, not a library.

Student's t by the regularised incomplete beta function, evaluated by its continued fraction
(Lentz's method; Abramowitz & Stegun 26.5.8 and 26.7.1).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()


def normal_cdf(z: float) -> float:
    """P(Z <= z) for a standard normal Z."""
    return _NORMAL.cdf(z)


def normal_quantile(p: float) -> float:
    """The z with P(Z <= z) = p, 0 < p < 1."""
    return _NORMAL.inv_cdf(p)


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for m in range(1, 300):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + numerator * d or tiny)
            c = 1.0 + numerator / c or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value


def _beta_regularised(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularised incomplete beta function."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(b, a, 1.0 - x) / b


def t_cdf(t: float, dof: float) -> float:
    """P(T <= t) for Student's t with `dof` degrees of freedom; an infinite `dof` is the normal."""
    if math.isinf(dof):
        return normal_cdf(t)
    tail = 0.5 * _beta_regularised(dof / 2.0, 0.5, dof / (dof + t * t))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, dof: float) -> float:
    """The t with P(T <= t) = p, 0 < p < 1; by bisection, to about 1e-12."""
    if math.isinf(dof):
        return normal_quantile(p)
    if p < 0.5:
        return -t_quantile(1.0 - p, dof)
    low, high = 0.0, 1.0
    while t_cdf(high, dof) < p:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if t_cdf(middle, dof) < p else (low, middle)
    return 0.5 * (low + high)


def two_sided(level: float, dof: float = math.inf) -> float:
    """The factor k of a two-sided interval mean ± k·s at `level` (0.9 gives 1.645 for the normal)."""
    return t_quantile(0.5 + level / 2.0, dof)


def f_sf(ratio: float, dof_above: float, dof_below: float) -> float:
    """P(F > ratio) for Fisher's F; an infinite `dof_below` is a variance known exactly (chi-squared over its dof)."""
    if ratio <= 0:
        return 1.0
    below = min(dof_below, 1e7)
    return _beta_regularised(below / 2.0, dof_above / 2.0, below / (below + dof_above * ratio))
