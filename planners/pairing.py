"""Break-even of every distilled candidate against plain SFT of the same size, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kdwatch.rundir.errors import UsageProblem
from planners.breakeven import ReuseInterval, fieller, reuse_break_even, serving_break_even
from planners.linear import satterthwaite
from planners.request import PlanRequest
from planners.result import BreakEven
from planners.schema import BASES
from planners.serving import j_per_served_token, teacher_j_per_served_token
from planners.stats import two_sided

Row = dict[str, Any]
DISTILLED = ("kd", "synthetic_sft")
SAME_TOKENS = 0.1
"""ln of the factor up to which two numbers of training tokens are the same."""
COMPUTE_SOURCE = "compute prior"
"""`source` of candidates whose method was measured nowhere: a difference to a measured one means nothing."""


def break_even(rows: Sequence[Row], request: PlanRequest) -> list[BreakEven]:
    """One entry for each distilled candidate, and for each other one whose serving break-even is known."""
    if request.serve_reference != "teacher" and request.serve_reference not in {row["id"] for row in rows}:
        known = ", ".join(str(row["id"]) for row in rows[:12])
        raise UsageProblem(
            f"serve-reference: {request.serve_reference!r} is no candidate; use teacher or one of {known}"
        )
    entries = (_entry(row, rows, request) for row in rows)
    return [entry for entry in entries if entry.n_verdict or entry.t_verdict or entry.id.startswith(("KD", "Syn"))]


def baseline_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """Plain SFT of the same size and scope whose student energy is known; where there are several, that of the same
    source and hardware, with as many training tokens, on the same data."""
    same_size = [
        other
        for other in rows
        if other["regime"] == "sft"
        and student_of(other) is not None
        and row["student_params_b"] is not None
        and other["student_params_b"] is not None
        and math.isclose(other["student_params_b"], row["student_params_b"], rel_tol=1e-3)
    ]
    return min(same_size, key=lambda other: _distance(row, other), default=None)


def _distance(row: Row, other: Row) -> tuple[bool, bool, bool, bool, float]:
    known = row["tokens"] and other["tokens"]
    apart = abs(math.log(other["tokens"] / row["tokens"])) if known else 0.0
    elsewhere, other_data = other["hardware"] != row["hardware"], other["data"] != row["data"]
    return other["source_kind"] != row["source_kind"], elsewhere, apart > SAME_TOKENS, other_data, apart


def student_of(row: Row) -> float | None:
    """Energy of the student's training: known, else modelled, else None."""
    known = row["student_kwh"] if row["student_kwh"] is not None else row["modelled_student_kwh"]
    return None if known is None else float(known)


def teacher_cost_kwh(row: Row, request: PlanRequest) -> float | None:
    """What the teacher's side still costs: nothing if its output exists, with its training if that is asked."""
    if request.teacher_outputs == "cached":
        return 0.0
    if row["teacher_kwh"] is None:
        return None
    return float(row["teacher_kwh"] + (request.teacher_training_kwh or 0.0))


def _entry(row: Row, rows: Sequence[Row], request: PlanRequest) -> BreakEven:
    t_reference, t_tokens, t_verdict = _serving(row, rows, request)
    comparable = row["regime"] in DISTILLED and row["source"] != COMPUTE_SOURCE
    base = baseline_of(row, rows) if comparable else None
    teacher = teacher_cost_kwh(row, request)
    if base is None or teacher is None or row["student_kwh"] is None:
        return BreakEven(
            row["id"],
            base["id"] if base else None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            row["basis"],
            t_tokens,
            t_verdict,
            t_reference,
        )
    point = reuse_break_even(teacher, student_of(base) or 0.0, row["student_kwh"])
    interval = reuse_interval_of(row, base, teacher, request.interval_level)
    shown = point.verdict in ("finite", "never")
    return BreakEven(
        id=row["id"],
        baseline=base["id"],
        n_star=point.n_star,
        n_star_low=interval.low if shown else None,
        n_star_high=interval.high if shown else None,
        first_n_not_worse=point.first_n_not_worse,
        first_n_strictly_better=point.first_n_strictly_better,
        n_verdict=point.verdict,
        p_never=interval.p_never if teacher else None,
        basis=_weaker(row["basis"], base["basis"] if base["student_kwh"] is not None else "interpolated"),
        t_star_tokens=t_tokens,
        t_verdict=t_verdict,
        t_reference=t_reference,
    )


def _weaker(a: str, b: str) -> str:
    return max(a, b, key=BASES.index)


def reuse_interval_of(row: Row, base: Row, teacher_kwh: float, level: float) -> ReuseInterval:
    """Fieller's interval from the standard errors of the three means."""
    saving = (student_of(base) or 0.0) - row["student_kwh"]
    (own, own_dof), (other, other_dof) = _student_error(row), _student_error(base)
    teacher_sd, teacher_dof = _teacher_error(row, teacher_kwh)
    n = teacher_kwh / saving if saving > 0 else 1.0
    dof = satterthwaite([((n * own) ** 2, own_dof), ((n * other) ** 2, other_dof), (teacher_sd**2, teacher_dof)])
    return fieller((teacher_kwh, teacher_sd), (saving, math.hypot(own, other)), two_sided(level, dof))


def _teacher_error(row: Row, teacher_kwh: float) -> tuple[float, float]:
    """Standard error of the teacher's energy, and its degrees of freedom."""
    if row["teacher_sd_kwh"] is not None:
        return row["teacher_sd_kwh"], row["teacher_dof"]
    return teacher_kwh * _relative_se(row), row["sd_dof"]


def _relative_se(row: Row) -> float:
    """Relative standard error of a candidate's mean; an assumed spread is that of the number as given."""
    relative = float(row["total_sd_kwh"] / row["total_kwh"])
    return relative if math.isinf(row["sd_dof"]) else relative / math.sqrt(row["n"])


def _student_error(row: Row) -> tuple[float, float]:
    """Standard error of the student's mean energy, and its degrees of freedom."""
    if row["student_sd_kwh"] is not None:
        return row["student_sd_kwh"], row["student_dof"]
    return _relative_se(row) * row["student_kwh"], row["sd_dof"]


def _serving(row: Row, rows: Sequence[Row], request: PlanRequest) -> tuple[str | None, float | None, str | None]:
    j_student = j_per_served_token(row, request.serve_batch)
    if row["per_student_kwh"] is None or j_student is None or request.serve_reference == row["id"]:
        return None, None, None
    if request.serve_reference == "teacher":
        j_ref, extra = teacher_j_per_served_token(row, request.serve_batch), row["per_student_kwh"]
    else:
        other = next(r for r in rows if r["id"] == request.serve_reference)
        j_ref = j_per_served_token(other, request.serve_batch)
        extra = None if other["per_student_kwh"] is None else row["per_student_kwh"] - other["per_student_kwh"]
    if j_ref is None or extra is None:
        return None, None, None
    answer = serving_break_even(extra, j_ref, j_student)
    return request.serve_reference, answer.t_star_tokens, answer.verdict
