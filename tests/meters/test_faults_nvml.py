"""Faults that others had with NVML, by their number in the list that the issue names: the naive way fails each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import naive
import pytest
import sim_traces
from sim_accuracy import Recorder
from sim_nvml import NEVER, FakeBoard, FakeNvml

from kdwatch.ledger.load import load_ledger
from kdwatch.ledger.types import StageDevice, Totals
from kdwatch.meters.discover import Discovery
from kdwatch.meters.nvml import NvmlMeter
from kdwatch.rundir.reader import RunReader

Gpus = Callable[..., FakeNvml]
Find = Callable[..., Discovery]


class Raw:
    """What the recorder read of board 0 within its stage, by now on disk: the input of a naive way."""

    def __init__(self, folder: Path) -> None:
        reader = RunReader(next(folder.rglob("manifest.json")).parent)
        start, end = (e["t"] for e in reader.iter_events() if e["type"].startswith("stage_"))
        inside = [s for s in reader.iter_samples() if s.key == "g0" and start <= s.t <= end]
        self.times = [s.t for s in inside]
        self.counter = [s.counter_j for s in inside if s.counter_j is not None]
        self.average = [s.average_w for s in inside]


@pytest.fixture
def record(gpus: Gpus, tmp_path: Path) -> Callable[..., tuple[FakeNvml, Totals, float]]:
    """One stage of some seconds on scripted boards, the recorder's way; returns boards, totals and its start."""

    def run(*boards: FakeBoard, seconds: float, before: float = 2.3) -> tuple[FakeNvml, Totals, float]:
        fake = gpus(*boards)
        recorder = Recorder(fake, tmp_path, 1, seed=3)
        recorder.advance(before)
        start = recorder.edge("stage_started", stage="s0", kind="other")
        recorder.advance(start + seconds - recorder.clock())
        recorder.edge("stage_ended", at=start + seconds, stage="s0", status="completed", exit_code=0)
        recorder.advance(0.5)
        for event in recorder.meter.drain_events():
            recorder.recording.event(
                "sensor", t=event.t - fake.origin, device=event.key, what=event.what, text=event.text
            )
        return fake, load_ledger(recorder.close()).totals(), start

    return run


def device(totals: Totals, number: int = 0) -> StageDevice:
    return totals.stages[0].devices[number]


def codes(totals: Totals) -> set[str]:
    return {w["code"] for w in totals.warnings}


@pytest.mark.fault(28)
def test_28_an_unsupported_counter_is_said_once(gpus: Gpus, found: Find) -> None:
    """The counter answers at the start and then no more: one event that names it, over a thousand polls."""
    fake = gpus(FakeBoard(faults=[("no_counter", 1001.0, NEVER, 0.0)]))
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    fake.clock.set(1001.5)
    counters = []
    for _ in range(1000):
        counters += [r.counter_j for r in meter.poll()]
        fake.clock.sleep(0.1)
    (event,) = meter.drain_events()
    assert event.key == "g0" and "energy counter" in event.text
    assert [len(naive.said_of_failures(counters, suppress)) for suppress in (True, False)] == [0, 1000]


@pytest.mark.fault(30)
@pytest.mark.parametrize("counter_s", [0.1, 0.0])
def test_30_a_step_is_not_smeared_by_the_average(record, tmp_path: Path, counter_s: float) -> None:
    """100 W, then 600 W from the stage's start: 5 s at 600 W are 3000 J; the 1 s mean alone says 2750 J."""
    step = sim_traces.Trace("step", ((2.3, 100.0, 100.0), (1000.0, 600.0, 600.0)))
    fake, totals, start = record(FakeBoard(trace=step, counter_s=counter_s), seconds=5.0)
    true = fake.joules(0, start, start + 5.0)
    assert true == pytest.approx(3000, rel=0.001)
    assert device(totals).energy_j == pytest.approx(true, rel=0.02)
    raw = Raw(tmp_path)
    assert naive.trapezoid(raw.times, raw.average) < 0.95 * true


@pytest.mark.fault(31)
def test_31_a_frozen_counter_gives_way_to_power(record, tmp_path: Path) -> None:
    """The counter stands still for 5 s at 300 W: 3000 J are told within 5 %, and flagged."""
    _, totals, _ = record(FakeBoard(faults=[("frozen", 1004.0, NEVER, 0.0)]), seconds=10.0)
    right = pytest.approx(3000, rel=0.05)
    assert device(totals).energy_j == right
    assert naive.last_minus_first(Raw(tmp_path).counter) != right
    assert set(device(totals).flags) & {"frozen", "bridged"}


