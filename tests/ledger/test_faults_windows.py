"""Faults of windows, shares and clocks that users of other tools reported, by number; and the rules beside them."""

from __future__ import annotations

import json
import math

import naive
import pytest
from ledger_inputs import end, every, fill, gpu, manifest, model, package, part, stage, start

from kdwatch.ledger.core import Ledger


def constant(events, stages, devices=None, until=20.0, watts=100.0):
    """One board (or package) at constant power, read ten times a second."""
    devices = devices or [gpu()]
    ledger = Ledger(manifest(devices, stages))
    waiting = sorted(events, key=lambda e: e["t"])
    for t in every(0.1, 0.0, until):
        while waiting and waiting[0]["t"] <= t:
            ledger.event(waiting.pop(0))
        for device in devices:
            ledger.sample(t, device["key"], watts * t, watts if device["kind"] == "gpu" else None, None)
    for event in waiting:
        ledger.event(event)
    return ledger.totals()


@pytest.mark.fault(50)
def test_fault_50_a_stage_that_ends_and_another_leave_the_gap_unattributed() -> None:
    """A (3 s) gap (3 s) B (3 s): two records of 300 J, 300 J between, nothing twice."""
    totals = constant([start(0.0, "a"), end(3.0, "a"), start(6.0, "b"), end(9.0, "b")], ["a", "b"], until=9.0)
    assert stage(totals, "a").energy_j["gpu"] == pytest.approx(300.0, rel=0.01)
    assert stage(totals, "b").energy_j["gpu"] == pytest.approx(300.0, rel=0.01)
    assert totals.unattributed_j == pytest.approx(300.0, rel=0.01)
    assert stage(totals, "b").duration_s == pytest.approx(3.0)
    tracker = naive.OneBaseline()
    tracker.start(0.0)
    assert tracker.stop(300.0) == 300.0
    tracker.start(600.0)
    assert tracker.stop(900.0) == 900.0, "the second start did nothing"


def test_fault_50_a_stage_that_runs_twice_counts_its_own_time_only() -> None:
    totals = constant([start(0.0, "a"), end(3.0, "a"), start(6.0, "a"), end(9.0, "a")], ["a"], until=9.0)
    a = stage(totals, "a")
    assert (a.start_s, a.end_s, a.duration_s) == (0.0, 9.0, pytest.approx(6.0))
    assert a.energy_j["gpu"] == pytest.approx(600.0, rel=0.01)
    assert a.mean_w == pytest.approx(100.0, rel=0.01)


@pytest.mark.fault(52)
def test_fault_52_a_nested_stage_does_not_stop_the_outer_one() -> None:
    """Outer 0..20 s, inner 4..16 s, a counter that wraps twice inside: the inner's energy is its own, once."""
    devices = [package(wrap_j=500.0, limit_w=300.0)]
    events = [start(0.0, "outer"), start(4.0, "inner", parent="outer"), end(16.0, "inner"), end(20.0, "outer")]
    values = {t: 100 * t % 500 for t in every(0.1, 0.0, 22.0)}
    totals = fill(Ledger(manifest(devices, ["outer", "inner"])), events, "cpu0", values, values.get).totals()
    assert stage(totals, "outer").energy_j["cpu"] == pytest.approx(800.0, abs=0.5)
    assert stage(totals, "inner").energy_j["cpu"] == pytest.approx(1200.0, abs=0.5)
    assert totals.unattributed_j == pytest.approx(200.0, abs=0.5)
    assert [stage(totals, name).mean_w for name in ("outer", "inner")] == pytest.approx([100.0, 100.0], rel=0.01)
    sampler_stopped = [j for t, j in values.items() if t <= 20.0 and not 4.0 < t < 16.0]
    assert naive.unwrap(sampler_stopped, 500.0) < 2000.0 - 2 * 400.0
    assert not any(w["code"] == "overlap" for w in totals.warnings)


@pytest.mark.fault(55)
def test_fault_55_stages_never_have_more_than_the_device() -> None:
    """At each reading: attributed <= measured, per device, whatever overlaps."""
    devices = [gpu("g0"), package("cpu0")]
    ledger = Ledger(manifest(devices, [{"name": "a", "gpus": [0]}, "b"]))
    story = {1.0: start(1.0, "a"), 2.0: start(2.0, "b"), 3.0: end(3.0, "a"), 4.0: end(4.0, "b")}
    for t in every(0.1, 0.0, 6.0):
        if t in story:
            ledger.event(story[t])
        ledger.sample(t, "g0", 300 * t, 300.0, None)
        ledger.sample(t, "cpu0", 50 * t, None, None)
        totals = ledger.totals()
        for device in totals.devices:
            given = sum(d.energy_j or 0.0 for s in totals.stages for d in s.devices if d.key == device.key)
            assert given <= (device.total_j or 0.0) * (1 + 1e-9) + 1e-9
    package_j = next(d.total_j for d in totals.devices if d.key == "cpu0")
    assert naive.everything_in_each_window([(1.0, 3.0), (2.0, 4.0)], 50.0) > package_j - 50.0 * 3.0


