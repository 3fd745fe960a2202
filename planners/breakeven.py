"""Break-even points: how often a teacher's output, or how much serving, pays a method back.

    N* = teacher / (student of the baseline - distilled student)          (the study's formula)
    T* = extra training energy in J / (j_ref - j_student)

Both are computed on the decimal numbers as written, so that a tie is a tie: 11 / (6.30 - 5.20) is 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from planners.checks import exact, finite
from planners.stats import normal_cdf, two_sided

J_PER_KWH = 3.6e6

ReuseVerdict = Literal["finite", "never", "always", "indifferent"]
ServingVerdict = Literal["finite", "never", "immediate", "reversed"]


@dataclass(frozen=True)
class ReuseBreakEven:
    """Number of students that must share one teacher pass; `None` where there is no such number."""

    verdict: ReuseVerdict
    n_star: float | None
    first_n_not_worse: int | None
    first_n_strictly_better: int | None


def reuse_break_even(teacher_kwh: float, student_baseline_kwh: float, student_distilled_kwh: float) -> ReuseBreakEven:
    """N* with its verdict; energies in kWh, each at least 0."""
    teacher = exact(finite(teacher_kwh, "teacher_kwh", at_least=0))
    saving = exact(finite(student_baseline_kwh, "student_baseline_kwh", at_least=0)) - exact(
        finite(student_distilled_kwh, "student_distilled_kwh", at_least=0)
    )
    if teacher == 0 and saving == 0:
        return ReuseBreakEven("indifferent", None, 1, None)
    if saving <= 0:
        return ReuseBreakEven("never", None, None, None)
    if teacher == 0:
        return ReuseBreakEven("always", 0.0, 1, 1)
    n_star = teacher / saving
    return ReuseBreakEven("finite", float(n_star), max(1, math.ceil(n_star)), max(1, math.floor(n_star) + 1))


@dataclass(frozen=True)
class ReuseInterval:
    """Interval of N*; `high` is None where "never" cannot be excluded, both are None where nothing can be said."""

    low: float | None
    high: float | None
    bounded: bool
    p_never: float


def fieller(teacher: tuple[float, float], saving: tuple[float, float], factor: float) -> ReuseInterval:
    """Fieller's set for teacher / saving, each a (mean, standard deviation) in kWh, independent.

    The set holds every N with (teacher - N·saving)² <= factor²·(Var teacher + N²·Var saving); a difference that is
    small beside its own error makes it unbounded (E. C. Fieller, J. R. Stat. Soc. B 16, 1954). Only N >= 0 counts, and
    of a set in two parts the hull.
    """
    t, t_sd = teacher
    d, d_sd = saving
    p_never = normal_cdf(-d / d_sd) if d_sd > 0 else float(d <= 0)
    a = d * d - (factor * d_sd) ** 2
    c = t * t - (factor * t_sd) ** 2
    discriminant = (t * d) ** 2 - a * c
    root = math.sqrt(max(0.0, discriminant))
    if a > 0:
        if t * d + root < 0:
            return ReuseInterval(None, None, False, p_never)
        return ReuseInterval(max(0.0, (t * d - root) / a), (t * d + root) / a, True, p_never)
    if a == 0 or discriminant < 0 or c <= 0:
        return ReuseInterval(0.0, None, False, p_never)
    return ReuseInterval((t * d - root) / a, None, False, p_never)


def reuse_interval(
    teacher_kwh: float, student_baseline_kwh: float, student_distilled_kwh: float, cv: float, level: float
) -> ReuseInterval:
    """Fieller's interval when each of the three energies has the coefficient of variation `cv`."""
    sd = cv * math.hypot(student_baseline_kwh, student_distilled_kwh)
    saving = student_baseline_kwh - student_distilled_kwh
    return fieller((teacher_kwh, cv * teacher_kwh), (saving, sd), two_sided(level))


@dataclass(frozen=True)
class ServingBreakEven:
    """Served tokens from which (`reversed`: up to which) the candidate needs less energy than the reference."""

    verdict: ServingVerdict
    t_star_tokens: float | None


def serving_break_even(extra_train_kwh: float, j_ref: float, j_student: float) -> ServingBreakEven:
    """T* for `extra_train_kwh` more training (may be negative) and J per served token of both."""
    extra = exact(finite(extra_train_kwh, "extra_train_kwh"))
    gain = exact(finite(j_ref, "j_ref", at_least=0)) - exact(finite(j_student, "j_student", at_least=0))
    if extra > 0:
        if gain <= 0:
            return ServingBreakEven("never", None)
        return ServingBreakEven("finite", float(extra * 3_600_000 / gain))
    if gain >= 0:
        return ServingBreakEven("immediate", 0.0)
    if extra == 0:
        return ServingBreakEven("never", None)
    return ServingBreakEven("reversed", float(extra * 3_600_000 / gain))


def lifecycle_kwh(train_kwh: float, j_per_token: float, served_tokens: float) -> float:
    """Training plus serving, in kWh."""
    return train_kwh + served_tokens * j_per_token / J_PER_KWH


def max_students(budget_kwh: float, teacher_kwh: float, per_student_kwh: float) -> int:
    """Students that a programme's budget pays for, with one teacher pass: floor((B - T) / e)."""
    left = exact(budget_kwh) - exact(teacher_kwh)
    if left < 0 or per_student_kwh <= 0:
        return 0
    return math.floor(left / exact(per_student_kwh))


def tokens_affordable(
    budget_kwh: float,
    students: int,
    teacher_kwh_per_m: float,
    student_kwh_per_m: float,
    *,
    epochs: float = 1.0,
    fixed_kwh: float = 0.0,
    per_student_kwh: float = 0.0,
    reuse: bool = True,
) -> float:
    """Millions of training tokens that a budget pays for with `students` students.

    With `reuse` the teacher sees them once: D = (B - fixed - n·e) / (t + n·k·s); without, every student pays for the
    teacher: D = (B/n - fixed/n - e) / (t + k·s). Rates in kWh per million tokens; never negative.
    """
    left = budget_kwh - fixed_kwh - students * per_student_kwh
    passes = 1 if reuse else students
    return max(0.0, left / (passes * teacher_kwh_per_m + students * epochs * student_kwh_per_m))