@pytest.mark.fault(33)
def test_33_a_window_shorter_than_a_refresh_has_a_bound_not_a_zero(record, tmp_path: Path) -> None:
    """60 ms at 500 W with a counter that updates every 100 ms: 30 J, and a bound that admits what is not known."""
    _, totals, _ = record(FakeBoard(trace=sim_traces.constant(500)), seconds=0.06)
    found = device(totals)
    right = pytest.approx(30, abs=5)
    assert found.energy_j == right
    assert naive.last_minus_first(Raw(tmp_path).counter) != right
    assert found.bound is not None and 0 < found.bound.edge_j < 50


@pytest.mark.fault(34)
def test_34_a_driver_reload_is_bridged_and_flagged(record, tmp_path: Path) -> None:
    """The counter begins again at 0 in mid-stage: within 10 % of the truth, never negative."""
    fake, totals, start = record(FakeBoard(faults=[("reload", 1003.5, NEVER, 0.0)]), seconds=3.0)
    assert device(totals).energy_j == pytest.approx(fake.joules(0, start, start + 3.0), rel=0.10)
    assert naive.last_minus_first(Raw(tmp_path).counter) < 0
    assert "reset" in device(totals).flags
    assert "counter_reset" in codes(totals)


@pytest.mark.fault(36)
@pytest.mark.parametrize(
    ("value", "boards"),
    [
        ("0,1", [0, 1]),
        ("0,2,-1,1", [0, 2]),
        ("GPU-00000001", [1]),
        ("GPU-00000001-aaaa-bbbb-cccc-000000000001,GPU-00000000", [0, 1]),
        ("MIG-1111-2222", [0]),
        ("MIG-GPU-00000000-aaaa-bbbb-cccc-000000000000/1/0", [0]),
        ("", []),
        ("1,1", []),
        ("0,GPU-00000001", [0]),
    ],
)
def test_36_names_and_numbers_are_cudas(
    gpus: Gpus, found: Find, monkeypatch: pytest.MonkeyPatch, value: str, boards: list[int]
) -> None:
    fake = gpus(FakeBoard(migs=[("MIG-1111-2222", 1, 0)]), FakeBoard(), FakeBoard())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    meters = [m for m in found(fake).meters if m.name == "nvml"]
    assert [d.index for m in meters for d in m.devices] == boards
    if value != "0,1":
        try:
            assert naive.int_indices(value) != boards
        except ValueError as crash:
            assert "invalid literal for int()" in str(crash)


def test_36_no_form_of_the_variable_crashes(gpus: Gpus, found: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = gpus(FakeBoard(migs=[("MIG-1111-2222", 1, 0)]), FakeBoard())
    draw = random.Random(1)
    pieces = [
        "0",
        "1",
        "-1",
        "",
        "GPU-",
        fake.boards[1].uuid,
        "MIG-1111",
        "MIG-GPU-x/1/0",
        "x",
        "99",
        " ",
        "\x1b[31m",
        "é",
    ]
    for _ in range(60):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(draw.choices(pieces, k=draw.randint(1, 4))))
        discovery = found(fake)
        assert discovery.sensors[0].stream == "nvml" and discovery.sensors[0].text
        discovery.close()


