"""The study's table, as published. Empty cells are unknown and stay so; see data/PROVENANCE.md."""

from __future__ import annotations

from importlib.resources import files

import polars as pl

from planners.schema import CORE_STAGES, candidate_id, make_table

HARDWARE = "1x NVIDIA H100 80GB (700 W)"
SCOPE = "gpu+cpu_estimated"
TEACHER_PARAMS_B = 32.0


def table() -> pl.DataFrame:
    """The seven rows with every column of the schema. Syn-1B's total is a sum of stages, marked `derived`."""
    with files("planners").joinpath("data/paper_frontier.csv").open("rb") as file:
        cells = pl.read_csv(file.read(), schema_overrides={"quality": pl.Float64})
    rows = []
    for cell in cells.iter_rows(named=True):
        row = dict(cell)
        stages = [row[name] for name in CORE_STAGES]
        row["derived"] = row["total_kwh"] is None and None not in stages
        if row["derived"]:
            row["total_kwh"] = round(sum(stages), 9)
        rows.append(
            row
            | {
                "id": candidate_id(row["regime"], row["student_params_b"]),
                "teacher_params_b": TEACHER_PARAMS_B,
                "hardware": HARDWARE,
                "scope": SCOPE,
                "basis": "measured",
                "source": "paper",
            }
        )
    return make_table(rows)


def token_denominator_millions() -> float:
    """Tokens, in millions, that the table's J/token column divides each row's total by: the median over rows."""
    known = table().filter(pl.col("j_per_token").is_not_null())
    return float(known.select((pl.col("total_kwh") * 3.6 / pl.col("j_per_token")).median()).item())


def reuse_range(regime: str, params_b: float) -> tuple[float, float] | None:
    """The study's own range of break-even reuse N* for a method and size, or None where it gives none."""
    with files("planners").joinpath("data/paper_reuse_ranges.csv").open("rb") as file:
        ranges = pl.read_csv(file.read())
    row = ranges.filter((pl.col("regime") == regime) & (pl.col("student_params_b") == params_b))
    return (float(row["n_star_low"][0]), float(row["n_star_high"][0])) if row.height else None


TRUE_PARAMS_B = {1.0: 1.485, 7.0: 7.299, 13.0: 13.716, 32.0: 32.234}
"""Billions of parameters of the OLMo-2 models that the study calls 1B, 7B, 13B and 32B."""


def true_params_b(label_b: float) -> float:
    """Billions of parameters of the model behind the study's label; other sizes as they are."""
    return TRUE_PARAMS_B.get(float(label_b), label_b)
