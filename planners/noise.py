"""What noise does to comparisons: who beats whom, with what probability a point belongs to the frontier."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from planners.stats import normal_cdf, normal_quantile, t_cdf, t_quantile, two_sided


@dataclass(frozen=True)
class Uncertain:
    """A candidate with standard deviations of its mean energy (kWh) and mean quality."""

    id: str
    energy: float
    quality: float
    energy_sd: float
    quality_sd: float


def p_greater(a: float, a_sd: float, b: float, b_sd: float) -> float:
    """P(A > B) for independent normals; 0.5 where both are certain and equal."""
    sd = math.hypot(a_sd, b_sd)
    if sd == 0:
        return 0.5 if a == b else float(a > b)
    return normal_cdf((a - b) / sd)


def p_dominates(a: Uncertain, b: Uncertain) -> float:
    """P(A needs no more energy and has no less quality than B), energy and quality independent."""
    return p_greater(b.energy, b.energy_sd, a.energy, a.energy_sd) * p_greater(
        a.quality, a.quality_sd, b.quality, b.quality_sd
    )


def membership(points: Sequence[Uncertain], draws: int = 200, seed: int = 1) -> dict[str, float]:
    """Share of parametric bootstrap draws in which each point is on the frontier.

    Candidates are drawn independently; the same seed gives the same answer, so that a what-if changes only
    by what was changed.
    """
    source = random.Random(seed)
    counts = dict.fromkeys((point.id for point in points), 0)
    for _ in range(draws):
        drawn = sorted(
            (source.gauss(p.energy, p.energy_sd), -source.gauss(p.quality, p.quality_sd), p.id) for p in points
        )
        best = math.inf
        for _energy, negative_quality, name in drawn:
            if negative_quality < best:
                best = negative_quality
                counts[name] += 1
    return {name: count / draws for name, count in counts.items()}


@dataclass(frozen=True)
class Chance:
    """Whether a budget holds for the next run."""

    p_within: float
    safe: bool
    budget_needed_kwh: float


def chance(
    mean_kwh: float, sd_kwh: float, budget_kwh: float, confidence: float, *, sd_known: bool = True, n: int | None = None
) -> Chance:
    """P(next run <= budget) and the budget that `confidence` needs.

    A known standard deviation gives the normal; one estimated from `n` runs gives Student's t with n - 1 degrees of
    freedom and the spread s·sqrt(1 + 1/n) of a further run around the mean.
    """
    if sd_known:
        spread, p, factor = sd_kwh, None, normal_quantile(confidence)
    else:
        if n is None or n < 2:
            raise ValueError("a standard deviation that is estimated needs n >= 2 runs")
        spread, factor = sd_kwh * math.sqrt(1 + 1 / n), t_quantile(confidence, n - 1)
        p = t_cdf((budget_kwh - mean_kwh) / spread, n - 1) if spread else None
    if spread == 0:
        p = float(budget_kwh >= mean_kwh)
    elif p is None:
        p = normal_cdf((budget_kwh - mean_kwh) / spread)
    return Chance(p, p >= confidence, mean_kwh + factor * spread)


def interval(mean: float, sd: float, level: float, *, dof: float = math.inf, n: int = 1) -> tuple[float, float]:
    """Interval of the next run: mean ± t·sd·sqrt(1 + 1/n); with an assumed sd (infinite `dof`) mean ± z·sd."""
    half = two_sided(level, dof) * sd * (1.0 if math.isinf(dof) else math.sqrt(1.0 + 1.0 / n))
    return mean - half, mean + half
