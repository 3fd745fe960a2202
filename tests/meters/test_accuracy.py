"""How far off a window's energy is, on simulated boards, through meter, recording and ledger.

Truth is the exact integral of the board's trace. Five traces, eight phases, windows of about 10 s and 1.3 s with a
random fraction, counters that update every 20 ms and 100 ms and none at all. Limits are the issue's; a difference of
the counter's values at a window's ends misses them (the benchmark prints that beside).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sim_traces
from sim_accuracy import Campaign, Errors, measure
from sim_traces import Trace

LIMITS = {(0.02, 10.0): 0.002, (0.02, 1.3): 0.01, (0.1, 10.0): 0.005, (0.1, 1.3): 0.03}
"""95th percentile of |relative error| by update period of the counter and length of the window."""
POWER_ONLY = {"constant": 0.01, "ramp": 0.01, "training": 0.01, "square": 0.03, "bursts": 0.07}
"""The same for boards without a counter, at 10 s."""
HELD = 0.95
"""Share of windows whose error lies within the stated bound, its systematic part left out."""


def report(cell: str, errors: Errors, limit: float) -> None:
    print(
        f"{cell}: {len(errors.relative)} windows, 95 % within {errors.quantile(0.95):.3%} (limit {limit:.1%}), "
        f"worst {errors.worst:.3%}, bound holds in {errors.held_share:.1%}"
    )


@pytest.mark.parametrize("window_s", [10.0, 1.3])
@pytest.mark.parametrize("counter_s", [0.02, 0.1])
@pytest.mark.parametrize("trace", sim_traces.ALL, ids=lambda t: t.name)
def test_with_a_counter(
    trace: Trace,
    counter_s: float,
    window_s: float,
    nvml_library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = measure(Campaign(trace, counter_s, window_s), nvml_library, tmp_path, monkeypatch)
    limit = LIMITS[counter_s, window_s]
    report(f"{trace.name}, counter every {counter_s * 1e3:.0f} ms, {window_s:g} s", errors, limit)
    assert len(errors.relative) >= 200
    assert errors.quantile(0.95) <= limit
    assert errors.held_share >= HELD


@pytest.mark.parametrize("trace", sim_traces.ALL, ids=lambda t: t.name)
def test_without_a_counter(trace: Trace, nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = measure(Campaign(trace, 0.0, 10.0), nvml_library, tmp_path, monkeypatch)
    report(f"{trace.name}, no counter, 10 s", errors, POWER_ONLY[trace.name])
    assert len(errors.relative) >= 200
    assert errors.quantile(0.95) <= POWER_ONLY[trace.name]
    assert errors.held_share >= HELD


def test_traces_integrate_exactly() -> None:
    """The truth itself: closed forms, and additivity across periods and negative times."""
    assert sim_traces.constant(300).joules(-2.5, 7.5) == pytest.approx(3000)
    assert sim_traces.square().joules(0, 0.7) == pytest.approx(0.35 * 800)
    assert sim_traces.ramp().joules(0, 40) == pytest.approx(365 * 40)
    assert sim_traces.bursts().joules(0.02, 1.02) == pytest.approx(120.5)
    trace = sim_traces.training()
    parts = [trace.joules(a, a + 3.7) for a in range(-10, 0)]
    assert sum(trace.joules(a, a + 1) for a in range(-10, 60)) == pytest.approx(trace.joules(-10, 60))
    assert min(parts) > 0
