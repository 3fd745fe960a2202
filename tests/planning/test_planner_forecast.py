"""Forecast and guard: a public trace, simulated runs with drift, changes of phase, priors, degenerate input."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.forecast import (
    Forecast,
    Prior,
    StageForecaster,
    forecast,
    forecast_carbon_kg,
    forecast_run,
    guard,
    naive_final,
    since_change,
    slope,
    thin,
)

TRACE = [(200, 0.15015), (400, 0.24982), (600, 0.34904), (800, 0.44841), (1000, 0.54795), (1200, 0.64737)]
"""Public harness log of KD-13B, the first 5 % of 22,200 steps, kWh; the run ended at 11.0827 kWh."""
TOTAL, FINAL = 22_200, 11.0827


def test_the_public_trace_is_forecast_within_half_a_percent() -> None:
    found = forecast(TRACE, TOTAL)
    assert found.final == pytest.approx(FINAL, rel=0.005)
    assert found.low is not None and found.high is not None and found.low < FINAL < found.high
    naive = naive_final(TRACE, TOTAL)
    assert naive is not None and naive / FINAL > 1.07, "cumulative / done is 8 % high: the offset in the first point"


def test_two_points_are_wide_and_never_stop_a_run() -> None:
    few, many = forecast(TRACE[:2], TOTAL), forecast(TRACE, TOTAL)
    assert few.sd is not None and many.sd is not None and few.sd > 2.5 * many.sd
    run = forecast_run(0.0, {"student": few}, {})
    assert not run.may_stop
    assert guard(run, 5.0, stop=True).action == "warn"


def test_one_point_is_insufficient_and_has_no_number() -> None:
    found = forecast(TRACE[:1], TOTAL)
    assert (found.status, found.final, found.sd) == ("insufficient", None, None)
    assert guard(forecast_run(0, {"s": found}, {}), 1.0).p_over is None
    assert forecast([], TOTAL).status == "insufficient"
    assert forecast(TRACE, 0).status == "insufficient"


def test_guard_warns_over_half_and_stops_over_95_percent_after_three_percent() -> None:
    run = forecast_run(0.0, {"student": forecast(TRACE, TOTAL)}, {})
    assert guard(run, 12.0, stop=True).action == "none"
    assert guard(run, 11.0, stop=True).action == "warn"
    assert guard(run, 10.0, stop=True).action == "stop"
    assert guard(run, 10.0, stop=False).action == "warn", "it stops only where it was asked to"
    early = [(step / 4, energy / 4) for step, energy in TRACE]  # 1.4 % done
    assert guard(forecast_run(0.0, {"s": forecast(early, TOTAL)}, {}), 5.0, stop=True).action == "warn"


def test_a_budget_that_is_used_up_stops_at_once() -> None:
    run = forecast_run(6.0, {"student": forecast(TRACE[:1], TOTAL)}, {})
    assert guard(run, 5.0, stop=True).action == "stop"
    assert guard(run, 5.0).p_over == 1.0


def test_hours_until_the_budget_is_used_up() -> None:
    run = forecast_run(6.0, {}, {})
    # 2 kWh left at 500 W: 4 hours
    assert guard(run, 8.0, mean_w=500, unit_j=3.6e6).hours_to_exhaustion == pytest.approx(4.0)


def test_unstarted_stages_come_from_priors_or_leave_the_end_unknown() -> None:
    running = {"student": Forecast("ok", 10.0, 9.0, 11.0, 0.6, 4.0, 0.1, 0.4, 10)}
    known = forecast_run(1.0, running, {"evaluate": Prior(2.0, 0.8)})
    assert known.final == pytest.approx(13.0)
    assert known.sd == pytest.approx(1.0), "independent: sqrt(0.6² + 0.8²)"
    assert known.used == pytest.approx(5.0) and known.remaining == pytest.approx(8.0)
    unknown = forecast_run(1.0, running, {"evaluate": None})
    assert unknown.final is None and unknown.unknown == ("evaluate",)


@pytest.mark.parametrize("drift", [-0.03, 0.0, 0.03])
def test_bands_cover_runs_that_drift(drift: float) -> None:
    """200 simulated runs whose rate drifts by 3 % from start to end and scatters by 2 % a report."""
    source, covered = random.Random(f"drift {drift}"), 0
    for _ in range(200):
        used, points = source.uniform(0, 0.2), []
        for step in range(1, 101):
            used += (1 + drift * step / 100) * source.gauss(1, 0.02)
            points.append((step, used))
        found = forecast(points[:10], 100)
        assert found.low is not None and found.high is not None
        covered += found.low <= used <= found.high
    assert covered >= 170


def test_a_change_of_phase_is_forecast_from_its_own_rate() -> None:
    slow = [(step, 1.0 * step) for step in range(1, 21)]
    fast = [(20 + step, 20 + 3.0 * step) for step in range(1, 21)]
    found = forecast([*slow, *fast], 100)
    assert found.final == pytest.approx(80 + 60 * 3.0, rel=0.05)
    assert since_change(slow) == slow


@given(st.lists(st.tuples(st.floats(allow_nan=True), st.floats(allow_nan=True)), max_size=20), st.floats(-10, 1e6))
def test_whatever_is_reported_no_number_is_nan(points: list[tuple[float, float]], total: float) -> None:
    found = forecast(points, total)
    for value in (found.final, found.low, found.high, found.sd):
        assert value is None or not math.isnan(value)


@given(st.floats(0.01, 100), st.floats(0, 50), st.integers(5, 40), st.integers(50, 500))
def test_a_steady_rate_is_exact(rate: float, offset: float, seen: int, total: int) -> None:
    points = [(step, offset + rate * step) for step in range(1, seen + 1)]
    found = forecast(points, total)
    assert found.final == pytest.approx(offset + rate * total)
    assert slope(points) == (pytest.approx(rate), pytest.approx(0.0, abs=1e-6 * rate + 1e-9 * offset))


def test_a_finished_stage_is_what_it_used() -> None:
    found = forecast([(50, 3.0), (100, 6.5)], 100)
    assert (found.final, found.sd, found.remaining) == (6.5, 0.0, 0.0)


def test_the_collector_stays_small_and_forecasts_as_from_all_points() -> None:
    source, used, collector, points = random.Random(7), 0.0, StageForecaster(100_000), []
    for step in range(1, 20_001):
        used += source.gauss(1, 0.05)
        collector.observe(step, used)
        points.append((step, used))
    assert len(collector._points) <= 200
    ours, everything = collector.forecast(), forecast(thin(points, 1000), 100_000)
    assert ours.final == pytest.approx(everything.final, rel=0.01)
    assert ours.used == pytest.approx(used, rel=0.001)


def test_emissions_so_far_stay_and_the_rest_gets_the_future_grid() -> None:
    assert forecast_carbon_kg(0.8, 3.0, 200, 1.0) == pytest.approx(1.4)
    assert forecast_carbon_kg(0.8, 3.0, 200, 1.5) == pytest.approx(1.7)


def test_forecast_and_cost_model_import_no_polars() -> None:
    names = ("forecast", "costmodel", "teachermodel", "qualitymodel", "flops", "probes")
    code = (
        "import "
        + ", ".join(f"planners.{name}" for name in names)
        + ", sys; print(sorted({'polars', 'torch', 'textual'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
