"""Faults of GPU energy readers that users of other tools reported. The number is that of the project's list."""

from __future__ import annotations

import json

import naive
import pytest
from board_simulation import AVERAGE_WINDOW_S, Board, Trace, polls
from ledger_inputs import end, every, fill, gpu, manifest, model, package, part, stage, start

from kdwatch.ledger.core import Ledger

TENTH = 0.1


@pytest.mark.fault(30)
def test_fault_30_averaged_and_instantaneous_power_are_not_the_same() -> None:
    """100 -> 600 W at a stage's start, legacy field a mean of 1 s: within 2 % over 5 s, with and without a counter."""
    import random

    trace = Trace([(0.0, 100.0), (5.0, 100.0), (5.0, 600.0), (10.0, 600.0), (10.0, 100.0), (30.0, 100.0)])
    for source in ("counter", "integrated"):
        board = Board(trace, 0.1, random.Random(30))
        spec = gpu("g0", source=source, average_window_s=AVERAGE_WINDOW_S)
        ledger = fill(
            Ledger(manifest([spec], ["s"])),
            [start(5.0, "s"), end(10.0, "s")],
            "g0",
            polls([5.0, 10.0], 13.0, random.Random(3), board),
            board.counter if source == "counter" else None,
            board.instant,
            board.average,
        )
        assert ledger.totals().stages[0].energy_j["gpu"] == pytest.approx(3000.0, rel=0.02)
        inside = every(TENTH, 5.0, 10.0)
        assert naive.trapezoid(inside, [board.average(t) for t in inside]) < 3000.0 * 0.95


def test_averaged_power_alone_is_shifted_by_half_its_window() -> None:
    """Only the legacy field: a step up at 5 s and down at 15 s; the total over both edges is right to 2 %."""
    import random

    trace = Trace([(0.0, 100.0), (5.0, 100.0), (5.0, 600.0), (15.0, 600.0), (15.0, 100.0), (40.0, 100.0)])
    board = Board(trace, 0.1, random.Random(4))
    ledger = fill(
        Ledger(manifest([gpu("g0", source="integrated")], ["s"])),
        [start(3.0, "s"), end(17.0, "s")],
        "g0",
        every(TENTH, 0.0, 20.0),
        average=board.average,
    )
    assert ledger.totals().stages[0].energy_j["gpu"] == pytest.approx(6400.0, rel=0.005)
    assert part(ledger.totals(), "s", "g0").source == "integrated"


@pytest.mark.fault(31)
def test_fault_31_a_frozen_counter_falls_back_to_power() -> None:
    """The counter stands for 5 s of 20 s at 300 W and then goes on from where it stood."""

    def counter(t: float) -> float:
        return 300.0 * (t if t < 8 else 8 if t < 13 else t - 5)

    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0", every(TENTH, 0.0, 20.0),
        counter, lambda t: 300.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(6000.0, rel=0.01)
    assert naive.last_minus_first([counter(0.0), counter(20.0)]) == 4500.0
    assert {"frozen", "bridged"} <= set(device.flags)
    assert "counter_frozen" in {w["code"] for w in ledger.totals().warnings}


def test_fault_31_a_counter_frozen_to_the_end_falls_back_to_power() -> None:
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0", every(TENTH, 0.0, 21.5),
        lambda t: 300.0 * min(t, 5.0), lambda t: 300.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(6000.0, rel=0.01)
    assert "bridged" in device.flags and device.source == "integrated"