@pytest.mark.fault(37)
def test_37_a_full_uuid_counts_that_board_alone(gpus: Gpus, found: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = gpus(*(FakeBoard() for _ in range(4)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", fake.boards[1].uuid)
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    before = [fake.calls(i, "fields") for i in range(4)]
    assert [r.key for r in meter.poll()] == ["g1"]
    assert naive.boards_by_stripped_uuid(fake.boards[1].uuid, [b.uuid for b in fake.boards]) == []
    assert [fake.calls(i, "fields") - before[i] for i in range(4)] == [0, 1, 0, 0]


@pytest.mark.fault(40)
def test_40_a_meter_that_is_not_polled_makes_no_call(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(), FakeBoard())
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    meter.poll()
    before = fake.calls(0), fake.calls(1)
    meter.drain_events()
    _ = meter.devices
    time.sleep(0.1)
    assert (fake.calls(0), fake.calls(1)) == before
    with naive.always_polling(meter.poll):
        time.sleep(0.1)
    assert fake.calls(0) > before[0] and fake.calls(1) > before[1]


@pytest.mark.fault(41)
def test_41_power_far_above_the_limit_is_left_out_and_said(gpus: Gpus, found: Find) -> None:
    """A first sample of 5000 W on a 700 W board; 800 W is within what a board may draw for a moment."""
    fake = gpus(FakeBoard(limit_w=700, faults=[("spike", 0.0, 1001.0, 5000.0), ("spike", 1002.0, 1003.0, 800.0)]))
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    (reading,) = meter.poll()
    assert reading.power_w is None and reading.counter_j is not None
    assert naive.trapezoid([0.0, 0.1], [5000.0, 300.0]) > 3 * 30.0, "the first tenth of a second at 300 W"
    fake.clock.set(1002.5)
    assert meter.poll()[0].power_w == 800
    (event,) = meter.drain_events()
    assert event.what == "discarded" and "5000 W" in event.text and "700 W" in event.text


def test_zero_watts_are_missing_not_zero(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(faults=[("zero_power", 1001.0, NEVER, 0.0)]))
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    fake.clock.set(1001.5)
    for _ in range(5):
        (reading,) = meter.poll()
        assert (reading.power_w, reading.average_w) == (None, None)
        assert reading.counter_j is not None
    assert sorted(e.text.split()[0] for e in meter.drain_events()) == ["averaged", "instantaneous"]


def test_power_that_is_not_available_leaves_the_counter(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(faults=[("no_power", 1001.0, NEVER, 0.0)]))
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    fake.clock.set(1001.5)
    (reading,) = meter.poll()
    assert reading.power_w is None and reading.counter_j is not None
    assert {e.what for e in meter.drain_events()} == {"discarded"}


@pytest.mark.parametrize("counter_s", [0.1, 0.0])
def test_42_polling_faster_than_the_sensor_changes_nothing(
    gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counter_s: float
) -> None:
    """10 ms polls of sensors that renew their values every 100 ms give what 100 ms polls give, within 1 %."""
    energies = []
    for period in (0.1, 0.01):
        folder = tmp_path / f"{period}"
        folder.mkdir()
        trace = sim_traces.square(half_s=2.0)
        fake = gpus(FakeBoard(trace=trace, counter_s=counter_s, instant_s=0.1, instant_phase_s=0.03))
        monkeypatch.setattr(NvmlMeter, "period_s", period)
        recorder = Recorder(fake, folder, 1, seed=5)
        recorder.advance(2.0)
        start = recorder.edge("stage_started", stage="s0", kind="other")
        recorder.advance(start + 21.7 - recorder.clock())
        recorder.edge("stage_ended", stage="s0", status="completed", exit_code=0)
        energies.append(device(load_ledger(recorder.close()).totals()).energy_j)
        true = fake.joules(0, start, start + 21.7)
    assert energies[1] == pytest.approx(energies[0], rel=0.01)
    assert energies[1] == pytest.approx(true, rel=0.015)


@pytest.mark.fault(43)
def test_43_capability_comes_from_a_call(gpus: Gpus, found: Find) -> None:
    """An architecture that should have a counter and has none; one that should have none and has one."""
    fake = gpus(FakeBoard(counter_s=0, capability=90), FakeBoard(counter_s=0.1, capability=61))
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    assert [d.source for d in meter.devices] == ["integrated", "counter"]
    assert [naive.has_counter(b.capability) for b in fake.boards] == [True, False]


@pytest.mark.fault(74)
def test_74_equal_boards_add_up(record) -> None:
    """Four boards at 300 W for 10 s are 12 000 J, not the mean of 3000 J."""
    _, totals, _ = record(*(FakeBoard() for _ in range(4)), seconds=10.0)
    assert totals.stages[0].energy_j["gpu"] == pytest.approx(12000, rel=0.01)
    assert naive.mean_over_boards([d.energy_j for d in totals.stages[0].devices]) == pytest.approx(3000, rel=0.01)


def test_a_module_counter_is_other_energy(record) -> None:
    _, totals, _ = record(FakeBoard(name="NVIDIA GH200 480GB", module=True), seconds=4.0)
    energy = totals.stages[0].energy_j
    assert energy["other"] == pytest.approx(1200, rel=0.02)
    assert not energy["gpu"] and energy["total"] == pytest.approx(1200, rel=0.02)


def test_a_lost_board_is_a_gap_with_coverage_never_a_short_total_in_silence(record) -> None:
    """Lost from 1 s before the stage's end: the first 4 s count, coverage says 80 %, a warning names it."""
    lost = FakeBoard(faults=[("lost", 1006.3, NEVER, 0.0)])
    _, totals, _ = record(lost, FakeBoard(), seconds=5.0)
    gone, whole = device(totals, 0), device(totals, 1)
    assert gone.energy_j is not None and gone.energy_j <= 1500 * 1.01
    assert gone.coverage is not None
    missing = 1.0 - gone.coverage
    # what is not covered may be absent from the energy, but no more than that
    assert gone.energy_j >= 1500 * (1.0 - missing) * 0.97
    assert whole.energy_j == pytest.approx(1500, rel=0.01) and whole.coverage == pytest.approx(1.0)
    assert "sensor_lost" in codes(totals)


def test_a_board_lost_and_back_is_whole_by_its_counter(record) -> None:
    _, totals, _ = record(FakeBoard(faults=[("lost", 1004.0, 1006.0, 0.0)]), seconds=8.0)
    assert device(totals).energy_j == pytest.approx(2400, rel=0.02)
    assert "lost" in device(totals).flags
