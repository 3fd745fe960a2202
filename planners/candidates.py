"""Candidates: observations with their repeats put together, and the spread that is known or assumed."""

from __future__ import annotations

import json
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
    "data",
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
    """Ids made unique: the study's come first and stay, others get the settings in which they differ, or a number."""
    if table["id"].n_unique() == table.height:
        return table
    alike: dict[str, list[int]] = {}
    rows = list(table.select("source_kind", "id", *_TAGS, "hyperparameters").iter_rows(named=True))
    for index in sorted(range(len(rows)), key=lambda i: rows[i]["source_kind"] != "paper"):
        alike.setdefault(rows[index]["id"], []).append(index)
    taken, ids = set(alike), [row["id"] for row in rows]
    for members in alike.values():
        settings = [_settings(rows[index]) for index in members]
        differ = [
            key for key in dict.fromkeys(k for s in settings for k in s) if len({s.get(key) for s in settings}) > 1
        ]
        for index, mine in list(zip(members, settings, strict=True))[1:]:
            tags = [f"{key}{mine[key]}" for key in differ if key != DATA and mine.get(key) is not None]
            if not tags and DATA in differ and DATA in mine:
                tags = [f"{DATA}-{mine[DATA]}"]
            ids[index] = _free("-".join([rows[index]["id"], *tags[:MOST_TAGS]]), taken)
            taken.add(ids[index])
    return table.with_columns(pl.Series("id", ids, dtype=pl.String))


DATA = "data"
"""Data is named where nothing else differs."""
_TAGS = {"alpha": "a", "temperature": "T", "max_new_tokens": "max", "prompts": "p", "teacher_batch": "b", "data": DATA}
"""Column and its short name in an id."""
MOST_TAGS = 3


def _settings(row: dict[str, Any]) -> dict[str, str]:
    """Settings of a candidate by the short name that an id has for them."""
    found = {tag: row[column] for column, tag in _TAGS.items() if row[column] is not None}
    found |= {key.rsplit(".", 1)[-1]: v for key, v in json.loads(row["hyperparameters"] or "{}").items()}
    return {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in found.items()}


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
