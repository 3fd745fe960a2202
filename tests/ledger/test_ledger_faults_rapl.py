"""Faults of RAPL readers that users of other tools reported. The number is that of the project's list of faults."""

from __future__ import annotations

import naive
import pytest
from ledger_inputs import end, every, fill, gpu, manifest, model, package, part, stage, start

from kdwatch.ledger.core import Ledger

INTEL = 262143.328850
AMD = 65712.999613


def run(devices, key, times, counter, events=None, **fields):
    """A ledger over one stage `s` from the first to the last time, unless events say otherwise."""
    times = list(times)
    events = [start(times[0], "s"), end(times[-1], "s")] if events is None else events
    return fill(Ledger(manifest(devices, ["s"])), events, key, times, counter, **fields)


@pytest.mark.fault(2)
def test_fault_02_a_wrap_is_the_rest_of_the_range_plus_the_new_value() -> None:
    """262 000 J -> 500 J is 143.3 J to the top and 500 J after: 643.3 J."""
    values = {0.0: 262000.0, 1.0: 500.0}
    totals = run([package()], "cpu0", [0.0, 1.0], values.get).totals()
    assert totals.total_j == pytest.approx(INTEL - 262000 + 500, abs=0.01)
    right = pytest.approx(643.3, abs=0.1)
    assert totals.stages[0].energy_j["cpu"] == right
    assert naive.last_minus_first(list(values.values())) < 0


@pytest.mark.fault(5)
def test_fault_05_each_zone_wraps_by_itself() -> None:
    """One package wraps, the other runs 200 kJ: 400 kJ in all, where sum-then-unwrap gives 137 857 J."""
    ledger = Ledger(manifest([package("cpu0"), package("cpu1")], ["s"]))
    ledger.event(start(0.0, "s"))
    for k in range(1001):
        t, used = float(k), 200.0 * k
        ledger.sample(t, "cpu0", (200000.0 + used) % INTEL, None, None)
        ledger.sample(t, "cpu1", used, None, None)
    ledger.event(end(1000.0, "s"))
    assert ledger.totals().stages[0].energy_j["cpu"] == pytest.approx(400000.0, abs=0.5)
    ends = [[200000.0, (200000.0 + 200000.0) % INTEL], [0.0, 200000.0]]
    assert naive.sum_then_unwrap(ends, INTEL) == pytest.approx(137857.0, abs=1.0)


@pytest.mark.fault(7)
def test_fault_07_a_late_reader_with_a_wrap_stays_positive() -> None:
    """The reader slept 40 s over a wrap at 200 W: 8 kJ, no crash, no negative."""
    times = [0.0, 1.0, 41.0, 42.0]
    values = {t: (INTEL - 3000 + 200 * t) % INTEL for t in times}
    totals = run([package()], "cpu0", times, values.get).totals()
    assert totals.total_j == pytest.approx(200 * 42, abs=0.5)
    assert naive.last_minus_first(list(values.values())) < 0


@pytest.mark.fault(8)
def test_fault_08_twenty_wraps_in_six_hours() -> None:
    """243 W for 6 h is 5.25 MJ, 20 wraps; polled each 30 s."""
    power = 20.02 * INTEL / 21600
    values = {t: (power * t) % INTEL for t in every(30.0, 0.0, 21600.0)}
    totals = run([package(period_s=30.0)], "cpu0", values, values.get).totals()
    assert totals.total_j == pytest.approx(power * 21600, abs=1.0)
    assert naive.rises_only(list(values.values())) != pytest.approx(power * 21600, rel=0.001)
    assert totals.stages[0].devices[0].coverage == 1.0


@pytest.mark.fault(9)
def test_fault_09_an_unsigned_underflow_is_no_energy() -> None:
    """18446744073447456768 uJ once among good readings: that reading goes, the energy over it stays."""

    def counter(t: float) -> float:
        return 18446744073447.456768 if t == 5.0 else 1000.0 + 50.0 * t

    times = every(1.0, 0.0, 10.0)
    totals = run([package()], "cpu0", times, counter).totals()
    assert totals.total_j == pytest.approx(500.0, abs=0.01)
    assert naive.unwrap([counter(t) for t in times], naive.U64_J) > 1e13
    assert "discarded" in part(totals, "s", "cpu0").flags


