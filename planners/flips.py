"""What change of the budget or of the reuse would give another answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from planners.frontier import Point
from planners.request import PlanRequest
from planners.wording import energy

Row = dict[str, Any]


def flips(
    scored: pl.DataFrame, request: PlanRequest, chosen: Row | None, on_frontier: Sequence[Point]
) -> list[dict[str, Any]]:
    """What change would give another answer: the next budgets up and down, and reuse counts."""
    found = []
    if chosen is not None and request.goal == "max_quality" and request.allowed_kwh is not None:
        ups = [p for p in on_frontier if p.quality > chosen["quality"] and p.energy > request.allowed_kwh]
        if ups:
            found.append(
                {
                    "change": "budget_kwh",
                    "to": ups[0].energy,
                    "by": ups[0].energy - request.allowed_kwh,
                    "id": ups[0].id,
                    "text": f"a budget of {energy(ups[0].energy)} (+{energy(ups[0].energy - request.allowed_kwh)}) "
                    f"gives {ups[0].id}, quality {ups[0].quality:.2f}",
                }
            )
        downs = [p for p in on_frontier if p.energy < chosen["per_student_kwh"]]
        if downs:
            found.append(
                {
                    "change": "budget_kwh",
                    "to": chosen["per_student_kwh"],
                    "by": chosen["per_student_kwh"] - request.allowed_kwh,
                    "id": downs[-1].id,
                    "text": f"a budget below {energy(chosen['per_student_kwh'])} "
                    f"gives {downs[-1].id}, quality {downs[-1].quality:.2f}",
                }
            )
    return found + reuse_flips(scored, request, chosen)


def reuse_flips(scored: pl.DataFrame, request: PlanRequest, chosen: Row | None) -> list[dict[str, Any]]:
    """The smallest N above the present one at which a distilled candidate fits, or needs less than the chosen."""
    if request.teacher_outputs == "cached" or request.program_budget_kwh is not None:
        return []
    found = []
    rows = scored.filter(pl.col("quality").is_not_null() & (pl.col("teacher_kwh") > 0)).iter_rows(named=True)
    for row in rows:
        if chosen is not None and row["id"] == chosen["id"]:
            continue
        target = _target_kwh(row, request, chosen)
        teacher = row["teacher_kwh"] + (request.teacher_training_kwh or 0.0)
        rest = row["total_kwh"] - row["teacher_kwh"]
        if target is None or target <= rest + 1e-9:
            continue
        n = max(1, math.ceil(round(teacher / (target - rest), 9)))
        if n > request.n:
            verb = (
                "fits the budget"
                if request.goal == "max_quality"
                else f"needs no more than {chosen['id'] if chosen else ''}"
            )
            found.append(
                {
                    "change": "reuse_n",
                    "to": n,
                    "by": n - request.n,
                    "id": row["id"],
                    "text": f"from N = {n} on {row['id']} {verb}: {energy(rest + teacher / n)}, "
                    f"quality {row['quality']:.2f}",
                }
            )
    return sorted(found, key=lambda flip: (flip["to"], flip["id"]))[:5]


def _target_kwh(row: Row, request: PlanRequest, chosen: Row | None) -> float | None:
    """Energy that the row must come down to in order to change the answer; None where it would not."""
    if request.min_quality is not None and row["quality"] < request.min_quality:
        return None
    if request.goal == "max_quality":
        if request.allowed_kwh is None or (chosen is not None and row["quality"] <= chosen["quality"]):
            return None
        return request.allowed_kwh
    return None if chosen is None else float(chosen["per_student_kwh"])