@pytest.mark.parametrize("power_before_s", [0.0, 8.0], ids=["no power ever", "power dark as long"])
def test_fault_31_a_counter_frozen_without_power_is_a_gap(power_before_s: float) -> None:
    """A board draws more than 0 W: what stands still for 10 s of 30 s at 300 W, and is read, is unknown, not 0 J."""

    def counter(t: float) -> float:
        return 300.0 * (t if t < 8 else 8 if t < 18 else t - 10)

    def power(t: float) -> float | None:
        return 300.0 if t < power_before_s or (power_before_s and t >= 18) else None

    events = [start(1.0, "all"), end(30.0, "all"), start(31.0, "after"), end(32.0, "after")]
    ledger = fill(Ledger(manifest([gpu()], ["all", "after"])), events, "g0", every(TENTH, 0.0, 34.0), counter, power)
    device = part(ledger.totals(), "all", "g0")
    assert {"frozen", "gap"} <= set(device.flags) and device.coverage == pytest.approx(19 / 29, abs=0.08)
    assert 0.0 < 8700.0 - device.energy_j <= device.bound.edge_j + device.bound.gap_j
    assert device.mean_w == pytest.approx(300.0, rel=0.02)
    assert naive.last_minus_first([counter(1.0), counter(30.0)]) == 5700.0
    assert part(ledger.totals(), "after", "g0").coverage == 1.0
    assert {"counter_frozen", "gap"} <= {w["code"] for w in ledger.totals().warnings}


@pytest.mark.parametrize("device", [gpu(), package("g0"), gpu(source="integrated")], ids=["board", "package", "power"])
def test_fault_31_a_counter_that_never_moves_is_unknown_never_0_joules(device: dict) -> None:
    """Such zones are seen in virtual machines. A stage in the middle of it, and one that is still going on."""
    events = [start(5.0, "over"), end(9.0, "over"), start(10.0, "running")]
    ledger = fill(Ledger(manifest([device], ["over", "running"])), events, "g0", every(1.0, 0.0, 20.0), lambda t: 77.0)
    for name in ("over", "running"):
        found = part(ledger.totals(), name, "g0")
        assert found.energy_j is None and found.coverage == 0.0
        assert device["kind"] in stage(ledger.totals(), name).energy_j["missing"]


def test_a_counter_that_catches_up_without_power_is_believed() -> None:
    """1500 J in one step are more than the board can use within two readings: the time before is in it."""
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0", every(TENTH, 0.0, 22.0),
        lambda t: 300.0 * (t if not 8 <= t < 13 else 8),
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(6000.0, rel=0.01) and device.mean_w == pytest.approx(300.0, rel=0.01)
    assert device.coverage == 1.0 and device.flags == ()


def test_a_package_frozen_for_a_while_is_a_gap() -> None:
    events = [start(1.0, "s"), end(30.0, "s")]
    ledger = fill(
        Ledger(manifest([package("g0")], ["s"])), events, "g0", every(1.0, 0.0, 33.0),
        lambda t: 100.0 * (t if t < 8 else 8 if t < 18 else t - 10),
    )  # fmt: skip
    found = part(ledger.totals(), "s", "g0")
    assert {"frozen", "gap"} <= set(found.flags) and found.coverage == pytest.approx(19 / 29, abs=0.04)
    assert 0.0 < 2900.0 - found.energy_j <= found.bound.gap_j


def test_a_model_or_a_log_may_stand_still() -> None:
    """A process that does nothing has a share of 0 W; a log in whole kWh counts in steps."""
    for spec, imported in ((model("g0"), False), (gpu(source="imported"), True)):
        events = [start(1.0, "s"), end(9.0, "s")]
        ledger = Ledger(manifest([spec], ["s"], imported=imported))
        fill(ledger, events, "g0", every(0.5, 0.0, 12.0), lambda t: 50.0 if t < 6.0 else 90.0)
        found = part(ledger.totals(), "s", "g0")
        assert found.coverage == 1.0 and found.flags == () and found.energy_j >= 40.0


def test_what_was_bridged_is_in_the_bound() -> None:
    """The counter starts anew at 10 s, the board alternates 100/700 W. Power alone knows one step at either end and the
    jumps between samples; a counter alone would have its two edges."""
    bounds = {}
    for name, reset_s in (("whole", 99.0), ("reset", 10.0)):

        def counter(t: float, reset_s: float = reset_s) -> float:
            return 400.0 * t if t < reset_s else 400.0 * (t - reset_s)

        ledger = fill(
            Ledger(manifest([gpu()], ["s"])), [start(0.05, "s"), end(20.05, "s")], "g0",
            [t for t in every(TENTH, 0.0, 22.0) if not 9.0 < t < 10.5], counter,
            lambda t: 700.0 if round(t * 10) % 2 else 100.0,
        )  # fmt: skip
        device = part(ledger.totals(), "s", "g0")
        bounds[name] = device.bound.edge_j
        assert abs(device.energy_j - 8000.0) <= device.bound.edge_j
    # the bridge is a trapezoid over 1.6 s with a jump of 600 W, which alone may be anywhere in it
    assert bounds["reset"] ** 2 - bounds["whole"] ** 2 >= 4.0 * (600.0 * 1.5) ** 2 / 12.0