@pytest.mark.fault(9)
def test_fault_09_a_decrease_that_no_power_explains_is_no_wrap() -> None:
    """100 kJ -> 90 kJ within 1 s would be a wrap of 252 kW. The counter was reset; nothing is invented."""

    def counter(t: float) -> float:
        return 100000.0 + 50 * t if t < 5 else 90000.0 + 50 * t

    totals = run([package(limit_w=300.0)], "cpu0", every(1.0, 0.0, 10.0), counter).totals()
    assert 0 <= totals.total_j <= 500.0
    assert naive.unwrap([counter(t) for t in every(1.0, 0.0, 10.0)], INTEL) > 250e3
    assert totals.total_j == pytest.approx(450.0, abs=1.0)
    assert "reset" in part(totals, "s", "cpu0").flags
    assert part(totals, "s", "cpu0").coverage == pytest.approx(0.9, abs=0.011)
    assert "counter_reset" in {w["code"] for w in totals.warnings}


@pytest.mark.fault(10)
@pytest.mark.parametrize("wrap", [INTEL, AMD])
def test_fault_10_the_range_is_the_zones_own(wrap: float) -> None:
    """Not 2**32, not 2**64: max_energy_range_uj. Several wraps, right to the joule."""
    values = {t: (60000 + 225 * t) % wrap for t in every(1.0, 0.0, 2000.0)}
    totals = run([package(wrap_j=wrap)], "cpu0", values, values.get).totals()
    right = pytest.approx(225 * 2000, abs=1.0)
    assert totals.total_j == right
    others = (naive.U32_J, naive.U64_J, INTEL if wrap == AMD else AMD)
    assert all(naive.unwrap(list(values.values()), other) != right for other in others)


@pytest.mark.fault(11)
def test_fault_11_the_same_trace_from_any_backend_is_the_same_energy() -> None:
    """powercap wraps at its range, perf counts on: equal joules."""
    times = every(1.0, 0.0, 1500.0)
    wrapping = run([package()], "cpu0", times, lambda t: (250 * t) % INTEL).totals()
    counting = run([package(wrap_j=None)], "cpu0", times, lambda t: 250.0 * t).totals()
    assert wrapping.total_j == pytest.approx(counting.total_j, abs=0.5)
    assert counting.total_j == pytest.approx(375000.0, abs=0.5)
    ends = [0.0, 250 * 1500 % INTEL], [0.0, 250.0 * 1500]
    assert naive.last_minus_first(ends[0]) != pytest.approx(naive.last_minus_first(ends[1]), abs=0.5)


def test_fault_15_dram_is_a_component_of_its_own() -> None:
    devices = [package("cpu0"), package("dram0", kind="dram", scope="dram")]
    ledger = Ledger(manifest(devices, ["s"]))
    ledger.event(start(0.0, "s"))
    for t in range(11):
        ledger.sample(float(t), "cpu0", 10.0 * t, None, None)
        ledger.sample(float(t), "dram0", 2.0 * t, None, None)
    ledger.event(end(10.0, "s"))
    energy = ledger.totals().stages[0].energy_j
    assert (energy["cpu"], energy["dram"], energy["total"]) == pytest.approx((100.0, 20.0, 120.0))


@pytest.mark.fault(16)
def test_fault_16_measured_dram_leaves_the_model_out() -> None:
    """RAM from a model beside measured dram is shown, and not added."""
    devices = [package("cpu0"), package("dram0", kind="dram"), model("ram", "ram_estimated")]
    ledger = Ledger(manifest(devices, ["s"]))
    ledger.event(start(0.0, "s"))
    for t in range(11):
        ledger.sample(float(t), "cpu0", 10.0 * t, None, None)
        ledger.sample(float(t), "dram0", 2.0 * t, None, None)
        ledger.sample(float(t), "ram", 20.0 * t, 20.0, None)
    ledger.event(end(10.0, "s"))
    totals = ledger.totals()
    assert totals.total_j == pytest.approx(120.0)
    assert naive.grown({"cpu0": 0, "dram0": 0, "ram": 0}, {"cpu0": 100, "dram0": 20, "ram": 200}) == 320.0
    assert totals.stages[0].energy_j["ram_estimated"] is None
    assert totals.stages[0].energy_j["estimated"] == 0.0
    assert part(totals, "s", "ram").energy_j == pytest.approx(200.0)


