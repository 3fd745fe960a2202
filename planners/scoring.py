"""Every candidate measured against every limit, in one pass over the table.

per_student = prerun + preprocess + teacher / N + student + evaluate
"""

from __future__ import annotations

import math
from functools import lru_cache

import polars as pl

from planners.carbon import Grids
from planners.request import PlanRequest
from planners.stats import normal_cdf, t_cdf, t_quantile

LIMITS = ("budget_kwh", "co2e_kg", "cost", "gpu_hours")
"""Energy-like limits and, in this order, the columns that are held against them."""
USED = {"budget_kwh": "per_student_kwh", "co2e_kg": "co2e_kg", "cost": "cost", "gpu_hours": "gpu_hours_used"}
MANY = 2000
"""Rows from which probabilities are read off a grid."""
GRID_STEP = 0.005
SLACK = 1e-9
"""A limit is kept up to this relative excess: sums of decimal numbers are not exact."""


def score(table: pl.DataFrame, request: PlanRequest, grids: Grids) -> pl.DataFrame:
    """`table` (from `planners.candidates`) with what each candidate uses, `p_within`, `over_<limit>` and `feasible`.

    `over_<limit>` is the relative excess over a limit (0: kept; null: unknown), `violation` their sum. A candidate
    whose use of a limited thing is unknown is not feasible.
    """
    used = _with_uses(_with_energy(table, request), request, grids)
    return _with_verdicts(_with_probability(used, request), request)


