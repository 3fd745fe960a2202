"""Accuracy on simulated boards, to the limits of issue 3 ("Done when"), and bounds that hold.

Five traces, eight phases of each, windows with a random fraction; the board is that of `board_simulation`.
"""

from __future__ import annotations

import random

import pytest
from board_simulation import TRACES, measure

WINDOWS = 96
"""A cell in the usual suite: 12 of each phase. The slow test takes 240."""

COUNTER_CELLS = [(0.02, 10.0, 0.2), (0.02, 1.3, 1.0), (0.1, 10.0, 0.5), (0.1, 1.3, 3.0)]
"""(counter's update period in s, window in s, limit of the 95th percentile of |error| in %)."""
POWER_LIMITS = {"constant": 1.0, "ramp": 1.0, "training": 1.0, "square": 3.0, "bursts": 7.0}


def windows(name: str, refresh_s: float, length: float, count: int, **how: bool) -> tuple[float, float, float]:
    """95th percentile and worst of |error| in %, and the share of windows within the stated bound."""
    rng = random.Random(f"{name} {refresh_s} {length}")
    errors, held = [], 0
    for k in range(count):
        trace = TRACES[name]((k % 8) / 8, length + 8)
        start = 2.0 + rng.random()
        end = start + length + rng.random()
        joules, bound, _ = measure(trace, refresh_s, start, end, rng, **how)
        true = trace.energy(end) - trace.energy(start)
        errors.append(abs(joules / true - 1.0) * 100.0)
        held += abs(joules - true) <= bound
    errors.sort()
    return errors[int(0.95 * (count - 1))], errors[-1], held / count


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize(("refresh_s", "length", "limit"), COUNTER_CELLS)
def test_with_a_counter(name: str, refresh_s: float, length: float, limit: float) -> None:
    p95, worst, held = windows(name, refresh_s, length, WINDOWS)
    print(
        f"{name}, {refresh_s * 1000:.0f} ms, {length} s: p95 {p95:.2f} %, worst {worst:.2f} %, bound holds {held:.0%}"
    )
    assert p95 <= limit
    assert held >= 0.9  # 0.95 with many windows: see the slow test; 96 are few for a share


@pytest.mark.parametrize("name", TRACES)
def test_without_a_counter_from_both_power_fields(name: str) -> None:
    p95, worst, held = windows(name, 0.1, 10.0, WINDOWS, counter=False)
    print(f"{name}, no counter: p95 {p95:.2f} %, worst {worst:.2f} %, bound holds {held:.0%}")
    assert p95 <= POWER_LIMITS[name]
    assert held >= 0.9


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize(("refresh_s", "length"), [(0.02, 1.3), (0.1, 1.3), (0.1, 10.0), (None, 10.0)])
def test_the_bound_holds_where_power_is_a_running_mean_alone(name: str, refresh_s: float | None, length: float) -> None:
    """Older drivers: a mean of 1 s tells nothing of what happened within, and the bound says so."""
    p95, worst, held = windows(name, refresh_s or 0.1, length, 48, counter=refresh_s is not None, instant=False)
    print(f"{name}, mean alone, {refresh_s} s, {length} s: p95 {p95:.2f} %, worst {worst:.2f} %, holds {held:.0%}")
    assert held >= 0.9


@pytest.mark.parametrize("name", ["constant", "ramp", "training"])
def test_without_a_counter_from_instantaneous_power_alone(name: str) -> None:
    assert windows(name, 0.1, 10.0, WINDOWS, counter=False, average=False)[0] <= 1.0


def test_the_averaged_field_carries_what_point_samples_miss() -> None:
    """Bursts of 50 ms each second, sampled ten times a second: alone, point samples err by about a quarter."""
    alone = windows("bursts", 0.1, 10.0, 32, counter=False, average=False)[0]
    both = windows("bursts", 0.1, 10.0, 32, counter=False)[0]
    assert alone > 15.0 and both < 0.2 * alone


def test_the_naive_counter_difference_would_fail() -> None:
    """What a plain difference of counter readings gives on these windows: the limits are worth something."""
    from board_simulation import Board

    rng = random.Random(7)
    errors = []
    for k in range(WINDOWS):
        trace = TRACES["square"]((k % 8) / 8, 12.0)
        board = Board(trace, 0.1, rng)
        start = 2.0 + rng.random()
        end = start + 1.3 + rng.random()
        true = trace.energy(end) - trace.energy(start)
        errors.append(abs((board.counter(end) - board.counter(start)) / true - 1.0) * 100.0)
    assert sorted(errors)[int(0.95 * WINDOWS)] > 5.0


@pytest.mark.slow  # 25 cells of 240 windows take about half a minute
def test_every_cell_with_many_windows_holds_limit_and_bound() -> None:
    """The bound (edge and gap terms, the sensor's own error apart) holds in at least 95 % of all windows."""
    shares = []
    for name in TRACES:
        for refresh_s, length, limit in COUNTER_CELLS:
            p95, worst, held = windows(name, refresh_s, length, 240)
            cell = f"{name:9} {refresh_s * 1000:4.0f} ms {length:4.1f} s"
            print(f"{cell}  p95 {p95:.2f}  worst {worst:.2f}  held {held:.1%}")
            assert p95 <= limit, (name, refresh_s, length)
            shares.append(held)
        p95, worst, held = windows(name, 0.1, 10.0, 240, counter=False)
        print(f"{name:9} power only 10.0 s  p95 {p95:.2f}  worst {worst:.2f}  held {held:.1%}")
        assert p95 <= POWER_LIMITS[name], name
        shares.append(held)
    assert min(shares) >= 0.95
