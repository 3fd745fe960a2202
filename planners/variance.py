"""Tests of the cost model's assumptions: is the line straight, is the relative noise the same at every size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planners.assumed import ASSUMED_ENERGY_CV
from planners.linear import Fit
from planners.stats import f_sf

SIGNIFICANT = 0.02
"""Level of both tests: rare false alarms cost width, missed ones cost coverage."""

Points = Sequence[tuple[float, float]]


def by_size(points: Points) -> dict[float, list[float]]:
    """Energies grouped by size."""
    groups: dict[float, list[float]] = {}
    for size, energy in points:
        groups.setdefault(size, []).append(energy)
    return groups


def pure_error(points: Points) -> tuple[float, int]:
    """Relative sd of repeats around their own size's mean, pooled, and its degrees of freedom (0: no repeats)."""
    squares, dof = 0.0, 0
    for energies in by_size(points).values():
        mean = sum(energies) / len(energies)
        squares += sum((e / mean - 1.0) ** 2 for e in energies)
        dof += len(energies) - 1
    return (math.sqrt(squares / dof), dof) if dof else (ASSUMED_ENERGY_CV, 0)


def lack_of_fit(points: Points, fitted: Fit) -> tuple[float, int] | None:
    """Scatter of the sizes' means around the line (relative sd of one mean, dof), where noise does not explain it.

    The F test of lack of fit: mean square of the means' deviations over the mean square of repeats. Without repeats the
    assumed spread takes their place.
    """
    groups = by_size(points)
    dof = len(groups) - len(fitted.coefficients)
    if dof < 1:
        return None
    squares = 0.0
    for size, energies in groups.items():
        expected = fitted.mean([1.0, size])
        squares += len(energies) * (sum(energies) / len(energies) / expected - 1.0) ** 2
    error, error_dof = pure_error(points)
    ratio = squares / dof / max(error * error, 1e-30)
    if f_sf(ratio, dof, error_dof or math.inf) >= SIGNIFICANT:
        return None
    return math.sqrt(squares / dof), dof


def noise_at(points: Points, size: float, fitted: Fit) -> tuple[float, float]:
    """Relative sd of one run at `size`, and its degrees of freedom (infinite where it is assumed).

    The fit's residual sd; where repeats show that noise grows with size, that of the nearest size at or above.
    """
    if fitted.sd is None or fitted.dof < 1:
        return ASSUMED_ENERGY_CV, math.inf
    growing = growing_noise(points)
    if growing is None:
        if fitted.dof == 1:
            return max(fitted.sd, ASSUMED_ENERGY_CV), math.inf
        return fitted.sd, float(fitted.dof)
    at_least = [s for s in growing if s >= size]
    cv, dof = growing[min(at_least)] if at_least else growing[max(growing)]
    return max(cv, fitted.sd), float(dof)


def growing_noise(points: Points) -> dict[float, tuple[float, int]] | None:
    """Relative sd and dof by size, where the noisiest size is significantly noisier than the quietest (F test)."""
    spreads = {}
    for size, energies in by_size(points).items():
        if len(energies) > 1:
            mean = sum(energies) / len(energies)
            dof = len(energies) - 1
            spreads[size] = (math.sqrt(sum((e / mean - 1.0) ** 2 for e in energies) / dof), dof)
    if len(spreads) < 2:
        return None
    (low, low_dof), (high, high_dof) = min(spreads.values()), max(spreads.values())
    pairs = len(spreads) * (len(spreads) - 1)
    if f_sf((high / max(low, 1e-15)) ** 2, high_dof, low_dof) * pairs >= SIGNIFICANT:
        return None
    return spreads
