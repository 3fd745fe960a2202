"""How much runs of one configuration scatter: pooled over configurations, per stage, else assumed.

Energies are pooled on a relative scale, Q on an absolute one. A method's own repeats are enough with four degrees of
freedom; below that those of all methods of the same source are taken, and without any repeat the spread is assumed
(infinite degrees of freedom). The study's rows are never given the spread of your runs.
"""

from __future__ import annotations

import math

import polars as pl

from planners.assumed import ASSUMED_ENERGY_CV, ASSUMED_QUALITY_SD

ENOUGH_DOF = 4

_METHOD = ["source_kind", "regime"]
_SOURCE = ["source_kind"]
PARTS = ("total_kwh", "student_kwh", "teacher_kwh", "quality")
SCRATCH = [f"_{kind}_{part}" for part in PARTS for kind in ("v", "k")]


def variances() -> list[pl.Expr]:
    """Aggregations for `group_by`: variance (energies: relative) and degrees of freedom of each part."""
    found = []
    for part in PARTS:
        column = pl.col(part)
        scale = 1.0 if part == "quality" else column.mean() ** 2
        found += [(column.var() / scale).alias(f"_v_{part}"), (column.count() - 1.0).alias(f"_k_{part}")]
    return found


def with_spread(grouped: pl.DataFrame) -> pl.DataFrame:
    """Adds `total_sd_kwh`, `sd_dof`, `quality_sd`, `quality_dof` of one run, and `student_sd_kwh`, `student_dof`,
    `teacher_sd_kwh`, `teacher_dof` of the mean (null where the stage was not repeated)."""
    stated = grouped.with_columns(
        _stated("total_kwh", pl.col("total_sd_kwh") / pl.col("total_kwh")),
        _stated_dof("total_kwh", "total_sd_kwh"),
        _stated("quality", pl.col("quality_sd")),
        _stated_dof("quality", "quality_sd"),
    )
    total, total_dof = _pooled("total_kwh")
    quality, quality_dof = _pooled("quality")
    student, student_dof = _pooled("student_kwh")
    teacher, teacher_dof = _pooled("teacher_kwh")
    root = pl.col("n").sqrt()
    return stated.with_columns(
        (pl.col("total_kwh") * total.fill_null(ASSUMED_ENERGY_CV)).alias("total_sd_kwh"),
        total_dof.fill_null(math.inf).alias("sd_dof"),
        quality.fill_null(ASSUMED_QUALITY_SD).alias("quality_sd"),
        quality_dof.fill_null(math.inf).alias("quality_dof"),
        (pl.col("student_kwh") * student / root).alias("student_sd_kwh"),
        pl.when(pl.col("student_kwh").is_not_null()).then(student_dof).alias("student_dof"),
        (pl.col("teacher_kwh") * teacher / root).alias("teacher_sd_kwh"),
        pl.when(pl.col("teacher_kwh").is_not_null()).then(teacher_dof).alias("teacher_dof"),
    ).drop(SCRATCH)


def _stated(part: str, sd: pl.Expr) -> pl.Expr:
    """A row that is a mean may state its own standard deviation."""
    return pl.when(sd.is_not_null()).then(sd**2).otherwise(f"_v_{part}").alias(f"_v_{part}")


def _stated_dof(part: str, sd: str) -> pl.Expr:
    return pl.when(pl.col(sd).is_not_null()).then(pl.col("n") - 1.0).otherwise(f"_k_{part}").alias(f"_k_{part}")


def _pooled(part: str) -> tuple[pl.Expr, pl.Expr]:
    """Pooled standard deviation and its degrees of freedom, row by row; null without repeats."""
    variance, dof = pl.col(f"_v_{part}"), pl.col(f"_k_{part}")
    usable = variance.is_finite().fill_null(False) & (dof > 0)
    weight, squares = pl.when(usable).then(dof).otherwise(0.0), pl.when(usable).then(variance * dof).otherwise(0.0)
    enough = weight.sum().over(_METHOD) >= ENOUGH_DOF

    def chosen(values: pl.Expr) -> pl.Expr:
        return pl.when(enough).then(values.sum().over(_METHOD)).otherwise(values.sum().over(_SOURCE))

    known = (chosen(weight) > 0) & (chosen(squares) > 0)
    sd = pl.when(known).then((chosen(squares) / chosen(weight)).sqrt())
    return sd, pl.when(known).then(chosen(weight))
