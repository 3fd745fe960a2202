"""How many students a programme's budget pays for, with one teacher pass for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planners.breakeven import max_students

Row = Mapping[str, Any]


def per_student_kwh(row: Row, n: int, *, whole: bool = True) -> float | None:
    """Energy per student when `n` share one teacher pass; without `whole` only teacher / N + student.

    None where a part that is needed is unknown.
    """
    if not whole:
        known = row["teacher_kwh"] is not None and row["student_kwh"] is not None
        return row["teacher_kwh"] / n + row["student_kwh"] if known else None
    if n == 1:
        return None if row["total_kwh"] is None else float(row["total_kwh"])
    if row["total_kwh"] is None or row["teacher_kwh"] is None:
        return None
    return float(row["total_kwh"] - row["teacher_kwh"] * (1 - 1 / n))


def students_under_program_budget(
    rows: Sequence[Row], budget_kwh: float, teacher_paid_once: bool = True
) -> list[dict[str, Any]]:
    """For each candidate `students` and the `kwh` they need: T + n·(rest). Most students first, then least energy.

    Without `teacher_paid_once` every student pays for a teacher pass. Rows need `id`, `total_kwh` and `teacher_kwh`;
    where one is unknown, both answers are.
    """
    found = []
    for row in rows:
        total, teacher = row["total_kwh"], row["teacher_kwh"]
        if total is None or teacher is None:
            found.append({"id": row["id"], "students": None, "kwh": None})
            continue
        shared = teacher if teacher_paid_once else 0.0
        per_student = round(total - shared, 12)
        count = max_students(budget_kwh, shared, per_student)
        found.append({"id": row["id"], "students": count, "kwh": shared + count * per_student if count else 0.0})
    return sorted(found, key=lambda entry: (-(entry["students"] or 0), entry["kwh"] or 0.0, entry["id"]))