@pytest.mark.fault(19)
def test_fault_19_a_short_burst_is_what_the_counter_says() -> None:
    """10 ms at 215 W in 15 s of 5 W: 77.1 J, neither extrapolated nor missed."""

    def counter(t: float) -> float:
        return 5.0 * t + (210.0 * min(max(t - 7.3, 0.0), 0.01))

    totals = run([package()], "cpu0", every(1.0, 0.0, 15.0), counter).totals()
    right = pytest.approx(77.1, abs=0.01)
    assert totals.total_j == right
    for at in (0.0, 7.3, 14.99):
        assert naive.extrapolated(counter, at, 0.01, 15.0) != right


@pytest.mark.fault(25)
def test_fault_25_the_first_power_is_no_counter_over_a_tick() -> None:
    """A counter that begins at 200 kJ: no energy and no power before the second reading."""
    ledger = Ledger(manifest([package()], ["s"]))
    ledger.event(start(0.0, "s"))
    ledger.sample(0.0, "cpu0", 200000.0, None, None)
    first = ledger.totals()
    assert first.total_j == 0.0 and first.power_w is None
    assert naive.first_power(200000.0, 1.0) == 200000.0
    ledger.sample(1.0, "cpu0", 200040.0, None, None)
    assert ledger.totals().total_j == pytest.approx(40.0)
    assert ledger.totals().power_w == pytest.approx(40.0)


def test_one_missing_reading_of_a_counter_loses_nothing() -> None:
    """Fact 22: the counter bridges the hole (another tool gave 200 J of 400 J)."""
    times = [t for t in every(1.0, 0.0, 20.0) if t not in (7.0, 8.0, 9.0, 10.0, 11.0)]
    totals = run([package()], "cpu0", times, lambda t: 20.0 * t).totals()
    assert totals.total_j == pytest.approx(400.0)
    assert part(totals, "s", "cpu0").coverage == 1.0


def test_module_scope_is_other_and_stands_for_cpu_and_memory() -> None:
    """GH200: one counter for GPU, CPU and memory."""
    device = gpu("g0", kind="other", scope="module", limit_w=1000.0)
    totals = run([device], "g0", every(0.1, 0.0, 20.0), lambda t: 600.0 * t, power=lambda t: 600.0).totals()
    energy = stage(totals, "s").energy_j
    assert energy["other"] == pytest.approx(12000.0, rel=0.01)
    assert energy["gpu"] is None and energy["missing"] == []


def test_a_zone_that_could_not_be_read_is_missing_not_zero() -> None:
    ledger = Ledger(manifest([package("cpu0"), gpu("g0")], ["s"]))
    fill(ledger, [start(0.0, "s"), end(10.0, "s")], "g0", every(0.1, 0.0, 10.0), lambda t: 100 * t, lambda t: 100.0)
    energy = ledger.totals().stages[0].energy_j
    assert energy["cpu"] is None and "cpu" in energy["missing"]
    assert energy["total"] == pytest.approx(1000.0, rel=0.01)


def test_a_silence_longer_than_a_wrap_is_not_taken_for_known() -> None:
    """An AMD zone at 225 W wraps each 292 s; 10 minutes without a reading may hold two wraps: coverage says so."""
    times = [t for t in every(1.0, 0.0, 900.0) if not 100.0 < t < 700.0]
    device = part(run([package(wrap_j=AMD)], "cpu0", times, lambda t: (225 * t) % AMD).totals(), "s", "cpu0")
    assert device.energy_j == pytest.approx(225 * 900 - 2 * AMD, abs=1.0)
    assert device.coverage == pytest.approx(300 / 900, abs=0.01) and "gap" in device.flags
    assert device.bound.gap_j >= 2 * AMD
    short = [t for t in every(1.0, 0.0, 900.0) if not 100.0 < t < 300.0]
    known = part(run([package(wrap_j=AMD)], "cpu0", short, lambda t: (225 * t) % AMD).totals(), "s", "cpu0")
    assert known.energy_j == pytest.approx(225 * 900, abs=1.0) and known.coverage == 1.0
