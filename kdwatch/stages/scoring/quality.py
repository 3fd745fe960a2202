"""Q as in the study: the mean over benchmarks of the student's score over the teacher's. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores side by side."""

    benchmarks: dict[str, dict[str, float | None]]
    """Name: `student` and `teacher` score; None where unknown."""
    q: float | None
    """None where a ratio cannot be formed: nothing is averaged over silently."""
    problems: list[str]
    """Why q is None."""


def compare(student: Mapping[str, float], teacher: Mapping[str, float] | None) -> Quality:
    """Q of two models' scores by benchmark."""
    known = teacher or {}
    names = sorted({*student, *known})
    benchmarks = {name: {"student": student.get(name), "teacher": known.get(name)} for name in names}
    if not teacher:
        return Quality(benchmarks, None, ["no teacher scores: Q is not known"])
    problems = []
    for name in names:
        if name not in student:
            problems.append(f"benchmark {name}: the student has no score")
        elif name not in teacher:
            problems.append(f"benchmark {name}: the teacher has no score")
        elif not teacher[name] > 0:
            problems.append(f"benchmark {name}: the teacher's score is {teacher[name]:g}, so no ratio can be formed")
    ratios = [student[n] / teacher[n] for n in names] if not problems else []
    return Quality(benchmarks, math.fsum(ratios) / len(ratios) if ratios else None, problems)