def test_bridges_without_jumps_have_the_ends_of_power_in_their_bound() -> None:
    found = []
    for reset_s in (99.0, 10.0):
        ledger = fill(
            Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0", every(TENTH, 0.0, 22.0),
            lambda t, r=reset_s: 300.0 * t if t < r else 300.0 * (t - r), lambda t: 300.0,
        )  # fmt: skip
        found.append(part(ledger.totals(), "s", "g0").bound.edge_j)
    assert found[1] ** 2 - found[0] ** 2 == pytest.approx(4.0 * 2 * (300.0 * 0.03) ** 2 / 12.0, rel=0.01)


def test_a_counter_that_catches_up_after_a_pause_is_believed() -> None:
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0", every(TENTH, 0.0, 20.0),
        lambda t: 300.0 * (t if not 8 <= t < 13 else 8), lambda t: 300.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(6000.0, rel=0.01) and "frozen" not in device.flags


@pytest.mark.fault(33)
def test_fault_33_a_window_shorter_than_a_tick_has_an_energy_and_a_bound() -> None:
    """60 ms at 500 W, a counter of 100 ms: 30 J, and the bound covers what is not known; no bare 0."""

    def counter(t: float) -> float:
        return 500.0 * (int(t / 0.1 + 1e-6) * 0.1)

    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(5.02, "s"), end(5.08, "s")], "g0", every(TENTH, 0.0, 8.0),
        counter, lambda t: 500.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(30.0, abs=5.0)
    assert device.bound is not None and abs(device.energy_j - 30.0) <= device.bound.edge_j <= 60.0
    assert naive.last_minus_first([counter(5.02), counter(5.08)]) == 0.0


def test_fault_33_without_power_the_bound_is_one_tick_at_each_edge() -> None:
    def counter(t: float) -> float:
        return 500.0 * (int(t / 0.1 + 1e-6) * 0.1)

    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(5.02, "s"), end(5.08, "s")], "g0", every(TENTH, 0.0, 8.0), counter
    )
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j is not None and device.bound is not None
    assert abs(device.energy_j - 30.0) <= device.bound.edge_j <= 100.0


def reset_at_one(t: float) -> float:
    return 5_000_000.0 + 300.0 * t if t < 1.0 else 300.0 * (t - 1.0)


@pytest.mark.fault(34)
def test_fault_34_a_counter_reset_is_bridged_by_power() -> None:
    """Driver reload at 1 s of 3 s: 900 J within 10 %, flagged (another tool gives -5 000 100 J)."""
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(3.0, "s")], "g0", every(TENTH, 0.0, 4.5),
        reset_at_one, lambda t: 300.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(900.0, rel=0.02)
    assert naive.last_minus_first([reset_at_one(0.0), reset_at_one(3.0)]) < -4e6
    assert "reset" in device.flags
    assert "counter_reset" in {w["code"] for w in ledger.totals().warnings}


def test_fault_34_a_reset_without_power_is_a_gap_not_a_number() -> None:
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(3.0, "s")], "g0", every(TENTH, 0.0, 4.5), reset_at_one
    )
    device = part(ledger.totals(), "s", "g0")
    assert 840.0 <= device.energy_j <= 900.0
    assert {"reset", "gap"} <= set(device.flags) and device.coverage < 1.0
    assert device.bound.gap_j >= 900.0 - device.energy_j


