"""What enters totals and what stands beside: modules, process trees, flags over long runs, GPUs by prefix."""

from __future__ import annotations

import json

import naive
import pytest
from ledger_inputs import end, every, fill, gpu, manifest, model, package, part, stage, start

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.counter import CounterTrack
from kdwatch.ledger.power import PowerTrack


def test_a_modules_counter_leaves_cpu_and_memory_beside() -> None:
    """GH200: the module's counter holds CPU and memory; models of both are shown and not added."""
    module = gpu("g0", kind="other", scope="module", limit_w=1000.0)
    devices = [module, model("cpu0"), model("ram", "ram_estimated")]
    ledger = Ledger(manifest(devices, ["s"]))
    ledger.event(start(0.0, "s"))
    for t in every(0.1, 0.0, 12.0):
        ledger.sample(t, "g0", 600 * t, 600.0, None)
        ledger.sample(t, "cpu0", None, 50.0, None)
        ledger.sample(t, "ram", None, 20.0, None)
    ledger.event(end(10.0, "s"))
    totals = ledger.totals()
    energy = stage(totals, "s").energy_j
    assert energy["total"] == energy["other"] == pytest.approx(6000.0, rel=0.002)
    assert energy["cpu"] is None and energy["missing"] == []
    assert part(totals, "s", "cpu0").energy_j == pytest.approx(500.0, rel=0.01)
    assert [d.counted for d in totals.devices] == [True, False, False]
    assert totals.total_j == pytest.approx(7200.0, rel=0.002)


@pytest.mark.fault(57)
@pytest.mark.parametrize(("cpu_s", "share"), [(20.0, 0.25), (80.0, 1.0), (500.0, 1.0), (0.0, 0.0), (None, None)])
def test_fault_57_a_process_trees_share_is_at_most_the_whole(cpu_s: float | None, share: float | None) -> None:
    """20 CPU seconds of 10 s on 8 CPUs are a quarter of the package; more than all is all."""
    ledger = Ledger(manifest([package()], ["s"], hardware={"cores": 8}))
    events = [start(0.0, "s"), end(10.0, "s", cpu_s=cpu_s)]
    fill(ledger, events, "cpu0", every(1.0, 0.0, 10.0), lambda t: 100.0 * t)
    found = stage(ledger.totals(), "s")
    assert found.energy_j["cpu"] == pytest.approx(1000.0)
    assert found.cpu_process_j == (None if share is None else pytest.approx(1000.0 * share))
    if cpu_s:
        assert naive.share_of_one_core(cpu_s, 10.0) > 1.0


def test_faults_for_days_cost_no_memory_and_stay_flagged() -> None:
    """A reading that is discarded each second for a day: the flag is there, the state stays small."""
    ledger = Ledger(manifest([gpu(source="integrated")], ["s"]))
    ledger.event(start(0.0, "s"))
    for k in range(5000):
        ledger.sample(2.0 * k, "g0", None, 300.0, None)
        ledger.sample(2.0 * k + 1.0, "g0", None, 90000.0, None)
        if k == 100:
            early = len(json.dumps(ledger.state()))
    assert len(json.dumps(ledger.state())) < 1.5 * early
    assert "discarded" in part(ledger.totals(), "s", "g0").flags


def test_memory_is_flat_over_many_polls() -> None:
    """Issue 3: 10 000 polls; the state of a busy ledger does not grow."""
    ledger = Ledger(manifest([gpu()], ["s"]))
    ledger.event(start(0.0, "s"))
    sizes = []
    for k in range(10_000):
        t = k / 10
        ledger.sample(t, "g0", 300.0 * t + (k % 7), 300.0 + k % 7, 300.0)
        if k in (2000, 9999):
            sizes.append(len(json.dumps(ledger.state())))
    assert sizes[1] < 1.25 * sizes[0]  # longer numbers, no more of them


@pytest.mark.parametrize("gpus", [[1], ["1"], ["GPU-1"], ["GPU-"], "GPU-1", 1])
def test_gpus_are_named_by_index_uuid_or_prefix(gpus: object) -> None:
    ledger = Ledger(manifest([gpu("g1")], [{"name": "s", "gpus": gpus}]))
    fill(ledger, [start(0.0, "s"), end(10.0, "s")], "g1", every(0.1, 0.0, 11.5), lambda t: 100 * t, lambda t: 100.0)
    assert stage(ledger.totals(), "s").energy_j["gpu"] == pytest.approx(1000.0, rel=0.01)


def test_a_recovered_sensor_is_no_fault() -> None:
    ledger = Ledger(manifest([gpu()], ["s"]))
    ledger.event(start(0.0, "s"))
    ledger.sample(0.0, "g0", 0.0, 100.0, None)
    ledger.event({"t": 0.5, "type": "sensor", "device": "g0", "what": "recovered", "text": "back"})
    ledger.sample(2.0, "g0", 200.0, 100.0, None)
    totals = ledger.totals()
    assert part(totals, "s", "g0").flags == () and totals.warnings == ()


def test_slow_logs_have_no_gaps_between_their_own_samples() -> None:
    """A log of one sample each 30 s, period stated or learned: 10 minutes at 200 W are 120 kJ."""
    imported = {"imported": {"format": "x"}}
    for spec, more in ((gpu(source="integrated", period_s=30.0), {}), (gpu(source="imported"), imported)):
        ledger = Ledger(manifest([spec], ["s"], **more))
        fill(ledger, [start(0.0, "s"), end(600.0, "s")], "g0", every(30.0, 0.0, 600.0), power=lambda t: 200.0)
        device = part(ledger.totals(), "s", "g0")
        assert device.energy_j == pytest.approx(120000.0) and device.coverage == 1.0


def test_the_counters_period_is_learned_from_bursts_and_the_shorter_answer_wins() -> None:
    """Two ticks 20 ms apart in one burst; two of different bursts with one missed between them do not count."""
    power = PowerTrack()
    counter = CounterTrack(lambda: power, lambda code, t: None, 1400.0)

    def tick(at: float, joules: float) -> None:
        counter.add(at - 0.001, counter.raw or 0.0)
        counter.add(at, joules)

    counter.add(0.0, 0.0)
    tick(1.0, 1.0)
    tick(1.04, 2.0)
    assert counter.period_s == pytest.approx(0.04)
    tick(2.0, 3.0)
    tick(2.02, 4.0)
    assert counter.period_s == pytest.approx(0.02) and counter.refresh_s == pytest.approx(0.021, abs=0.002)
    tick(3.0, 5.0)
    tick(3.06, 6.0)
    assert counter.period_s == pytest.approx(0.02)


def test_a_rough_tick_is_placed_by_the_period() -> None:
    power = PowerTrack()
    counter = CounterTrack(lambda: power, lambda code, t: None, 1400.0)
    for at, joules in ((0.0, 0.0), (0.999, 0.0), (1.0, 1.0), (1.019, 1.0), (1.02, 2.0), (1.07, 4.0)):
        counter.add(at, joules)
    _, later = counter.nearest(1.05)
    rough = counter.ticks[-1]
    assert (rough.low, rough.high) == (pytest.approx(1.049, abs=0.002), 1.07)
    assert later[0].low < 1.06 < later[0].high and later[0].high - later[0].low < 0.01
