"""The recommended candidate's numbers, with their intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from planners.noise import interval
from planners.request import PlanRequest
from planners.result import Predicted, Reason, Recommendation
from planners.schema import STAGES
from planners.whatif import what_if_settings

Row = dict[str, Any]
_SETTINGS = ("alpha", "temperature", "max_new_tokens", "prompts", "teacher_batch")


def recommendation_of(row: Row, request: PlanRequest, reasons: Sequence[Reason]) -> Recommendation:
    """The recommendation that a scored row stands for."""
    return Recommendation(
        id=row["id"],
        regime=row["regime"],
        student_params_b=row["student_params_b"],
        hyperparameters=hyperparameters(row, request),
        predicted=predicted_of(row, request),
        basis=row["basis"],
        reasons=tuple(reasons),
        source=row["source"],
        hardware=row["hardware"],
        scope=row["scope"],
        run_dir=row["run_dir"],
    )


def hyperparameters(row: Row, request: PlanRequest) -> dict[str, Any]:
    """Settings as measured; where the observation names none, those of the rules; in their place those of a what-if.
    `source` says which."""
    asked = what_if_settings(request) if row["regime"] == "synthetic_sft" else set()
    known = {name: row[name] for name in _SETTINGS if row[name] is not None}
    changed = {name: value for name, value in known.items() if name in asked}
    measured = {name: value for name, value in known.items() if name not in asked}
    if row["hyperparameters"]:
        measured |= json.loads(row["hyperparameters"])
    base = measured | {"source": "measured"} if measured else _advised(row)
    return base | changed | {"source": f"{base['source']} and what-if"} if changed else base


def _advised(row: Row) -> dict[str, Any]:
    """Settings of the rules."""
    advice: dict[str, dict[str, Any]] = {
        "kd": {"alpha": 0.5, "temperature": 1.0, "top_k": 100, "early_stop": True},
        "synthetic_sft": {"max_new_tokens": 512, "prompts": 3500, "early_stop": True},
        "sft": {"early_stop": True},
    }
    return advice.get(row["regime"], {}) | {"source": "rules"}


def hyperparameters_of(best: Recommendation) -> dict[str, Any]:
    """The recommendation's settings without the note where they come from."""
    return {name: value for name, value in best.hyperparameters.items() if name != "source"}


def predicted_of(row: Row, request: PlanRequest) -> Predicted:
    """Means and intervals of the next run of a scored row."""
    level, energy, total = request.interval_level, row["per_student_kwh"], row["total_kwh"]
    low, high = interval(total, row["total_sd_kwh"], level, dof=row["sd_dof"], n=row["n"])
    ends = intervals_of(row, level)
    quality = row["quality"]
    tokens = _tokens(row)
    return Predicted(
        total_kwh=total,
        total_kwh_low=max(0.0, low),
        total_kwh_high=high,
        per_student_kwh=energy,
        quality=quality,
        quality_low=ends["quality_low"],
        quality_high=ends["quality_high"],
        j_per_token=energy * 3.6e6 / tokens if tokens else row["j_per_token"],
        stages_kwh=stages_kwh(row),
        p_within=row["p_within"],
        per_student_kwh_low=ends["per_student_kwh_low"],
        per_student_kwh_high=ends["per_student_kwh_high"],
        facility_kwh=row["facility_kwh"],
        co2e_kg=row["co2e_kg"],
        electricity_cost=row["electricity_cost"],
        rental_cost=row["rental_cost"],
        gpu_hours=row["gpu_hours_used"],
        lifecycle_kwh=row["lifecycle_kwh"],
        spread=_spread(row),
    )


def intervals_of(row: Row, level: float) -> dict[str, float | None]:
    """Ends of the next run's intervals, energy per student and quality; None where there is no mean."""
    found: dict[str, float | None] = {}
    for name, sd, dof in (
        ("per_student_kwh", "per_student_sd_kwh", "sd_dof"),
        ("quality", "quality_sd", "quality_dof"),
    ):
        low = high = None
        if row[name] is not None:
            low, high = interval(row[name], row[sd], level, dof=row[dof], n=row["n"])
        found |= {f"{name}_low": None if low is None else max(0.0, low), f"{name}_high": high}
    return found


def _tokens(row: Row) -> float | None:
    """Tokens that the observation's J/token was divided by."""
    return row["total_kwh"] * 3.6e6 / row["j_per_token"] if row["j_per_token"] else row["tokens"]


def _spread(row: Row) -> str:
    if row["basis"] != "measured":
        return "model"
    return "assumed" if math.isinf(row["sd_dof"]) else "repeats"


def stages_kwh(row: Row) -> dict[str, float | None]:
    """Energy by stage per student; the teacher's share at this reuse."""
    stages = {("evaluate" if stage == "eval" else stage): row[f"{stage}_kwh"] for stage in STAGES}
    return stages | {"teacher": row["teacher_share_kwh"]}