@pytest.mark.fault(41)
def test_fault_41_power_above_the_boards_limit_is_discarded() -> None:
    """First sample 25 kW on a 700 W board."""
    watts = {t: 25000.0 if t == 0.0 else 250.0 for t in every(TENTH, 0.0, 11.5)}
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["s"])), [start(0.0, "s"), end(10.0, "s")], "g0",
        watts, power=watts.get,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(2500.0, rel=0.01)
    assert naive.trapezoid(list(watts)[:101], list(watts.values())[:101]) > 3700.0
    assert device.peak_w == 250.0 and "discarded" in device.flags


def test_a_fault_that_goes_on_into_a_short_stage_is_said_of_that_stage_too() -> None:
    """5000 W from 2.5 s to 3.5 s, a stage from 3.0 s to 3.2 s."""
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(3.0, "s"), end(3.2, "s")], "g0", every(0.02, 0.0, 6.0),
        power=lambda t: 5000.0 if 2.5 <= t < 3.5 else 100.0,
    )  # fmt: skip
    assert "discarded" in part(ledger.totals(), "s", "g0").flags


@pytest.mark.fault(41)
def test_fault_41_a_counters_impossible_step_is_discarded() -> None:
    values = {t: 250.0 * t + (9e6 if t == 4.0 else 0.0) for t in every(TENTH, 0.0, 11.5)}
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(10.0, "s")], "g0", values, values.get, lambda t: 250.0
    )
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(2500.0, rel=0.01) and "discarded" in device.flags
    assert naive.rises_only(list(values.values())) > 9e6


@pytest.mark.fault(42)
def test_fault_42_fast_polling_of_a_slow_sensor_changes_nothing() -> None:
    """10 ms polls of a value that changes every 100 ms: within 1 % of 100 ms polls."""

    def power(t: float) -> float:
        return 200.0 + 300.0 * (int(t / 0.1 + 1e-6) % 3 == 0)

    found, spec = [], gpu(source="integrated", average_window_s=0.0)
    for period in (0.01, 0.1):
        ledger = fill(
            Ledger(manifest([spec], ["s"])), [start(1.0, "s"), end(31.0, "s")],
            "g0", every(period, 0.0, 33.0), power=power,
        )  # fmt: skip
        found.append(part(ledger.totals(), "s", "g0").energy_j)
    assert found[0] == pytest.approx(found[1], rel=0.01)
    counted = [naive.each_reading_is_a_period([power(t) for t in every(p, 1.0, 31.0)], 0.1) for p in (0.01, 0.1)]
    assert counted[0] > 9 * counted[1]


def test_constant_power_without_changes_is_not_nothing() -> None:
    """Fact 38: 10 s at 100 W, then 10 s at 400 W, each reported once a change by others: 5000 J, not 2500 J."""
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0",
        every(TENTH, 0.0, 21.5), power=lambda t: 100.0 if t < 10 else 400.0,
    )  # fmt: skip
    assert part(ledger.totals(), "s", "g0").energy_j == pytest.approx(5000.0, rel=0.01)


@pytest.mark.parametrize("missing", [0.0, None])
def test_zero_watts_is_missing_not_zero(missing: float | None) -> None:
    """Fact 8: 0 mW is a failed reading."""
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0",
        every(TENTH, 0.0, 21.5), power=lambda t: missing if round(t * 10) % 3 == 0 else 300.0,
    )  # fmt: skip
    assert part(ledger.totals(), "s", "g0").energy_j == pytest.approx(6000.0, rel=0.01)


def test_a_gap_is_not_bridged_in_silence() -> None:
    """Fact 40: 60 s without a sample between 5 s and 65 s: the known 40 s count, coverage says so."""
    times = [t for t in every(TENTH, 0.0, 101.5) if not 5.0 < t < 65.0]
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["s"])), [start(0.0, "s"), end(100.0, "s")], "g0", times,
        power=lambda t: 500.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(500.0 * 40, rel=0.01)
    assert device.coverage == pytest.approx(0.4, abs=0.01) and "gap" in device.flags
    assert device.mean_w == pytest.approx(500.0, rel=0.01)
    assert device.bound.gap_j >= 30000.0
    assert "gap" in {w["code"] for w in ledger.totals().warnings}


