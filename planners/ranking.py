"""Who is preferred: limits first, then the objective, then the same ties everywhere.

Highest quality: among feasible candidates within the tolerance of the best quality the cheapest; then by quality.
Lowest energy: by energy, or by training plus serving where a served volume is given.
Ties: energy (or quality), then fewer stages, then the name.
"""

from __future__ import annotations

import polars as pl

from planners.frontier import EPSILON
from planners.request import PlanRequest

DIGITS = 11
"""Significant digits to which energies and qualities are compared."""


def rank(scored: pl.DataFrame, request: PlanRequest) -> pl.DataFrame:
    """The feasible rows of a scored table, best first."""
    feasible = scored.filter(pl.col("feasible"))
    if feasible.is_empty():
        return feasible
    return _ordered(feasible, request.goal, request.quality_tolerance, energy_column(request))


def energy_column(request: PlanRequest) -> str:
    """What "lowest energy" means: per student, or with serving where a volume is given."""
    return "lifecycle_kwh" if request.serve_tokens else "per_student_kwh"


def _ordered(feasible: pl.DataFrame, goal: str, tolerance: float, energy: str) -> pl.DataFrame:
    keyed = feasible.with_columns(
        pl.col(energy).round_sig_figs(DIGITS).alias("_energy"),
        pl.col("quality").round_sig_figs(DIGITS).alias("_quality"),
        (pl.col("regime") != "sft").cast(pl.Int8).alias("_stages"),
    )
    if goal == "min_energy":
        keys, descending = ["_energy", "_quality", "_stages", "id"], [False, True, False, False]
    else:
        near = pl.col("_quality") >= pl.col("_quality").max() - tolerance - EPSILON if tolerance else pl.lit(False)
        keyed = keyed.with_columns(near.alias("_near")).with_columns(
            pl.when("_near").then("_energy").otherwise(None).alias("_near_energy")
        )
        keys = (
            ["_near_energy", "_quality", "_energy", "_stages", "id"]
            if tolerance
            else ["_quality", "_energy", "_stages", "id"]
        )
        descending = [False, True, False, False, False] if tolerance else [True, False, False, False]
    ordered = keyed.sort(keys, descending=descending, nulls_last=True)
    return ordered.drop([name for name in ordered.columns if name.startswith("_")])


def tied(ranked: pl.DataFrame, request: PlanRequest) -> tuple[list[str], str] | None:
    """Ids that equal the first one in the objective, and what broke the tie; None without a tie."""
    if ranked.height < 2:
        return None
    energy = energy_column(request)
    name, other = (energy, "quality") if request.goal == "min_energy" else ("quality", energy)
    best = ranked.row(0, named=True)
    equal = ranked.filter((pl.col(name) - best[name]).abs() <= 1e-9 * pl.max_horizontal(pl.col(name).abs(), 1e-12))
    if equal.height < 2:
        return None
    rival = equal.row(1, named=True)
    return sorted(equal["id"].to_list()), f"{_breaker(best, rival, other)} -> {best['id']}"


def _breaker(best: dict, rival: dict, other: str) -> str:
    known = best[other] is not None and rival[other] is not None
    if known and abs(best[other] - rival[other]) > 1e-9 * max(abs(best[other]), 1e-12):
        return "higher_q" if other == "quality" else "lower_energy"
    return "fewer_stages" if (best["regime"] == "sft") != (rival["regime"] == "sft") else "name"
