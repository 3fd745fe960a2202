"""Energy of serving a finished model: measured where an observation says so, else by a decode law.

    J per output token = 0.028 + P·(0.0051 + 0.390 / B)        P in billions of parameters, B the batch

Fitted to 76 public points of the ML.ENERGY benchmark, version 3 (dense models of 8 to 70 billion parameters, bf16,
H100, chat, batch 4 to 512): mean error 5.5 %, a model left out 1.4 to 16.5 %. It holds for that hardware only.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from planners.paper import TRUE_PARAMS_B, true_params_b

BASE_J = 0.028
COMPUTE_J = 0.0051
WEIGHT_READ_J = 0.390
SMALLEST_B = 0.5
"""Billions of parameters below which the law says nothing."""


def decode_j_per_token(params_b: float, batch: float) -> float:
    """J per generated token of a dense bf16 model on an H100."""
    return BASE_J + params_b * (COMPUTE_J + WEIGHT_READ_J / batch)


def applies(params_b: float | None, hardware: str | None) -> bool:
    """Whether the law was fitted to anything like this."""
    return params_b is not None and params_b >= SMALLEST_B and hardware is not None and "H100" in hardware


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
    if not served_tokens:
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
