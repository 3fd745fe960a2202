"""Energy of serving a finished model: measured where an observation says so, else by the law of `planners.decode`."""

from __future__ import annotations

from typing import Any

import polars as pl

from planners.decode import BASE_J, COMPUTE_J, SMALLEST_B, WEIGHT_READ_J, applies, decode_j_per_token
from planners.paper import TRUE_PARAMS_B, true_params_b

__all__ = ["SMALLEST_B", "applies", "decode_j_per_token", "j_per_served_token", "with_lifecycle"]


def j_per_served_token(row: dict[str, Any], batch: float) -> float | None:
    """J per token that this candidate serves, or None where neither a measurement nor the law covers it."""
    if row.get("j_per_served_token") is not None:
        return float(row["j_per_served_token"])
    size = row.get("student_params_b")
    if size is None or not applies(size, row.get("hardware")):
        return None
    return decode_j_per_token(true_params_b(size) if row.get("source_kind") == "paper" else size, batch)


def teacher_j_per_served_token(row: dict[str, Any], batch: float) -> float | None:
    """The same for the candidate's teacher."""
    size = row.get("teacher_params_b")
    if size is None or not applies(size, row.get("hardware")):
        return None
    return decode_j_per_token(true_params_b(size) if row.get("source_kind") == "paper" else size, batch)


def with_lifecycle(table: pl.DataFrame, served_tokens: float | None, batch: float) -> pl.DataFrame:
    """Adds `j_serve` and `lifecycle_kwh` = training + served tokens · J / 3.6e6; null where serving is unknown."""
    if served_tokens is None:
        unknown = pl.lit(None, dtype=pl.Float64)
        return table.with_columns(unknown.alias("j_serve"), unknown.alias("lifecycle_kwh"))
    size = pl.col("student_params_b")
    true_size = pl.when(pl.col("source_kind") == "paper").then(size.replace(TRUE_PARAMS_B)).otherwise(size)
    covered = pl.col("hardware").str.contains("H100", literal=True) & (size >= SMALLEST_B)
    law = pl.when(covered.fill_null(False)).then(BASE_J + true_size * (COMPUTE_J + WEIGHT_READ_J / batch))
    served = table.with_columns(pl.coalesce("j_per_served_token", law).alias("j_serve"))
    return served.with_columns(
        (pl.col("per_student_kwh") + pl.col("j_serve") * served_tokens / 3.6e6).alias("lifecycle_kwh")
    )
