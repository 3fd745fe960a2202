"""Break-even of reuse and of serving: signs, ties, exact arithmetic, Fieller's interval."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kdwatch.rundir.errors import UsageProblem
from planners.breakeven import (
    fieller,
    lifecycle_kwh,
    max_students,
    reuse_break_even,
    reuse_interval,
    serving_break_even,
    tokens_affordable,
)

cents = st.integers(0, 5000).map(lambda n: n / 100)


@given(cents, cents, cents)
def test_first_n_is_where_sharing_pays_on_the_decimal_numbers(teacher: float, base: float, distilled: float) -> None:
    found = reuse_break_even(teacher, base, distilled)
    t, saving = round(teacher * 100), round(base * 100) - round(distilled * 100)  # whole cents: exact
    if found.verdict == "never":
        assert saving < 0 or (saving == 0 and t > 0)
        return
    first = found.first_n_not_worse
    assert first is not None and t <= first * saving
    assert first == 1 or t > (first - 1) * saving
    if found.first_n_strictly_better is not None:
        better = found.first_n_strictly_better
        assert t < better * saving and (better == 1 or t >= (better - 1) * saving)


@pytest.mark.parametrize(
    ("teacher", "base", "distilled", "verdict", "n_star", "first", "better"),
    [
        (11.0, 6.30, 5.20, "finite", 10.0, 10, 11),
        (10.6, 33.15, 28.65, "finite", 10.6 / 4.5, 3, 3),
        (0.5, 6.3, 5.2, "finite", 0.5 / 1.1, 1, 1),
        (11.0, 6.3, 6.3, "never", None, None, None),
        (11.0, 5.0, 6.3, "never", None, None, None),
        (0.0, 6.3, 5.2, "always", 0.0, 1, 1),
        (0.0, 6.3, 6.3, "indifferent", None, 1, None),
        (0.0, 5.0, 6.3, "never", None, None, None),
    ],
)
def test_verdicts(teacher, base, distilled, verdict, n_star, first, better) -> None:
    found = reuse_break_even(teacher, base, distilled)
    assert found.verdict == verdict
    assert found.n_star == (pytest.approx(n_star) if n_star is not None else None)
    assert (found.first_n_not_worse, found.first_n_strictly_better) == (first, better)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_bad_energies_are_refused(bad: float) -> None:
    with pytest.raises(UsageProblem, match="teacher_kwh"):
        reuse_break_even(bad, 6.3, 5.2)


@given(st.floats(1, 50), st.floats(2, 50), st.floats(0.5, 0.98), st.floats(0.001, 0.2))
def test_fieller_holds_n_star_and_widens_with_noise(teacher: float, base: float, share: float, cv: float) -> None:
    distilled = base * share
    n_star = teacher / (base - distilled)
    narrow, wide = (reuse_interval(teacher, base, distilled, c, 0.9) for c in (cv, cv * 1.5))
    for found in (narrow, wide):
        assert (found.low or 0.0) <= n_star * (1 + 1e-6)
        assert found.high is None or found.high >= n_star * (1 - 1e-6)
    assert (wide.low or 0.0) <= (narrow.low or 0.0) + 1e-9
    assert wide.high is None or (narrow.high is not None and wide.high >= narrow.high - 1e-9)


@given(st.floats(1, 50), st.floats(-5, 5), st.floats(0.01, 3), st.floats(0.01, 3), st.floats(0.01, 200))
def test_fieller_is_the_set_of_ratios_that_the_data_do_not_reject(
    t: float, d: float, d_sd: float, t_sd: float, n: float
) -> None:
    found = fieller((t, t_sd), (d, d_sd), 1.645)
    assume(not (found.low is None and found.high is None))
    distance = (t - n * d) ** 2 - 1.645**2 * (t_sd**2 + (n * d_sd) ** 2)
    assume(abs(distance) > 1e-6 * (1 + n * n))
    inside = (found.low or 0.0) <= n <= (found.high if found.high is not None else math.inf)
    if distance < 0:
        assert inside
    elif found.low != 0.0 or found.bounded:  # else a set in two parts, of which the hull is given
        assert not inside


def test_interval_of_the_study_at_five_percent_cannot_exclude_never() -> None:
    found = reuse_interval(11, 33.15, 30.05, 0.05, 0.95)
    assert not found.bounded and found.high is None
    assert found.p_never == pytest.approx(0.083, abs=0.001)


@pytest.mark.parametrize(
    ("extra", "j_ref", "j_student", "verdict", "tokens"),
    [
        (19.5, 0.584, 0.154, "finite", 19.5 * 3.6e6 / 0.43),
        (9.9, 0.5, 0.5, "never", None),
        (9.9, 0.2, 0.5, "never", None),
        (-9.9, 0.5, 0.2, "immediate", 0.0),
        (0.0, 0.5, 0.5, "immediate", 0.0),
        (-9.9, 0.2, 0.5, "reversed", 9.9 * 3.6e6 / 0.3),
        (0.0, 0.2, 0.5, "never", None),
    ],
)
def test_serving_signs(extra, j_ref, j_student, verdict, tokens) -> None:
    found = serving_break_even(extra, j_ref, j_student)
    assert found.verdict == verdict
    assert found.t_star_tokens == (pytest.approx(tokens) if tokens is not None else None)


@given(st.floats(-50, 50), st.floats(0.01, 2), st.floats(0.01, 2))
def test_lifecycles_are_equal_at_t_star(extra: float, j_ref: float, j_student: float) -> None:
    found = serving_break_even(extra, j_ref, j_student)
    if found.verdict in ("finite", "reversed") and found.t_star_tokens:
        t = found.t_star_tokens
        assert lifecycle_kwh(extra, j_student, t) == pytest.approx(lifecycle_kwh(0, j_ref, t), rel=1e-6, abs=1e-6)


@given(cents, cents, st.integers(1, 1000).map(lambda n: n / 100))
def test_programme_pays_for_as_many_students_as_fit(budget: float, teacher: float, each: float) -> None:
    n = max_students(budget, teacher, each)
    cost = [round(teacher * 100) + k * round(each * 100) for k in (n, n + 1)]
    assert n == 0 or cost[0] <= round(budget * 100)
    assert cost[1] > round(budget * 100)


def test_reuse_multiplies_the_tokens_that_a_budget_buys() -> None:
    # (e_t + e_s) / (e_t/n + e_s) = 0.54 / (0.0733 + 0.1733) for the study's 1B KD rates and five students
    once = tokens_affordable(50, 5, 0.3667, 0.1733)
    again = tokens_affordable(50, 5, 0.3667, 0.1733, reuse=False)
    assert once / again == pytest.approx(2.19, abs=0.005)