def test_a_dead_poller_is_not_extrapolated() -> None:
    """Fact 40: 10 s of data in a stage of 100 s is 10 s of energy, within the 2 s that a value may hold."""
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["s"])), [start(0.0, "s"), end(100.0, "s")], "g0",
        every(TENTH, 0.0, 10.0), power=lambda t: 700.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert 7000.0 <= device.energy_j <= 8500.0 and device.coverage < 0.13


def test_the_counter_covers_a_gap() -> None:
    times = [t for t in every(TENTH, 0.0, 101.5) if not 5.0 < t < 65.0]
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(100.0, "s")], "g0", times,
        lambda t: 500.0 * t, lambda t: 500.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(50000.0, rel=0.002) and device.coverage == 1.0


@pytest.mark.parametrize("edge", [5.1, 6.0, 7.5, 9.8, 10.3])
def test_an_edge_in_a_silence_lies_on_the_line_between_the_counters_readings(edge: float) -> None:
    """600 W all the time; nothing is read from 5.05 s to 9.95 s and a stage begins in or beside that silence. The
    counter tells what was used in it, and without power nothing speaks against an even use."""
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(edge, "s"), end(18.0, "s")], "g0",
        [t for t in every(TENTH, 0.0, 20.0) if not 5.05 < t < 9.95], lambda t: 600.0 * t, lambda t: 600.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(600.0 * (18.0 - edge), abs=40.0)
    assert abs(device.energy_j - 600.0 * (18.0 - edge)) < device.bound.edge_j


def test_a_lost_counter_is_bridged_and_flagged() -> None:
    """The counter gives nothing from 5 s on (NVML: unknown error), power goes on."""
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(20.0, "s")], "g0", every(TENTH, 0.0, 21.5),
        lambda t: 300.0 * t if t < 5 else None, lambda t: 300.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(6000.0, rel=0.01) and "bridged" in device.flags
    assert device.source == "integrated"


@pytest.mark.parametrize("with_power", [True, False])
@pytest.mark.parametrize("device", [gpu(), package("g0")], ids=["board", "package"])
def test_a_counter_that_first_answers_late_covers_no_time_before(device: dict, with_power: bool) -> None:
    """A device that is found 50 s after the stage began, 100 W, the stage 65 s long: 15 s are known, and power's first
    value is held for 2 s before it. The rest is a gap."""
    ledger = fill(
        Ledger(manifest([device], ["s"])), [start(1.0, "s"), end(66.0, "s")], "g0", every(TENTH, 51.0, 70.0),
        lambda t: 100.0 * (t - 51.0), (lambda t: 100.0) if with_power else None,
    )  # fmt: skip
    late = part(ledger.totals(), "s", "g0")
    known_s = 17.0 if with_power else 15.0
    assert late.coverage == pytest.approx(known_s / 65.0, abs=0.002) and "gap" in late.flags
    assert late.energy_j == pytest.approx(100.0 * known_s, abs=6.0)
    assert late.mean_w == pytest.approx(100.0, rel=0.005)
    assert late.bound_j > 100.0 * 48.0


def test_power_before_the_first_counter_value_is_bridged() -> None:
    """The counter answers from 12 s on only, power from the start: two thirds of the stage come from power."""
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(15.0, "s")], "g0", every(TENTH, 0.0, 17.0),
        lambda t: 100.0 * t if t >= 12.0 else None, lambda t: 100.0,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(1500.0, rel=0.01) and device.coverage == 1.0
    assert "bridged" in device.flags and device.source == "integrated"


def test_a_stage_after_a_silence_loses_nothing_to_the_one_before() -> None:
    """Power alone, 300 W; from 5 s to 9 s the board answers 0 W. The silence is a gap of the stage before, and no
    energy that was held for a while in it is taken from the stage after."""
    ledger = fill(
        Ledger(manifest([gpu(source="integrated")], ["a", "b"])),
        [start(2.0, "a"), end(6.0, "a"), start(9.5, "b"), end(15.0, "b")], "g0", every(TENTH, 0.0, 17.0),
        power=lambda t: 0.0 if 5.0 <= t < 9.0 else 300.0,
    )  # fmt: skip
    totals = ledger.totals()
    before, after = part(totals, "a", "g0"), part(totals, "b", "g0")
    assert after.energy_j == pytest.approx(1650.0, abs=1.0) and after.coverage == 1.0
    assert before.energy_j == pytest.approx(870.0, abs=4.0) and before.coverage == pytest.approx(0.725, abs=0.01)


