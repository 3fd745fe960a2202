"""Candidates: observations with their repeats put together, and the spread that is known or assumed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from planners.schema import STAGE_COLUMNS

ASSUMED_ENERGY_CV = 0.03
"""Coefficient of variation of a run's energy where nothing was repeated."""
ASSUMED_QUALITY_SD = 0.02
"""Standard deviation of Q where nothing was repeated."""

_KEY = [
    "id",
    "regime",
    "student_params_b",
    "alpha",
    "temperature",
    "max_new_tokens",
    "prompts",
    "teacher_batch",
    "hyperparameters",
    "hardware",
    "scope",
    "source_kind",
]
_MEANS = [
    *STAGE_COLUMNS,
    "total_kwh",
    "quality",
    "j_per_token",
    "tokens",
    "teacher_tokens",
    "teacher_input_tokens",
    "teacher_params_b",
    "duration_s",
    "gpu_hours",
    "mean_gpu_w",
    "j_per_served_token",
]


@dataclass(frozen=True)
class Spread:
    """Pooled spread over all repeated configurations; infinite degrees of freedom mean "assumed"."""

    cv: float
    cv_dof: float
    quality_sd: float
    quality_dof: float


def source_kind() -> pl.Expr:
    """`paper` for the study's rows, `own` for all others: the two are never averaged."""
    return pl.when(pl.col("source") == "paper").then(pl.lit("paper")).otherwise(pl.lit("own")).alias("source_kind")


def candidates(table: pl.DataFrame) -> pl.DataFrame:
    """One row a configuration: means of its runs, `n` runs, and `total_sd_kwh`, `sd_dof`, `quality_sd`, `quality_dof`.

    The energy's spread is pooled over configurations on a relative scale, Q's on an absolute one; without any
    repeat both are assumed (`sd_dof` infinite). Ids that would name two things get a suffix.
    """
    keyed = table.with_columns(
        source_kind(),
        pl.col("repeats").fill_null(1),
    )
    grouped = keyed.group_by(_KEY, maintain_order=True).agg(
        *[pl.col(name).mean() for name in _MEANS],
        (pl.col("total_kwh").var() / pl.col("total_kwh").mean() ** 2).alias("_rel_var"),
        pl.col("quality").var().alias("_q_var"),
        pl.col("quality").count().alias("_q_n"),
        pl.col("repeats").sum().alias("n"),
        pl.len().alias("_rows"),
        pl.col("total_sd_kwh").mean(),
        pl.col("quality_sd").mean(),
        pl.col("basis").first(),
        pl.col("derived").any().fill_null(False),
        pl.col("run_dir").last(),
        pl.col("source").unique(maintain_order=True).str.join(", "),
    )
    return _with_spread(_unique_ids(grouped), pooled_spread(grouped))


def pooled_spread(grouped: pl.DataFrame) -> Spread:
    """Spread pooled over configurations, weighted by degrees of freedom."""
    cv, dof = _pool(grouped, pl.col("_rel_var"), pl.col("_rows") - 1, pl.col("total_sd_kwh") / pl.col("total_kwh"))
    sd, q_dof = _pool(grouped, pl.col("_q_var"), pl.col("_q_n") - 1, pl.col("quality_sd"))
    return Spread(cv or ASSUMED_ENERGY_CV, dof if cv else math.inf, sd or ASSUMED_QUALITY_SD, q_dof if sd else math.inf)


def _pool(grouped: pl.DataFrame, variance: pl.Expr, dof: pl.Expr, stated_sd: pl.Expr) -> tuple[float | None, float]:
    """Square root of the mean of variances weighted by degrees of freedom; rows that state their own sd count too."""
    table = grouped.select(
        pl.when(stated_sd.is_not_null()).then(stated_sd**2).otherwise(variance).alias("v"),
        pl.when(stated_sd.is_not_null()).then(pl.col("n") - 1).otherwise(dof).cast(pl.Float64).alias("k"),
    ).filter((pl.col("k") > 0) & pl.col("v").is_finite())
    weight, squares = float(table["k"].sum()), float((table["v"] * table["k"]).sum())
    return (math.sqrt(squares / weight), weight) if weight else (None, math.inf)


def _with_spread(grouped: pl.DataFrame, spread: Spread) -> pl.DataFrame:
    return grouped.with_columns(
        (pl.col("total_kwh") * spread.cv).alias("total_sd_kwh"),
        pl.lit(spread.cv_dof).alias("sd_dof"),
        pl.lit(spread.quality_sd).alias("quality_sd"),
        pl.lit(spread.quality_dof).alias("quality_dof"),
        pl.lit(None, dtype=pl.Float64).alias("student_sd_kwh"),
        pl.lit(None, dtype=pl.Float64).alias("student_dof"),
        pl.lit(None, dtype=pl.Float64).alias("modelled_student_kwh"),
    ).drop("_rel_var", "_q_var", "_q_n", "_rows")


def _unique_ids(grouped: pl.DataFrame) -> pl.DataFrame:
    """The study's names stay as they are; others of the same name get their settings or a number behind it."""
    taken: set[str] = set()
    ids = []
    kinds = grouped["source_kind"].to_list()
    reserved = {name for name, kind in zip(grouped["id"], kinds, strict=True) if kind == "paper"}
    for row in grouped.iter_rows(named=True):
        name = row["id"]
        if row["source_kind"] != "paper" and (name in taken or name in reserved):
            name = _longer(row, taken | reserved)
        taken.add(name)
        ids.append(name)
    return grouped.with_columns(pl.Series("id", ids, dtype=pl.String))


def _longer(row: dict, taken: set[str]) -> str:
    parts = [
        f"{k[0]}{row[key]:g}"
        for k, key in (("a", "alpha"), ("T", "temperature"), ("max", "max_new_tokens"))
        if row[key] is not None
    ]
    base = "-".join([row["id"], *parts])
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
