"""Stages of 1 s at powers of their own, read exactly on their edges and nowhere nearer: what moves across an edge is
what the readings leave open, is within the stated bound, and is neither lost nor made."""

from __future__ import annotations

from typing import Any

import pytest
from ledger_inputs import end, every, fill, gpu, manifest, model, package, part, start

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.types import Totals

WATTS = (100.0, 600.0, 100.0, 300.0, 50.0, 700.0)
LAST_S = 8.0
"""Readings go on for two seconds at the last power."""


def joules(t: float) -> float:
    """The exact integral."""
    used = sum(watts * min(1.0, max(0.0, t - k)) for k, watts in enumerate(WATTS))
    return used + WATTS[-1] * max(0.0, t - len(WATTS))


def after(t: float) -> float:
    """Power at a moment; on an edge that of the stage which begins."""
    return WATTS[min(int(t + 1e-9), len(WATTS) - 1)]


def before(t: float) -> float:
    """On an edge that of the stage which ends."""
    return after(max(0.0, t - 1e-6))


def account(device: dict[str, Any], period_s: float, counter: Any, power: Any) -> Totals:
    names = [f"s{k}" for k in range(len(WATTS))]
    events = [e for k, name in enumerate(names) for e in (start(float(k), name), end(float(k + 1), name))]
    ledger = Ledger(manifest([device], names))
    return fill(ledger, events, device["key"], every(period_s, 0.0, LAST_S), counter, power).totals()


def errors(totals: Totals, key: str) -> list[tuple[float, float]]:
    """(error, stated bound of the edges) of each stage, J."""
    found = [part(totals, stage.name, key) for stage in totals.stages]
    return [(d.energy_j - watts, d.bound.edge_j) for d, watts in zip(found, WATTS, strict=True)]


@pytest.mark.parametrize("power", [after, before])
@pytest.mark.parametrize("period_s", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("kind", ["counter and power", "counter", "power"])
def test_a_boards_energy_stays_within_its_bound_and_adds_up(kind: str, period_s: float, power: Any) -> None:
    device = gpu(source="counter" if "counter" in kind else "integrated", average_window_s=0.0)
    totals = account(device, period_s, joules if "counter" in kind else None, power if "power" in kind else None)
    for error, bound in errors(totals, "g0"):
        assert abs(error) <= 1.2 * bound  # two standard deviations: exactly on the edge is as far out as it gets
    attributed = sum(part(totals, s.name, "g0").energy_j for s in totals.stages)
    assert attributed + totals.unattributed_j == pytest.approx(totals.total_j, rel=1e-9)
    # a value may be as old as the time between two readings, or as the counter's period
    assert totals.total_j == pytest.approx(joules(LAST_S), abs=700.0 * min(max(period_s, 0.1), 0.5))


@pytest.mark.parametrize("period_s", [0.02, 0.1, 1.0])
def test_a_counter_that_is_current_at_every_reading_moves_nothing(period_s: float) -> None:
    """RAPL, or a board whose counter is known to be that quick: to a millisecond's energy."""
    for device in (package("cpu0"), gpu("g0", refresh_s=0.001)):
        totals = account(device, period_s, joules, None)
        assert max(abs(error) for error, _ in errors(totals, device["key"])) <= 0.7


@pytest.mark.parametrize("period_s", [0.02, 0.1, 1.0])
def test_a_models_value_is_the_mean_of_the_time_before_it(period_s: float) -> None:
    totals = account(model("cpu0"), period_s, None, before)
    assert max(abs(error) for error, _ in errors(totals, "cpu0")) <= 1e-6
    assert totals.total_j == pytest.approx(joules(LAST_S), rel=1e-9)


def test_closer_readings_leave_less_open() -> None:
    worst = [
        max(abs(error) for error, _ in errors(account(gpu(), period, joules, after), "g0"))
        for period in (1.0, 0.1, 0.02, 0.005)
    ]
    assert worst == sorted(worst, reverse=True) and worst[-1] < 2.5