def test_an_edge_from_before_the_first_counter_value_has_its_own_bound() -> None:
    """Power jumps until 5 s, then 100 W; the counter answers from 12 s on. Nothing is unsure about 8 s to 15 s."""
    watts = lambda t: 100.0 if t >= 5.0 or round(t * 10) % 2 else 700.0  # noqa: E731
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(8.0, "s"), end(15.0, "s")], "g0", every(TENTH, 0.0, 17.0),
        lambda t: 100.0 * t if t >= 12.0 else None, watts,
    )  # fmt: skip
    device = part(ledger.totals(), "s", "g0")
    assert device.energy_j == pytest.approx(700.0, abs=12.0) and device.bound.edge_j < 15.0


def test_one_lost_board_costs_no_other_a_sample() -> None:
    ledger = Ledger(manifest([gpu("g0"), gpu("g1")], ["s"]))
    ledger.event(start(0.0, "s"))
    for t in every(TENTH, 0.0, 20.0):
        ledger.sample(t, "g0", 300.0 * t, 300.0, None)
        if t < 5:
            ledger.sample(t, "g1", 300.0 * t, 300.0, None)
    ledger.event({"t": 5.1, "type": "sensor", "device": "g1", "what": "lost", "text": "GPU is lost"})
    ledger.event(end(20.0, "s"))
    totals = ledger.totals()
    assert part(totals, "s", "g0").energy_j == pytest.approx(6000.0, rel=0.01)
    lost = part(totals, "s", "g1")
    assert lost.coverage < 0.4 and {"lost", "gap"} <= set(lost.flags)
    assert "sensor_lost" in {w["code"] for w in totals.warnings}


@pytest.mark.fault(46)
def test_fault_46_a_die_that_reads_zero_is_not_counted_twice() -> None:
    """Two dies of one card, the second reads 0 W: the card's energy is the first's, the second is unknown."""
    ledger = Ledger(manifest([gpu("g0", source="integrated", scope="card"), gpu("g1", source="integrated")], ["s"]))
    ledger.event(start(0.0, "s"))
    for t in every(TENTH, 0.0, 11.5):
        ledger.sample(t, "g0", None, 400.0, None)
        ledger.sample(t, "g1", None, 0.0, None)
    ledger.event(end(10.0, "s"))
    totals = ledger.totals()
    assert stage(totals, "s").energy_j["gpu"] == pytest.approx(4000.0, rel=0.01)
    assert part(totals, "s", "g1").energy_j is None and "gpu" in stage(totals, "s").energy_j["missing"]
    assert part(totals, "s", "g0").scope == "card"
    dies = [naive.trapezoid(every(TENTH, 0.0, 10.0), [watts] * 101) for watts in (400.0, 0.0)]
    assert dies[1] == 0.0 and naive.mean_over_boards(dies) == pytest.approx(2000.0)


@pytest.mark.fault(74)
def test_fault_74_identical_boards_scale_linearly() -> None:
    """4 x 300 W x 10 s = 12 000 J (another tool: 3000 J)."""
    devices = [gpu(f"g{i}", source="integrated") for i in range(4)]
    ledger = Ledger(manifest(devices, ["s"]))
    ledger.event(start(0.0, "s"))
    for t in every(TENTH, 0.0, 11.5):
        for device in devices:
            ledger.sample(t, device["key"], None, 300.0, None)
    ledger.event(end(10.0, "s"))
    totals = ledger.totals()
    assert stage(totals, "s").energy_j["gpu"] == pytest.approx(12000.0, rel=1e-3)
    boards = [d.energy_j for d in stage(totals, "s").devices]
    assert naive.mean_over_boards(boards) == pytest.approx(3000.0, rel=1e-3)


