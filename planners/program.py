"""How many students a programme's budget pays for, with one teacher pass for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planners.breakeven import max_students


def students_under_program_budget(rows: Sequence[dict[str, Any]], budget_kwh: float) -> list[dict[str, Any]]:
    """For each candidate `students` and the `kwh` they need: T + n·(rest). Most students first, then least energy.

    Rows need `id`, `total_kwh` and `teacher_kwh`; where one is unknown, both answers are.
    """
    found = []
    for row in rows:
        total, teacher = row["total_kwh"], row["teacher_kwh"]
        if total is None or teacher is None:
            found.append({"id": row["id"], "students": None, "kwh": None})
            continue
        per_student = round(total - teacher, 12)
        count = max_students(budget_kwh, teacher, per_student)
        found.append({"id": row["id"], "students": count, "kwh": teacher + count * per_student if count else 0.0})
    return sorted(found, key=lambda entry: (-(entry["students"] or 0), entry["kwh"] or 0.0, entry["id"]))
