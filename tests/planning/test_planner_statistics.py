"""Distributions against printed tables, and interval laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.noise import Uncertain, chance, interval, membership, p_dominates, p_greater
from planners.stats import f_sf, normal_cdf, t_cdf, t_quantile, two_sided


@pytest.mark.parametrize(
    ("p", "dof", "value"),
    [
        (0.95, 1, 6.3138),
        (0.95, 2, 2.9200),
        (0.975, 5, 2.5706),
        (0.9, 10, 1.3722),
        (0.95, 120, 1.6577),
        (0.95, math.inf, 1.6449),
    ],
)
def test_t_quantiles_are_those_of_the_printed_table(p: float, dof: float, value: float) -> None:
    assert t_quantile(p, dof) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(
    ("ratio", "above", "below", "p"), [(4.9646, 1, 10, 0.05), (3.4903, 3, 12, 0.05), (3.8415, 1, math.inf, 0.05)]
)
def test_f_tail_is_that_of_the_printed_table(ratio: float, above: float, below: float, p: float) -> None:
    assert f_sf(ratio, above, below) == pytest.approx(p, abs=2e-4)


@given(st.floats(-30, 30), st.integers(1, 200))
def test_t_is_symmetric_and_inverts(t: float, dof: int) -> None:
    assert t_cdf(t, dof) + t_cdf(-t, dof) == pytest.approx(1.0)
    if 1e-6 < t_cdf(t, dof) < 1 - 1e-6:
        assert t_quantile(t_cdf(t, dof), dof) == pytest.approx(t, abs=1e-5)


def test_estimated_spread_needs_more_room_than_a_known_one() -> None:
    known = chance(19.5, 0.78, 20, 0.9)
    estimated = chance(19.5, 0.78, 20, 0.9, sd_known=False, n=3)
    assert known.budget_needed_kwh == pytest.approx(19.5 + 1.28155 * 0.78, abs=1e-4)
    # t(0.9, 2) = 1.8856; a further run scatters by s·sqrt(1 + 1/3)
    assert estimated.budget_needed_kwh == pytest.approx(19.5 + 1.88562 * 0.78 * math.sqrt(4 / 3), abs=1e-4)
    assert estimated.p_within < known.p_within


def test_an_estimated_spread_of_one_run_is_refused() -> None:
    with pytest.raises(ValueError, match="n >= 2"):
        chance(1, 1, 1, 0.9, sd_known=False, n=1)


def test_a_certain_run_is_within_or_not() -> None:
    assert chance(7, 0, 7, 0.9).p_within == 1.0
    assert chance(7, 0, 6.9, 0.9).p_within == 0.0


@given(st.floats(0.1, 100), st.floats(0.01, 10), st.integers(2, 30))
def test_interval_of_a_next_run_shrinks_towards_the_known_one(mean: float, sd: float, n: int) -> None:
    low, high = interval(mean, sd, 0.9, dof=n - 1, n=n)
    assert high - low > 2 * two_sided(0.9) * sd
    assert (low + high) / 2 == pytest.approx(mean)


def test_probability_that_one_dominates_another() -> None:
    a, b = Uncertain("a", 10, 0.8, 1, 0.02), Uncertain("b", 12, 0.78, 1, 0.02)
    expected = normal_cdf(2 / math.sqrt(2)) * normal_cdf(0.02 / math.hypot(0.02, 0.02))
    assert p_dominates(a, b) == pytest.approx(expected)
    assert p_greater(1, 0, 1, 0) == 0.5


def test_membership_says_how_sure_a_frontier_point_is() -> None:
    points = [
        Uncertain("cheap", 7, 0.69, 0.2, 0.02),
        Uncertain("near", 16.9, 0.70, 0.5, 0.02),
        Uncertain("bad", 40, 0.5, 1, 0.02),
    ]
    share = membership(points, draws=2000)
    assert share["cheap"] == 1.0
    assert share["bad"] == 0.0
    # on the frontier where its quality is drawn above the cheap one's: P(Z > -0.01 / 0.0283)
    assert share["near"] == pytest.approx(normal_cdf(0.01 / math.hypot(0.02, 0.02)), abs=0.04)
    assert membership(points) == membership(points), (
        "the same draws every time: a what-if changes only by what was changed"
    )