def test_counter_and_power_that_disagree_are_a_warning() -> None:
    """A counter 20 % above its own power for 30 s."""
    for factor, expected in ((1.2, True), (1.05, False)):
        ledger = fill(
            Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(30.0, "s")], "g0", every(TENTH, 0.0, 31.5),
            lambda t, f=factor: f * 300.0 * t, lambda t: 300.0, lambda t: 300.0,
        )  # fmt: skip
        codes = {w["code"] for w in ledger.totals().warnings}
        assert ("counter_mismatch" in codes) is expected


@pytest.mark.parametrize(("hz", "until", "factor", "expected"), [
    (1.0, 12.0, 1.0, False), (1.0, 60.0, 1.0, False), (1.0, 60.0, 1.3, True), (10.0, 12.0, 1.0, False),
    (10.0, 12.0, 1.3, True),
])  # fmt: skip
def test_a_step_between_slow_samples_is_no_disagreement(hz: float, until: float, factor: float, expected: bool) -> None:
    """60 W, then 600 W in the last second, which begins just after a sample: at 1 Hz power as trapezoids errs by 260 J,
    20 % of a stage of 12 s, and no sensor is wrong. A counter 30 % above the true energy stays a warning where that
    is more than one step explains."""
    step = until - 1.0 + 0.01
    ledger = fill(
        Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(until, "s")], "g0", every(1.0 / hz, 0.0, until + 1.5),
        lambda t: factor * (60.0 * t + 540.0 * max(t - step, 0.0)), lambda t: 600.0 if t >= step else 60.0,
    )  # fmt: skip
    assert ("counter_mismatch" in {w["code"] for w in ledger.totals().warnings}) is expected


@pytest.mark.parametrize("counts_on", [False, True], ids=["both fall silent", "power falls silent"])
@pytest.mark.parametrize(("factor", "expected"), [(1.0, False), (1.05, False), (1.2, True)])
@pytest.mark.parametrize("silent", [(10.0, 25.0), (3.0, 30.0), (25.0, 60.0)])
def test_counter_and_power_are_compared_over_covered_time(
    counts_on: bool, factor: float, expected: bool, silent: tuple[float, float]
) -> None:
    """A gap takes power's energy of that time and not the counter's: no difference of the sensors. One of 20 % over
    the rest stays a warning. The last gap lasts to the end, where a counter that falls silent too is unknown."""
    ledger = Ledger(manifest([gpu()], ["s"]))
    ledger.event(start(0.0, "s"))
    for t in every(TENTH, 0.0, 51.5):
        dark = silent[0] < t < silent[1]
        if not dark or counts_on:
            ledger.sample(t, "g0", factor * 300.0 * t, None if dark else 300.0, None)
    ledger.event(end(50.0, "s"))
    totals = ledger.totals()
    unknown = silent[1] > 50.0 and not counts_on
    assert ("counter_mismatch" in part(totals, "s", "g0").flags) is (expected and not unknown)
    again = Ledger.from_state(ledger.manifest, json.loads(json.dumps(ledger.state())))
    assert again.totals() == totals


@pytest.mark.parametrize("empty", [None, 0.0])
def test_readings_without_a_value_cover_no_time(empty: float | None) -> None:
    """A board that is polled and says nothing for 7 s of 14 s, live as in the record, which keeps no empty readings."""
    found = []
    for polled_from in (0.0, 7.0):
        ledger = fill(
            Ledger(manifest([gpu()], ["s"])), [start(0.0, "s"), end(14.0, "s")], "g0", every(TENTH, polled_from, 16.0),
            lambda t: 200.0 * t if t >= 7.0 else None, lambda t: 200.0 if t >= 7.0 else empty,
        )  # fmt: skip
        found.append(part(ledger.totals(), "s", "g0"))
    assert found[0] == found[1]
    assert found[0].coverage == pytest.approx(9.0 / 14.0, abs=0.002) and "gap" in found[0].flags
    assert found[0].energy_j == pytest.approx(1800.0, rel=0.005)
