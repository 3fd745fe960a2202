"""Why: the sentence for every candidate that lost, what would flip the answer, warnings about the choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from planners import limits
from planners.assumed import ASSUMED_ENERGY_CV, ASSUMED_QUALITY_SD
from planners.checks import SAME, difference
from planners.frontier import EPSILON, Point, dominated_by
from planners.notes import Note
from planners.predicted import intervals_of
from planners.ranking import energy_column
from planners.request import PlanRequest
from planners.result import Reason
from planners.rules import Context
from planners.scoring import USED, limit_values
from planners.wording import energy

Row = dict[str, Any]
NOISE = 0.02
"""Gain in Q up to which a choice carries `gain_within_noise`."""
MOST_REJECTED = 1000
"""Candidates up to which all are told one by one; of a larger table only those that matter."""


def limits_object(request: PlanRequest) -> dict[str, Any]:
    """The limits and settings as the plan used them."""
    names = (
        "budget_kwh",
        "program_budget_kwh",
        "students",
        "min_quality",
        "co2e_kg",
        "cost",
        "gpu_hours",
        "energy_price",
        "gpu_hour_price",
        "mean_gpu_w",
        "gpus",
        "confidence",
        "quality_tolerance",
        "region",
        "teacher_region",
        "intensity",
        "teacher_intensity",
        "pue",
        "teacher_pue",
        "energy_scope",
        "teacher",
        "teacher_outputs",
        "teacher_batch",
        "max_new_tokens",
        "prompt_share",
    )
    values = {name: getattr(request, name) for name in names}
    values["currency"] = request.currency if request.cost is not None or request.energy_price is not None else None
    if request.program_budget_kwh is not None:
        values["budget_kwh"] = request.allowed_kwh
    return values


def reasons(context: Context, ranked: pl.DataFrame, fired: Sequence[Reason]) -> tuple[Reason, ...]:
    """Why the chosen one: the objective first, then the design rules that fired."""
    return (_choice(context, ranked), *fired)


def _choice(context: Context, ranked: pl.DataFrame) -> Reason:
    row, request = context.chosen, context.request
    count = f"{ranked.height} of {len(context.rows)} candidates"
    within = " and ".join(_limit_text(request, name) for name in limits.active(request))
    kept = f"{count} keep {within}" if within else f"{count} have a known quality"
    column = energy_column(request)
    what = "training and serving energy" if column == "lifecycle_kwh" else "energy per student"
    if request.goal == "min_energy":
        text = f"{kept}; {row['id']} needs the least {what}: {energy(row[column])}, quality {row['quality']:.2f}"
    elif request.quality_tolerance:
        text = (
            f"{kept}; {row['id']} is the cheapest within {request.quality_tolerance:g} of the best quality: "
            f"{row['quality']:.2f}, {energy(row['per_student_kwh'])} per student"
        )
    else:
        text = (
            f"{kept}; {row['id']} has the highest quality: {row['quality']:.2f}, "
            f"{energy(row['per_student_kwh'])} per student"
        )
    values = {
        "id": row["id"],
        "quality": row["quality"],
        "per_student_kwh": row["per_student_kwh"],
        "feasible": ranked.height,
    }
    return Reason(request.goal, text, values, "arithmetic")


def _limit_text(request: PlanRequest, name: str) -> str:
    if name == limits.QUALITY:
        return f"quality ≥ {request.min_quality:g}"
    sure = f" with P ≥ {request.confidence:g}" if request.confidence else ""
    return f"the {limits.NAMES[name]} of {limits.amount(limit_values(request)[name], request, name)}{sure}"


def runner_up(ranked: pl.DataFrame, request: PlanRequest) -> dict[str, Any] | None:
    """The second best feasible candidate, and why it is second."""
    if ranked.height < 2:
        return None
    first, second = ranked.row(0, named=True), ranked.row(1, named=True)
    return {
        "id": second["id"],
        "per_student_kwh": second["per_student_kwh"],
        "quality": second["quality"],
        "p_within": second["p_within"],
        "basis": second["basis"],
        **intervals_of(second, request.interval_level),
        "why": _as_predicted(second, request, _lost_to(second, first, request)),
    }


def _lost_to(row: Row, best: Row, request: PlanRequest) -> str:
    column = energy_column(request)
    more, worse = (
        difference(row[column], best[column]) if None not in (row[column], best[column]) else None,
        best["quality"] - row["quality"],
    )
    if request.goal == "min_energy":
        if more is None:
            return "its serving energy is unknown"
        return (
            f"needs {energy(more)} more than {best['id']}"
            if more > 0
            else f"as cheap as {best['id']}, behind it by tie-break"
        )
    if worse > EPSILON:
        return f"quality {row['quality']:.2f} is below {best['quality']:.2f} of {best['id']}"
    if worse >= -EPSILON and more == 0:
        return f"as good and as cheap as {best['id']}, behind it by tie-break"
    within = "within the tolerance of" if worse < -EPSILON else "of the same quality as"
    needs = "its serving energy is unknown" if more is None else f"needs {energy(more)} more"
    return f"{within} {best['id']}, and {needs}"


def rejected(
    rows: Sequence[Row], best: Row | None, request: PlanRequest, points: Sequence[Point]
) -> list[dict[str, Any]]:
    """Every candidate told that was not chosen, and why."""
    beaten = dominated_by(points)
    others = [row for row in rows if not best or row["id"] != best["id"]]
    return [{"id": row["id"], "why": _why(row, best, request, beaten)} for row in others]


def _why(row: Row, best: Row | None, request: PlanRequest, beaten: dict[str, list[str]]) -> str:
    return _as_predicted(row, request, _lost(row, best, request, beaten))


def _as_predicted(row: Row, request: PlanRequest, why: str) -> str:
    """The reason; of a candidate that nobody ran with its energy and quality as what they are."""
    if row["basis"] == "measured" or row["per_student_kwh"] is None:
        return why
    return f"predicted {_with_interval(row, request.interval_level)}; {why}"


def _with_interval(row: Row, level: float) -> str:
    """Energy and quality of a candidate that nobody ran, and where its next run would lie."""
    ends = intervals_of(row, level)
    low, high = energy(ends["per_student_kwh_low"]), energy(ends["per_student_kwh_high"])
    text = f"{energy(row['per_student_kwh'])} ({low} to {high} at {level:.0%})"
    if row["quality"] is None:
        return text
    return f"{text}, Q {row['quality']:.2f} ({ends['quality_low']:.2f} to {ends['quality_high']:.2f})"


def _lost(row: Row, best: Row | None, request: PlanRequest, beaten: dict[str, list[str]]) -> str:
    if row["quality"] is None:
        return "unrated: its quality is unknown, so it is never recommended"
    if row["per_student_kwh"] is None:
        return f"its energy at reuse {request.n} is unknown: the teacher's share was not recorded"
    broken = [text for name in limits.active(request) if (text := _broken(row, request, name))]
    why = "; ".join(broken) if broken else _lost_to(row, best, request) if best else "keeps every limit"
    dominating = beaten.get(row["id"])
    return f"{why}; dominated by {dominating[0]}" if dominating else why


def _broken(row: Row, request: PlanRequest, name: str) -> str | None:
    over = row[f"over_{name}"]
    if over == 0:
        return None
    if name == limits.QUALITY:
        return f"quality {row['quality']:.2f} is below the floor of {request.min_quality:g}"
    used, value = row[USED[name]], limit_values(request)[name]
    if used is None or over is None:
        return f"what it uses of the {limits.NAMES[name]} is unknown"
    if used <= value:
        sure = f"P ≥ {request.confidence:g} (P = {row['p_within']:.2f})"
        return f"{limits.amount(used, request, name)} keeps the {limits.NAMES[name]}, but not with {sure}"
    over_by, limit = limits.amount(used - value, request, name), limits.amount(value, request, name)
    return f"{limits.amount(used, request, name)} is {over_by} over the {limits.NAMES[name]} of {limit}"


def notes(scored: pl.DataFrame, ranked: pl.DataFrame, chosen: Row | None, request: PlanRequest) -> list[Note]:
    """Warnings about the choice and the data behind it."""
    found = []
    if scored.height and math.isinf(scored["sd_dof"][0]):
        text = f"no repeats: intervals assume {ASSUMED_ENERGY_CV:.0%} spread of energy and {ASSUMED_QUALITY_SD:g} of Q"
        found.append(Note("assumed_spread", text))
    if scored.filter(pl.col("quality").is_not_null()).is_empty():
        found.append(
            Note("no_rated_candidate", "no candidate has a known quality: measure one (evaluate stage) before planning")
        )
    if chosen is not None and request.goal == "max_quality":
        found += _within_noise(ranked, chosen)
    if request.serve_tokens and scored["j_serve"].null_count() < scored.height:
        found.append(
            Note(
                "serving_predicted",
                "energy per served token is predicted by a decode law for H100 where it was not measured",
            )
        )
    if scored.height > MOST_REJECTED:
        found.append(
            Note("rejected_cut", f"of {scored.height} candidates only the frontier, the best and the first are told")
        )
    return found


def _within_noise(ranked: pl.DataFrame, chosen: Row) -> list[Note]:
    cheaper = ranked.filter(
        (pl.col("per_student_kwh") < chosen["per_student_kwh"] * (1.0 - SAME))
        & (pl.col("quality") >= chosen["quality"] - NOISE - EPSILON)
        & (pl.col("id") != chosen["id"])
    )
    if cheaper.is_empty():
        return []
    other = cheaper.sort("per_student_kwh").row(0, named=True)
    gain, extra = chosen["quality"] - other["quality"], chosen["per_student_kwh"] - other["per_student_kwh"]
    text = (
        f"{chosen['id']} gains {gain:.3g} Q over {other['id']} for {energy(extra)} more: within noise; "
        f"--quality-tolerance {NOISE:g} would take {other['id']}"
    )
    return [Note("gain_within_noise", text)]


def candidate_points(rows: Sequence[Row], level: float) -> list[dict[str, Any]]:
    """Every candidate told, for a plot or a table, with its intervals."""
    keys = (
        "id",
        "regime",
        "student_params_b",
        "per_student_kwh",
        "quality",
        "basis",
        "feasible",
        "p_within",
        "derived",
        "source",
        "co2e_kg",
        "lifecycle_kwh",
    )
    return [{key: row[key] for key in keys} | intervals_of(row, level) for row in rows]
