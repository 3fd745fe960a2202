"""What-ifs on the teacher's generation: batch, length, number of prompts. All are modelled and say so.

The batch acts by the decode law of `planners.decode`: J/token = a + P·(c + w/B), so a larger batch shares the
weight read. Length acts as E ~ L^1.23 (two public logs, 205 and 768 tokens a sample: 3.75 times as long for
5.06 times the energy); prompts act in proportion. The effect on quality is unknown and is not modelled.
"""

from __future__ import annotations

import polars as pl

from planners.decode import decode_j_per_token
from planners.notes import Note
from planners.request import PlanRequest

ASSUMED_BATCH = 4.0
"""Generation batch where an observation does not say: the default of the study's public code."""
ASSUMED_MAX_NEW_TOKENS = 1024.0
"""Generation limit where an observation does not say: the study's sequence length."""
LONGER_THAN_LINEAR = 1.23
"""Exponent of generation energy over its length."""


def batch_factor(teacher_params_b: float, batch: float, new_batch: float) -> float:
    """Generation energy at `new_batch` over that at `batch`, by the decode law."""
    return decode_j_per_token(teacher_params_b, new_batch) / decode_j_per_token(teacher_params_b, batch)


def length_factor(length: float, new_length: float) -> float:
    """Generation energy at another length limit, over the energy now."""
    return (new_length / length) ** LONGER_THAN_LINEAR


def apply(table: pl.DataFrame, request: PlanRequest) -> tuple[pl.DataFrame, list[Note]]:
    """Candidates with the what-ifs on synthetic SFT's teacher stage; the changed ones are `extrapolated`."""
    if request.teacher_batch is None and request.max_new_tokens is None and request.prompt_share is None:
        return table, []
    columns = ["regime", "teacher_params_b", "teacher_batch", "max_new_tokens"]
    factors = [_factor(row, request) for row in table.select(columns).iter_rows(named=True)]
    share = request.prompt_share or 1.0
    factor = pl.Series("_factor", factors, dtype=pl.Float64)
    changed = (pl.col("regime") == "synthetic_sft") & ((pl.col("_factor") != 1.0) | (share != 1.0))
    teacher, student = pl.col("teacher_kwh") * pl.col("_factor"), pl.col("student_kwh") * share
    moved = (teacher - pl.col("teacher_kwh")).fill_null(0.0) + (student - pl.col("student_kwh")).fill_null(0.0)
    new = table.with_columns(factor).with_columns(
        pl.when(changed).then(pl.col("total_kwh") + moved).otherwise("total_kwh").alias("total_kwh"),
        pl.when(changed)
        .then(pl.col("total_sd_kwh") + 0.15 * moved.abs())
        .otherwise("total_sd_kwh")
        .alias("total_sd_kwh"),
        pl.when(changed).then(teacher).otherwise("teacher_kwh").alias("teacher_kwh"),
        pl.when(changed).then(student).otherwise("student_kwh").alias("student_kwh"),
        *_new_settings(request),
        pl.when(changed).then(pl.lit("extrapolated")).otherwise("basis").alias("basis"),
    )
    names = new.filter(changed)["id"].to_list()
    return new.drop("_factor"), _notes(names)


def _new_settings(request: PlanRequest) -> list[pl.Expr]:
    """The settings that synthetic candidates have after the what-if."""
    synthetic = pl.col("regime") == "synthetic_sft"
    values = {"teacher_batch": request.teacher_batch, "max_new_tokens": request.max_new_tokens}
    settings = [
        pl.when(synthetic).then(float(value)).otherwise(name).alias(name)
        for name, value in values.items()
        if value is not None
    ]
    if request.prompt_share is not None:
        fewer = (pl.col("prompts") * request.prompt_share).round().clip(1.0)
        settings.append(pl.when(synthetic).then(fewer).otherwise("prompts").alias("prompts"))
    return settings


def what_if_settings(request: PlanRequest) -> set[str]:
    """Names of the settings that the request's what-ifs change."""
    asked = {
        "teacher_batch": request.teacher_batch,
        "max_new_tokens": request.max_new_tokens,
        "prompts": request.prompt_share,
    }
    return {name for name, value in asked.items() if value is not None}


def _factor(row: dict, request: PlanRequest) -> float:
    factor = request.prompt_share or 1.0
    if row["regime"] != "synthetic_sft":
        return 1.0
    if request.teacher_batch is not None and row["teacher_params_b"]:
        factor *= batch_factor(row["teacher_params_b"], row["teacher_batch"] or ASSUMED_BATCH, request.teacher_batch)
    if request.max_new_tokens is not None:
        factor *= length_factor(row["max_new_tokens"] or ASSUMED_MAX_NEW_TOKENS, request.max_new_tokens)
    return factor


def _notes(names: list[str]) -> list[Note]:
    if not names:
        return [Note("what_if_without_effect", "the what-ifs on generation change no candidate: none is synthetic SFT")]
    text = f"teacher what-ifs are modelled, not measured, and quality is taken as unchanged: {', '.join(names)}"
    return [Note("what_if_extrapolated", text)]