def limit_values(request: PlanRequest) -> dict[str, float]:
    """The energy-like limits that are set, per student."""
    values = {
        "budget_kwh": request.allowed_kwh,
        "co2e_kg": request.co2e_kg,
        "cost": request.cost,
        "gpu_hours": request.gpu_hours,
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def _with_energy(table: pl.DataFrame, request: PlanRequest) -> pl.DataFrame:
    distilled = pl.col("regime").is_in(["kd", "synthetic_sft"])
    shared = 0.0 if request.teacher_outputs == "cached" else 1.0 / request.n
    training = (request.teacher_training_kwh or 0.0) / request.n
    teacher = pl.col("teacher_kwh") * shared + pl.when(distilled).then(training).otherwise(0.0)
    if shared == 1.0 and not training:
        per_student = pl.col("total_kwh")
    else:
        per_student = (pl.col("total_kwh") - pl.col("teacher_kwh") + teacher).clip(0.0)
    return table.with_columns(teacher.alias("teacher_share_kwh"), per_student.alias("per_student_kwh")).with_columns(
        (pl.col("total_sd_kwh") / pl.col("total_kwh") * pl.col("per_student_kwh")).alias("per_student_sd_kwh")
    )


def _with_uses(table: pl.DataFrame, request: PlanRequest, grids: Grids) -> pl.DataFrame:
    energy, teacher = pl.col("per_student_kwh"), pl.col("teacher_share_kwh")
    split = grids.main != grids.teacher
    facility = (energy - teacher) * grids.main.pue + teacher * grids.teacher.pue if split else energy * grids.main.pue
    main, other = grids.main.kg_per_kwh, grids.teacher.kg_per_kwh
    if main is None or other is None:
        carbon = pl.lit(None, dtype=pl.Float64)
    else:
        carbon = (energy - teacher) * main + teacher * other if split else energy * main
    if request.mean_gpu_w:
        hours = energy / (request.mean_gpu_w / 1000.0)
    else:
        hours = pl.col("gpu_hours") * energy / pl.col("total_kwh")
    with_uses = table.with_columns(
        facility.alias("facility_kwh"), carbon.alias("co2e_kg"), hours.alias("gpu_hours_used")
    )
    return _with_cost(with_uses, request)


def _with_cost(table: pl.DataFrame, request: PlanRequest) -> pl.DataFrame:
    unknown = pl.lit(None, dtype=pl.Float64)
    electricity = pl.col("facility_kwh") * request.energy_price if request.energy_price is not None else unknown
    rental = pl.col("gpu_hours_used") * request.gpu_hour_price if request.gpu_hour_price is not None else unknown
    parts = [
        part
        for part, given in ((electricity, request.energy_price), (rental, request.gpu_hour_price))
        if given is not None
    ]
    cost = sum(parts[1:], parts[0]) if parts else unknown
    return table.with_columns(electricity.alias("electricity_cost"), rental.alias("rental_cost"), cost.alias("cost"))


def _with_probability(table: pl.DataFrame, request: PlanRequest) -> pl.DataFrame:
    """`tightest_kwh`: energy at which the first energy-like limit is met (null: none ever is, as where a price is 0);
    `p_within`: P(next run's energy <= it)."""
    limits = limit_values(request)
    energy = pl.col("per_student_kwh")
    allowed = [
        pl.when(pl.col(USED[name]) > 0).then(energy * (value / pl.col(USED[name]))) for name, value in limits.items()
    ]
    tightest = pl.min_horizontal(allowed) if allowed else pl.lit(None, dtype=pl.Float64)
    spread = (
        pl.col("per_student_sd_kwh")
        * (1.0 + pl.when(pl.col("sd_dof").is_finite()).then(1.0 / pl.col("n")).otherwise(0.0)).sqrt()
    )
    with_z = table.with_columns(tightest.alias("tightest_kwh"), spread.alias("run_sd_kwh")).with_columns(
        ((pl.col("tightest_kwh") - energy) / pl.col("run_sd_kwh")).alias("_z")
    )
    return with_z.with_columns(_cdf(with_z).alias("p_within")).drop("_z")


def _cdf(table: pl.DataFrame) -> pl.Series:
    """P(T <= _z) row by row, with each row's degrees of freedom."""
    unknown = pl.Series("p_within", [None] * table.height, dtype=pl.Float64)
    if table["_z"].null_count() == table.height:
        return unknown
    if table.height > MANY:
        return _cdf_binned(table)
    pairs = zip(table["_z"].to_list(), table["sd_dof"].to_list(), strict=True)
    values = [None if z is None or math.isnan(z) else _probability(z, k) for z, k in pairs]
    return pl.Series("p_within", values, dtype=pl.Float64)


def _probability(z: float, dof: float) -> float:
    if math.isinf(z):
        return 1.0 if z > 0 else 0.0
    return normal_cdf(z) if math.isinf(dof) else t_cdf(z, dof)


@lru_cache(maxsize=16)
def _grid(dof: float) -> pl.Series:
    """P(T <= z) at z from -10 to 10 in steps of 0.005."""
    return pl.Series([_probability(-10.0 + step * GRID_STEP, dof) for step in range(4001)])


def _cdf_binned(table: pl.DataFrame) -> pl.Series:
    """The same for large tables, read off a grid: spread is pooled, so there are few different degrees of freedom."""
    z = table["_z"].fill_null(0.0).fill_nan(0.0).clip(-10.0, 10.0)
    index = ((z + 10.0) / GRID_STEP).round().cast(pl.UInt32)
    found = pl.lit(None, dtype=pl.Float64)
    for dof in table["sd_dof"].unique().to_list():
        found = pl.when(pl.col("sd_dof") == dof).then(_grid(dof).gather(index)).otherwise(found)
    return table.select(pl.when(pl.col("_z").is_not_null()).then(found).alias("p_within"))["p_within"]


def _with_verdicts(table: pl.DataFrame, request: PlanRequest) -> pl.DataFrame:
    table = table.with_columns(_upper_factor(table, request.confidence).alias("upper_factor"))
    factor = pl.col("upper_factor")
    verdicts = []
    for name, value in limit_values(request).items():
        excess = pl.col(USED[name]) * factor - value
        kept = excess <= SLACK * max(value, 1e-9)
        verdicts.append(pl.when(kept).then(0.0).otherwise(excess / max(value, 1e-9)).alias(f"over_{name}"))
    if request.min_quality is not None:
        short = request.min_quality - pl.col("quality")
        relative = short / max(request.min_quality, 1e-9)
        verdicts.append(pl.when(short <= SLACK).then(0.0).otherwise(relative).alias("over_min_quality"))
    over = [verdict.meta.output_name() for verdict in verdicts]
    judged = table.with_columns(verdicts)
    keeps = pl.all_horizontal([pl.col(name) == 0.0 for name in over]).fill_null(False) if over else pl.lit(True)
    return judged.with_columns(
        (keeps & pl.col("per_student_kwh").is_not_null() & pl.col("quality").is_not_null()).alias("feasible"),
        pl.when(pl.col("per_student_kwh").is_not_null())
        .then(pl.sum_horizontal(over, ignore_nulls=False) if over else 0.0)
        .alias("violation"),
    )


def _upper_factor(table: pl.DataFrame, confidence: float | None) -> pl.Expr:
    """By how much a use is raised so that the next run stays within it with probability `confidence`."""
    if confidence is None or table.is_empty():
        return pl.lit(1.0)
    quantiles = {dof: t_quantile(confidence, dof) for dof in table["sd_dof"].unique().to_list()}
    quantile = pl.col("sd_dof").replace_strict(list(quantiles), list(quantiles.values()), return_dtype=pl.Float64)
    relative = (
        pl.when(pl.col("per_student_kwh") > 0).then(pl.col("run_sd_kwh") / pl.col("per_student_kwh")).otherwise(0.0)
    )
    return 1.0 + quantile * relative