@pytest.mark.fault(56)
def test_fault_56_an_empty_window_is_null_not_infinite() -> None:
    totals = constant([start(5.0, "a"), end(5.0, "a", tokens=3)], ["a"], until=7.0)
    a = stage(totals, "a")
    assert a.duration_s == 0.0 and a.mean_w is None and a.tokens_per_s is None and a.devices[0].mean_w is None
    json.dumps([d.energy_j for d in a.devices], allow_nan=False)
    json.dumps([d.mean_w for d in a.devices], allow_nan=False)
    for joules in (0.0, 3.0):
        with pytest.raises(ValueError, match="not JSON compliant"):
            json.dumps(naive.ratio(joules, 0.0), allow_nan=False)


@pytest.mark.fault(70)
def test_fault_70_a_time_zone_or_clock_change_moves_no_energy() -> None:
    """The wall clock is set back by an hour in mid-run: 2000 J stay 2000 J, a warning says so."""
    clock = {"monotonic_origin": 50.0, "wall_origin": 1.7e9, "boottime_origin": 60.0}
    ledger = Ledger({**manifest([gpu()], ["a"]), "clock": clock})
    events = [
        start(0.0, "a"),
        {"t": 5.0, "type": "clock", "wall": 1.7e9 + 5.01, "boottime": 65.0},
        {"t": 10.0, "type": "clock", "wall": 1.7e9 + 10 - 3600, "boottime": 70.0},
        {"t": 15.0, "type": "clock", "wall": 1.7e9 + 15 - 3600, "boottime": 75.0},
        end(20.0, "a"),
    ]
    totals = fill(ledger, events, "g0", every(0.1, 0.0, 21.5), lambda t: 100 * t, lambda t: 100.0).totals()
    assert stage(totals, "a").energy_j["gpu"] == pytest.approx(2000.0, rel=0.001)
    assert [w["code"] for w in totals.warnings] == ["clock_step"]
    assert 100.0 * naive.wall_seconds(events[1]["wall"] - 5, events[3]["wall"] + 5) < 0


def test_suspend_is_seen_and_its_time_is_in_no_duration() -> None:
    """The boot clock is 100 s ahead of the monotonic one after a sleep; the wall clock ran on with it."""
    clock = {"monotonic_origin": 50.0, "wall_origin": 1.7e9, "boottime_origin": 60.0}
    ledger = Ledger({**manifest([gpu()], ["a"]), "clock": clock})
    events = [
        start(0.0, "a"), {"t": 10.0, "type": "clock", "wall": 1.7e9 + 110, "boottime": 170.0},
        {"t": 12.0, "type": "clock", "wall": 1.7e9 + 112, "boottime": 172.0}, end(20.0, "a"),
    ]  # fmt: skip
    totals = fill(ledger, events, "g0", every(0.1, 0.0, 21.5), lambda t: 100 * t, lambda t: 100.0).totals()
    assert [w["code"] for w in totals.warnings] == ["suspend"]
    assert stage(totals, "a").duration_s == pytest.approx(20.0)


@pytest.mark.fault(73)
def test_fault_73_mean_power_is_energy_over_time() -> None:
    """A ramp from 0 to 200 W: the mean is J / s, neither the last sample nor the mean of samples."""
    ledger = fill(
        Ledger(manifest([gpu()], ["a"])), [start(0.0, "a"), end(10.0, "a")], "g0", every(0.1, 0.0, 11.5),
        lambda t: 10 * t * t, lambda t: 20 * t,
    )  # fmt: skip
    device = part(ledger.totals(), "a", "g0")
    assert device.mean_w == pytest.approx(device.energy_j / 10.0, rel=1e-12)
    assert device.mean_w == pytest.approx(100.0, rel=0.01)
    assert naive.last_sample([20 * t for t in every(0.1, 0.0, 10.0)]) == pytest.approx(200.0)
    assert device.peak_w == pytest.approx(200.0, rel=0.03)


