"""Candidates: observations with their repeats put together, and the spread that is known or assumed."""

from __future__ import annotations

from typing import Any

import polars as pl

from planners.schema import STAGE_COLUMNS
from planners.spread import variances, with_spread

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


def source_kind() -> pl.Expr:
    """`paper` for the study's rows, `own` for all others: the two are never averaged."""
    return pl.when(pl.col("source") == "paper").then(pl.lit("paper")).otherwise(pl.lit("own")).alias("source_kind")


def candidates(table: pl.DataFrame) -> pl.DataFrame:
    """One row a configuration: means of its runs, `n` runs, and `total_sd_kwh`, `sd_dof`, `quality_sd`, `quality_dof`.

    `planners.spread` says where the spread comes from. Ids that would name two things get a suffix.
    """
    keyed = table.with_columns(
        source_kind(),
        pl.col("repeats").fill_null(1),
    )
    grouped = keyed.group_by(_KEY, maintain_order=True).agg(
        *[pl.col(name).mean() for name in _MEANS],
        *variances(),
        pl.col("repeats").sum().alias("n"),
        pl.col("total_sd_kwh").mean(),
        pl.col("quality_sd").mean(),
        pl.col("basis").first(),
        pl.col("derived").any().fill_null(False),
        pl.col("run_dir").last(),
        pl.col("source").unique(maintain_order=True).str.join(", "),
    )
    unknown = pl.lit(None, dtype=pl.Float64)
    return with_spread(unique_ids(grouped)).with_columns(unknown.alias("modelled_student_kwh"))


def unique_ids(table: pl.DataFrame) -> pl.DataFrame:
    """Ids made unique: the study's come first and stay, others get their settings or a number behind them."""
    if table["id"].n_unique() == table.height:
        return table
    taken: set[str] = set()
    ids = [""] * table.height
    rows = list(enumerate(table.select("source_kind", *_NAMED).iter_rows(named=True)))
    for index, row in sorted(rows, key=lambda pair: pair[1]["source_kind"] != "paper"):
        ids[index] = row["id"] if row["id"] not in taken else _longer(row, taken)
        taken.add(ids[index])
    return table.with_columns(pl.Series("id", ids, dtype=pl.String))


_NAMED = ("id", "alpha", "temperature", "max_new_tokens")


def _longer(row: dict[str, Any], taken: set[str]) -> str:
    letters = zip(("a", "T", "max"), _NAMED[1:], strict=True)
    base = "-".join([row["id"], *(f"{letter}{row[key]:g}" for letter, key in letters if row[key] is not None)])
    number, name = 1, base
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
