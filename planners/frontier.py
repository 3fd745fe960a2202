"""The energy-quality frontier: which points no other point beats, and the numbers drawn from it.

Dominance: another point needs no more energy and has no less quality, and is better in one of the two.
With a tolerance a point also falls where a cheaper one has at least its quality minus the tolerance.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

EPSILON = 1e-9
"""Qualities closer than this are equal: 0.70 - 0.68 is 0.02 whatever its last binary digit says."""


class Point(NamedTuple):
    """A candidate on the plane: energy per student in kWh, quality Q."""

    id: str
    energy: float
    quality: float


def frontier_table(
    table: pl.DataFrame, energy: str = "per_student_kwh", quality: str = "quality", tolerance: float = 0.0
) -> pl.DataFrame:
    """Rows of `table` on the frontier, by rising energy (throughput: pass J/token as `energy`).

    Rows with a null or NaN coordinate are left out; of identical points the first by `id` (else by order) stays.
    One sort and one running maximum: O(n log n), a million rows in well under a second.
    """
    finite = pl.col(energy).is_finite() & pl.col(quality).is_finite()
    clean = table.filter(finite) if _may_lack(table, energy) or _may_lack(table, quality) else table
    survivors = _first_pass(clean.sort(energy), energy, quality)
    keys = [energy, quality, *(["id"] if "id" in table.columns else [])]
    strict = _pass(survivors.sort(keys, descending=[name == quality for name in keys], maintain_order=True), quality)
    return _pass(strict, quality, tolerance) if tolerance else strict


def _may_lack(table: pl.DataFrame, name: str) -> bool:
    column = table[name]
    return column.null_count() > 0 or not bool(column.is_finite().all())


def _first_pass(by_energy: pl.DataFrame, energy: str, quality: str) -> pl.DataFrame:
    """Drop what a row before it dominates. Rows of one energy come in any order, so some survive that should not, and
    identical ones all do; the second pass, over the few survivors in full order, removes them."""
    best_before = pl.col(quality).cum_max().shift(1)
    twin = (pl.col(quality) == best_before) & (pl.col(energy) == pl.col(energy).shift(1))
    return by_energy.filter(best_before.is_null() | (pl.col(quality) > best_before) | twin)


def _pass(ordered: pl.DataFrame, quality: str, tolerance: float = 0.0) -> pl.DataFrame:
    """Keep rows whose quality is above the best before them by more than `tolerance`; all before are cheaper."""
    best_before = pl.col(quality).cum_max().shift(1)
    needed = best_before + tolerance + EPSILON if tolerance else best_before
    return ordered.filter(best_before.is_null() | (pl.col(quality) > needed))


def frontier(points: Sequence[Point], tolerance: float = 0.0) -> list[Point]:
    """The same for a handful of points, without a table."""
    kept: list[Point] = []
    best = None
    for point in sorted(_usable(points), key=lambda p: (p.energy, -p.quality, p.id)):
        if best is None or point.quality > best + tolerance + (EPSILON if tolerance else 0.0):
            kept.append(point)
        best = point.quality if best is None else max(best, point.quality)
    return kept


def _usable(points: Sequence[Point]) -> list[Point]:
    return [
        p
        for p in points
        if p.energy is not None and p.quality is not None and p.energy == p.energy and p.quality == p.quality
    ]


def dominated_by(points: Sequence[Point]) -> dict[str, list[str]]:
    """For each dominated point the ids of all points that dominate it, best quality first."""
    usable = _usable(points)
    found = {}
    for point in usable:
        better = [
            o
            for o in usable
            if o.energy <= point.energy
            and o.quality >= point.quality
            and (o.energy < point.energy or o.quality > point.quality)
        ]
        if better:
            found[point.id] = [o.id for o in sorted(better, key=lambda o: (-o.quality, o.energy, o.id))]
    return found


def hypervolume(points: Sequence[tuple[float, float]], reference: tuple[float, float] | None) -> float | None:
    """Area between the frontier's staircase and `reference` = (energy, quality), energy down and quality up.

    Points beyond the reference, dominated ones and duplicates add nothing. Without a reference there is no value: a
    default would change when points are added.
    """
    if reference is None:
        return None
    energy_limit, quality_floor = reference
    area, quality = 0.0, quality_floor
    for point in frontier([Point(str(i), *p) for i, p in enumerate(points)]):
        if point.energy < energy_limit and point.quality > quality:
            area += (energy_limit - point.energy) * (point.quality - quality)
            quality = point.quality
    return area


def marginal_quality(points: Sequence[Point]) -> list[float]:
    """Quality per further kWh between neighbours on a frontier given by rising energy."""
    return [(b.quality - a.quality) / (b.energy - a.energy) for a, b in itertools.pairwise(points)]


def next_upgrade(points: Sequence[Point], budget_kwh: float, quality: float | None) -> Point | None:
    """The cheapest point of a frontier that is over the budget and better than `quality` (None: than nothing)."""
    better = [p for p in points if p.energy > budget_kwh and (quality is None or p.quality > quality)]
    return min(better, key=lambda p: p.energy, default=None)


@dataclass(frozen=True)
class Knee:
    """The frontier point farthest above the chord between its ends, both axes scaled to 0..1 over those ends."""

    id: str
    height: float
    energy_range_kwh: tuple[float, float]
    quality_range: tuple[float, float]


def knee(points: Sequence[Point]) -> Knee | None:
    """The knee of a frontier given by rising energy; None with fewer than three points or none above the chord.

    `height` is the point's height over the chord in the scaled plane, divided by √2 (its distance). The answer
    depends on the scaling, so the ranges come with it.
    """
    if len(points) < 3:
        return None
    first, last = points[0], points[-1]
    width, rise = last.energy - first.energy, last.quality - first.quality
    if width <= 0 or rise <= 0:
        return None

    def height(point: Point) -> float:
        return ((point.quality - first.quality) / rise - (point.energy - first.energy) / width) / 2**0.5

    best = max(points[1:-1], key=height)
    if height(best) <= 0:
        return None
    return Knee(best.id, height(best), (first.energy, last.energy), (first.quality, last.quality))