@pytest.mark.fault(75)
def test_fault_75_net_energy_is_never_negative_and_gross_is_always_there() -> None:
    """An idle baseline learned too high (150 W) under a stage of 100 W."""
    for idle, net in ((150.0, 0.0), (40.0, 600.0)):
        events = [
            {"t": 0.0, "type": "baseline", "idle_w": {"g0": idle}, "duration_s": 5.0},
            start(0.0, "a"),
            end(10.0, "a"),
        ]
        a = stage(constant(events, ["a"], until=11.5), "a")
        assert a.net_energy_j == pytest.approx(net, abs=5.0)
        assert a.energy_j["gpu"] == pytest.approx(1000.0, rel=0.01)
        assert (naive.net(a.energy_j["gpu"], idle, 10.0) < -400.0) is (idle > 100.0)


def test_net_energy_is_unknown_while_a_device_has_no_baseline() -> None:
    events = [{"t": 0.0, "type": "baseline", "idle_w": {"g0": 40.0}}, start(0.0, "a"), end(10.0, "a")]
    a = stage(constant(events, ["a"], [gpu(), package()], until=11.5), "a")
    assert a.net_energy_j is None and part_net(a, "g0") == pytest.approx(600.0, abs=5.0)


def part_net(found, key):
    return next(d.net_energy_j for d in found.devices if d.key == key)


def test_stages_at_the_same_time_share_by_declared_gpus_only() -> None:
    """a on GPU 0, b on GPU 1 from 2 to 8 s: boards go to their stage, the package's overlap to nobody, flagged."""
    devices = [gpu("g0"), gpu("g1"), package("cpu0")]
    stages = [{"name": "a", "kind": "other", "gpus": [0]}, {"name": "b", "kind": "other", "gpus": ["GPU-1"]}]
    totals = constant([start(0.0, "a"), end(8.0, "a"), start(2.0, "b"), end(10.0, "b")], stages, devices, until=11.5)
    assert stage(totals, "a").energy_j["gpu"] == pytest.approx(800.0, rel=0.01)
    assert stage(totals, "b").energy_j["gpu"] == pytest.approx(800.0, rel=0.01)
    assert part(totals, "a", "cpu0").energy_j == pytest.approx(200.0, rel=0.01)
    assert part(totals, "b", "cpu0").energy_j == pytest.approx(200.0, rel=0.01)
    cpu = next(d for d in totals.devices if d.key == "cpu0")
    assert cpu.unattributed_j == pytest.approx(600.0 + 150.0, rel=0.01)
    assert {w["device"] for w in totals.warnings if w["code"] == "overlap"} == {"cpu0"}
    assert stage(totals, "a").shared_j == pytest.approx(600.0, rel=0.01)
    assert stage(totals, "a").mean_w == pytest.approx(100.0 + 100.0, rel=0.01), "each over its own time"


def test_a_stage_that_declares_other_gpus_the_second_time_keeps_what_it_used_the_first() -> None:
    """Board 0 for 4 s, then board 1 for 4 s, 100 W each: both are the stage's, so stages and unattributed are all."""
    ledger = Ledger(manifest([gpu("g0"), gpu("g1")], ["s"]))
    for event in (start(2.0, "s", gpus=[0]), end(6.0, "s"), start(8.0, "s", gpus=[1]), end(12.0, "s")):
        ledger.event(event)
    for t in every(0.1, 0.0, 15.0):
        for key in ("g0", "g1"):
            ledger.sample(t, key, 100.0 * t, 100.0, None)
    totals = ledger.totals()
    assert [d.energy_j for d in totals.stages[0].devices] == pytest.approx([400.0, 400.0], rel=0.02)
    used = totals.stages[0].energy_j["total"]
    assert used + totals.unattributed_j == pytest.approx(totals.total_j)


def test_a_stages_name_cannot_confuse_the_accounts() -> None:
    names = ["a", "shared:a", "None", "\0"]
    events = [e for k, name in enumerate(names) for e in (start(5.0 * k, name), end(5.0 * k + 4.0, name))]
    totals = constant(events, names, until=21.0)
    assert [s.energy_j["gpu"] for s in totals.stages] == [pytest.approx(400.0, rel=0.01)] * 4
    assert totals.unattributed_j == pytest.approx(500.0, rel=0.01)


def test_undeclared_overlap_stays_unattributed() -> None:
    totals = constant([start(0.0, "a"), end(8.0, "a"), start(2.0, "b"), end(10.0, "b")], ["a", "b"], until=10.0)
    assert stage(totals, "a").energy_j["gpu"] == pytest.approx(200.0, rel=0.02)
    assert stage(totals, "b").energy_j["gpu"] == pytest.approx(200.0, rel=0.02)
    assert totals.unattributed_j == pytest.approx(600.0, rel=0.02)


