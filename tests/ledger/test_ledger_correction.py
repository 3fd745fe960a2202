"""What point samples miss, from the running mean: by hand."""

from __future__ import annotations

import pytest
from ledger_inputs import end, every, fill, gpu, manifest, part, start

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.correction import AGE_S, Correction
from kdwatch.ledger.power import PowerTrack


def tracks(sampled_w: float, mean_w: float, seconds: float) -> Correction:
    power = PowerTrack()
    correction = Correction(power, 1.0)
    for k in range(int(seconds * 10) + 1):
        power.add(k / 10, sampled_w)
        correction.add(k / 10, mean_w)
    return correction


def test_missed_energy_is_the_difference_times_the_time() -> None:
    """Samples say 90 W, the mean says 120.5 W: 30.5 J are missed each second."""
    correction = tracks(90.0, 120.5, 20.0)
    assert correction.at(15.0) - correction.at(5.0) == pytest.approx(305.0)
    assert correction.variance_at(10.0) == pytest.approx(30.5**2 / 6.0, rel=0.01)


def test_equal_fields_correct_nothing() -> None:
    correction = tracks(300.0, 300.0, 20.0)
    assert correction.at(20.0) - correction.at(0.0) == pytest.approx(0.0, abs=1e-9)
    assert correction.variance_at(10.0) == pytest.approx(0.0, abs=1e-9)


def test_beyond_the_ends_one_window_holds() -> None:
    """First centre at 0.5 s, last at 19.45 s: values hold for 1 s beyond, not longer."""
    correction = tracks(100.0, 110.0, 20.0)
    first, last = 0.5 + AGE_S, 20.0 - AGE_S - 0.5
    assert correction.at(last + 50.0) - correction.at(last) == pytest.approx(10.0, abs=0.6)
    assert correction.at(first) - correction.at(first - 50.0) == pytest.approx(10.0, abs=0.6)


def test_a_window_that_reaches_beyond_what_is_kept_corrects_nothing() -> None:
    power = PowerTrack()
    correction = Correction(power, 8.0)
    for k in range(200):
        power.add(k / 10, 100.0)
        if k == 150:
            power.prune(12.0)
        if k > 150:
            correction.add(k / 10, 500.0)
    assert correction.entries == []


def test_gaps_correct_nothing() -> None:
    power = PowerTrack()
    correction = Correction(power, 1.0)
    for t in (0.0, 0.1, 0.2, 10.0, 10.1, 10.2, 10.3):
        power.add(t, 100.0)
        correction.add(t, 500.0)
    assert correction.at(20.0) == 0.0


def test_the_bound_of_an_averaged_field_alone_is_that_of_its_window() -> None:
    """100 W and 300 W in turn, 2 s each: a window's bound holds its own samples, so the same window late in a run has
    the bound that it has early. The field speaks of 0.55 s before: 300 W at the edges, four steps of 200 W between.
    What a mean of 300 W hides within its second: power up to 840 W, so 300 W (1 - 300/840) 1 s at most, evenly."""
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["early", "late"])),
        [start(10.0, "early"), end(18.0, "early"), start(810.0, "late"), end(818.0, "late")],
        "g0", every(0.1, 0.0, 820.0),
        average=lambda t: 100.0 + 200.0 * (t % 4.0 >= 2.0),
    )  # fmt: skip
    early, late = (part(ledger.totals(), name, "g0") for name in ("early", "late"))
    assert early.bound is not None and late.bound is not None
    assert early.bound.edge_j == pytest.approx(
        2 * ((4 * (200.0 * 0.1) ** 2 + 2 * (300.0 * 0.03) ** 2 + 2 * (300.0 * (1 - 300 / 840)) ** 2) / 12) ** 0.5,
        rel=0.01,
    )
    assert late.bound.edge_j == pytest.approx(early.bound.edge_j, rel=1e-6)