def test_a_gpu_that_a_stage_did_not_ask_for_is_not_its_cost() -> None:
    """gpus: [1] on two boards: board 0 idles on nobody's account."""
    totals = constant(
        [start(0.0, "a"), end(10.0, "a")], [{"name": "a", "gpus": [1]}], [gpu("g0"), gpu("g1")], until=10.0
    )
    assert [d.key for d in stage(totals, "a").devices] == ["g1"]
    assert totals.unattributed_j == pytest.approx(1000.0, rel=0.01)


def test_the_tail_after_a_stage_belongs_to_nobody() -> None:
    totals = constant([start(0.0, "a"), end(10.0, "a")], ["a"], until=11.0)
    assert totals.unattributed_j == pytest.approx(100.0, rel=0.02)


def test_a_run_whose_recorder_died_ends_with_its_last_reading() -> None:
    ledger = Ledger(manifest([gpu()], ["a", "b"]))
    fill(ledger, [start(0.0, "a")], "g0", every(0.1, 0.0, 7.0), lambda t: 100 * t, lambda t: 100.0)
    ledger.interrupt()
    totals = ledger.totals()
    assert totals.status == "interrupted" and totals.t == 7.0
    assert (stage(totals, "a").status, stage(totals, "b").status) == ("interrupted", "pending")
    assert stage(totals, "a").energy_j["gpu"] == pytest.approx(700.0, rel=0.01)


def test_estimates_are_the_mean_since_the_last_reading() -> None:
    """A model's value speaks of the time before it: 10, 20, 30 W at 1, 2, 3 s are 60 J."""
    ledger = Ledger(manifest([model()], ["a"]))
    ledger.event(start(0.0, "a"))
    for t, watts in enumerate((5.0, 10.0, 20.0, 30.0)):
        ledger.sample(float(t), "cpu0", None, watts, None)
    ledger.event(end(3.0, "a"))
    device = part(ledger.totals(), "a", "cpu0")
    assert device.energy_j == pytest.approx(60.0) and device.source == "estimated"
    energy = ledger.totals().stages[0].energy_j
    assert (energy["measured"], energy["estimated"]) == (0.0, pytest.approx(60.0))
    assert "estimated" in {w["code"] for w in ledger.totals().warnings}


def test_a_process_trees_share_stands_beside_the_package() -> None:
    devices = [package("cpu0"), model("tree", scope="process_tree")]
    ledger = Ledger(manifest(devices, ["a"]))
    ledger.event(start(0.0, "a"))
    for t in range(11):
        ledger.sample(float(t), "cpu0", 50.0 * t, None, None)
        ledger.sample(float(t), "tree", 20.0 * t, 20.0, None)
    ledger.event(end(10.0, "a"))
    totals = ledger.totals()
    assert totals.total_j == pytest.approx(500.0)
    assert part(totals, "a", "tree").energy_j == pytest.approx(200.0)


def test_phases_progress_and_tokens() -> None:
    events = [
        start(0.0, "a"), {"t": 0.0, "type": "phase", "stage": "a", "name": "import"},
        {"t": 2.0, "type": "phase", "stage": "a", "name": "work"},
        {"t": 5.0, "type": "progress", "stage": "a", "tokens": 100, "loss": math.nan},
        {"t": 8.0, "type": "progress", "stage": "a", "input_tokens": 9, "step": 3, "total_steps": 4, "loss": 1.5},
        {"t": 9.0, "type": "progress", "stage": "a", "tokens": 500},
        end(10.0, "a"),
    ]  # fmt: skip
    a = stage(constant(events, ["a"], until=11.5), "a")
    assert a.phases_s == {"import": 2.0, "work": 8.0}
    assert (a.tokens, a.input_tokens, a.step, a.total_steps, a.loss) == (500, 9, 3, 4, 1.5)
    assert a.tokens_per_s == 50.0 and a.j_per_token == pytest.approx(2.0, rel=0.01)


def test_events_of_any_kind_and_shape_are_survived() -> None:
    ledger = Ledger(manifest([gpu()], ["a"]))
    for event in (
        {"type": "stage_started"}, {"t": "x", "type": "phase"}, {"t": 1.0, "type": "progress", "stage": 7},
        {"t": 1.0, "type": "quality", "benchmarks": {"m": 3}, "q": math.inf}, {"t": math.nan, "type": "clock"},
        {"t": 1.0, "type": "baseline", "idle_w": {"g0": "hot"}}, {"t": 1.0, "type": "sensor"},
        {"t": 1.0, "type": "stage_reused", "stage": "z", "reused_from": 5}, {"t": 1.0, "type": "control"},
        {"t": 1.0, "type": "never heard of", "x": 1}, {"t": 2.0, "type": "stage_ended", "stage": "unknown"},
    ):  # fmt: skip
        ledger.event(event)
    totals = ledger.totals()
    assert totals.total_j is None and stage(totals, "z").status == "reused"
