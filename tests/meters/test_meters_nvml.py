"""The NVML meter on simulated boards. Energies are checked against the trace's exact integral."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pynvml
import pytest
import sim_traces
from hypothesis import given
from hypothesis import strategies as st
from sim_nvml import NEVER, FakeBoard, FakeNvml

from kdwatch.meters.base import Device, Reading
from kdwatch.meters.burst import BEYOND_S, TickWatch, thin
from kdwatch.meters.discover import Discovery
from kdwatch.meters.nvml import EDGE_S, NvmlMeter

Gpus = Callable[..., FakeNvml]
Find = Callable[..., Discovery]


def nvml(found: Discovery) -> NvmlMeter:
    (meter,) = (m for m in found.meters if isinstance(m, NvmlMeter))
    return meter


def only(readings: list[Reading] | tuple[Reading, ...]) -> Reading:
    (reading,) = readings
    return reading


def test_a_board_says_what_it_is(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(name="NVIDIA H100 80GB HBM3", limit_w=700))
    device: Device = nvml(found(fake)).devices[0]
    assert (device.key, device.id, device.name) == ("g0", fake.boards[0].uuid, "NVIDIA H100 80GB HBM3")
    assert (device.kind, device.scope, device.source) == ("gpu", "gpu", "counter")
    assert device.limit_w == 700 and device.average_window_s == 1.0 and device.wrap_j is None
    assert device.details["memory_b"] == 80 * 2**30 and device.details["driver"] == "580.65.06"


def test_units_are_joules_and_watts(gpus: Gpus, found: Find) -> None:
    """250 W for 4 s are 1000 J (a millijoule taken for a joule would be 1e6)."""
    fake = gpus(FakeBoard(trace=sim_traces.constant(250), base_j=0.0))
    meter = nvml(found(fake))
    first = only(meter.poll())
    fake.clock.sleep(4.0)
    second = only(meter.poll())
    assert second.counter_j - first.counter_j == pytest.approx(1000, abs=0.01)
    assert second.power_w == 250 and second.average_w == 250
    assert second.t - first.t == pytest.approx(4.0)


def test_instant_and_average_are_kept_apart(gpus: Gpus, found: Find) -> None:
    """100 W, then 600 W: half a second after the step the instantaneous field says 600 W, the 1 s mean 350 W."""
    step = sim_traces.Trace("step", ((10.0, 100.0, 100.0), (10.0, 600.0, 600.0)))
    fake = gpus(FakeBoard(trace=step))
    meter = nvml(found(fake))
    fake.clock.set(fake.origin + 10.5)
    reading = only(meter.poll())
    assert reading.power_w == 600
    assert reading.average_w == pytest.approx(350, abs=51)  # the mean is renewed every 0.1 s


@pytest.mark.parametrize(
    ("board", "source", "sources"),
    [
        (FakeBoard(), "counter", {"counter": "field", "instant": "field", "average": "field"}),
        # an old driver without field values, a board of which the legacy call gives a mean
        (FakeBoard(fields=False), "counter", {"counter": "call", "average": "legacy"}),
        # GA100: the legacy call is instantaneous
        (FakeBoard(fields=False, capability=80, legacy_is_instant=True), "counter", {"instant": "legacy"}),
        (FakeBoard(counter_s=0), "integrated", {"instant": "field", "average": "field"}),
        # Pascal: no counter, whatever the documentation said
        (
            FakeBoard(counter_s=0, fields=False, capability=61, legacy_is_instant=True),
            "integrated",
            {"instant": "legacy"},
        ),
        # a virtual GPU of a new architecture without a counter
        (FakeBoard(counter_s=0, instant_s=0, capability=90), "integrated", {"average": "field"}),
        (FakeBoard(instant_s=0, average_s=0), "counter", {"counter": "field"}),
    ],
)
def test_sources_are_found_by_asking(
    gpus: Gpus, found: Find, board: FakeBoard, source: str, sources: dict[str, str]
) -> None:
    device = nvml(found(gpus(board))).devices[0]
    assert device.source == source
    given = {k: device.details[k] for k in ("counter", "instant", "average") if k in device.details}
    assert given | sources == given


def test_a_board_that_gives_nothing_is_named_and_no_device(gpus: Gpus, found: Find) -> None:
    discovery = found(gpus(FakeBoard(counter_s=0, instant_s=0, average_s=0), FakeBoard()))
    assert [d.key for d in nvml(discovery).devices] == ["g1"]
    assert "GPU 0 (NVIDIA H100 80GB HBM3) gives neither energy nor power" in discovery.sensors[0].text


def test_a_module_counter_is_labelled_and_cpu_not_added(gpus: Gpus, found: Find) -> None:
    """GH200: counter and power cover the CPU too (scope module, kind other), so RAPL and models stay off."""
    discovery = found(gpus(FakeBoard(name="NVIDIA GH200 480GB", module=True)))
    device = nvml(discovery).devices[0]
    assert (device.kind, device.scope, device.source) == ("other", "module", "counter")
    assert only(nvml(discovery).poll()).power_w == 300
    assert [m.name for m in discovery.meters] == ["nvml"]
    assert "not measured again" in discovery.sensors[-1].text


def test_a_mig_board_is_reported_once_and_whole(gpus: Gpus, found: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    slices = [("MIG-11111111-2222", 1, 0), ("MIG-33333333-4444", 2, 0)]
    fake = gpus(FakeBoard(migs=slices), FakeBoard())
    assert [d.key for d in nvml(found(fake)).devices] == ["g0", "g1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-33333333-4444")
    discovery = found(fake)
    device = nvml(discovery).devices
    assert [(d.key, d.id, d.scope, d.details["mig"]) for d in device] == [("g0", fake.boards[0].uuid, "gpu", True)]
    assert "whole board" in discovery.sensors[0].text


def test_visible_devices_restrict_and_none_means_all(gpus: Gpus, found: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = gpus(*(FakeBoard() for _ in range(4)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [d.key for d in nvml(found(fake)).devices] == ["g0", "g2"]
    assert len(nvml(found(fake, select_gpus=None)).devices) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    discovery = found(fake)
    assert not [m for m in discovery.meters if m.name == "nvml"]
    assert "selects no GPU" in discovery.sensors[0].text


def test_slow_facts(gpus: Gpus, found: Find) -> None:
    assert nvml(found(gpus(FakeBoard()))).info()["g0"] == {
        "memory_b": 2**30,
        "utilization": 50,
        "clock_mhz": 1410,
        "temperature_c": 55,
        "limit_w": 700.0,
        "throttle": "power_cap",
    }


@pytest.mark.parametrize("period", [0.02, 0.1])
def test_an_edge_times_the_next_tick(gpus: Gpus, found: Find, period: float) -> None:
    """The burst ends a little after every counter has ticked; the tick lies between two readings a few ms apart."""
    phases = [0.3 * period, 0.9 * period]
    fake = gpus(*(FakeBoard(counter_s=period, counter_phase_s=p, instant_phase_s=0.001) for p in phases))
    meter = nvml(found(fake))
    fake.clock.sleep(0.456)
    began = fake.clock()
    readings = meter.edge()
    assert fake.clock() - began <= min(EDGE_S, period + BEYOND_S) + 0.005
    for key, phase in zip(("g0", "g1"), phases, strict=True):
        own = [r for r in readings if r.key == key]
        assert [r.t for r in own] == sorted(r.t for r in own)
        before, after = next((a, b) for a, b in pairwise(own) if b.counter_j != a.counter_j)
        assert after.t - before.t < 0.002
        ticks = (after.t - phase) / period
        assert int(ticks) * period + phase == pytest.approx(after.t, abs=0.002)


def test_a_tick_watch_wants_two_ticks_or_a_little_time_after_one() -> None:
    def watch(*readings: tuple[float, float | None]) -> bool:
        seen = TickWatch()
        for t, joules in readings:
            seen.see(Reading("g0", t, joules))
        return seen.enough

    assert not watch((0.0, 1.0), (0.001, 1.0))
    assert not watch((0.0, 1.0), (0.001, 2.0), (0.002, 2.0))
    assert watch((0.0, 1.0), (0.001, 2.0), (0.002, 3.0))
    assert watch((0.0, 1.0), (0.001, 2.0), (0.040, 2.0))
    assert not watch((0.0, None), (0.001, None), (0.5, None))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40))
def test_thinning_keeps_every_change_and_the_integral_of_steps(values: list[tuple[int, int]]) -> None:
    """Law: dropping readings amid equal ones changes neither the changes seen nor the power held over time."""
    readings = [Reading("g0", 0.001 * i, float(c), float(w)) for i, (c, w) in enumerate(values)]
    kept = thin(readings)

    def changes(some: list[Reading]) -> list[tuple[float, float]]:
        return [(a.t, b.t) for a, b in pairwise(some) if (a.counter_j, a.power_w) != (b.counter_j, b.power_w)]

    def held(some: list[Reading]) -> float:
        return sum((a.power_w or 0.0) * (b.t - a.t) for a, b in pairwise(some))

    assert changes(kept) == changes(readings)
    assert held(kept) == pytest.approx(held(readings))
    assert kept[0] == readings[0] and kept[-1] == readings[-1]


def test_an_edge_without_a_counter_is_one_poll(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(counter_s=0))
    meter = nvml(found(fake))
    before = fake.calls(0, "fields")
    assert len(meter.edge()) == 1
    assert fake.calls(0, "fields") == before + 1


def test_a_dead_counter_does_not_hold_up_an_edge(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(faults=[("frozen", 0.0, NEVER, 0.0)]))
    meter = nvml(found(fake))
    began = fake.clock()
    meter.edge()
    assert fake.clock() - began <= EDGE_S + 0.01


def test_one_lost_board_costs_no_other_a_sample(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(faults=[("lost", 1001.0, 1003.0, 0.0)]), FakeBoard(trace=sim_traces.constant(200)))
    meter = nvml(found(fake))
    for _ in range(50):
        fake.clock.sleep(0.1)
        by_key = {r.key: r for r in meter.poll()}
        assert by_key["g1"].power_w == 200 and by_key["g1"].counter_j is not None
        gone = 1001.0 <= by_key["g0"].t < 1003.0
        assert not gone or (by_key["g0"].counter_j is None and by_key["g0"].power_w is None)
    assert by_key["g0"].counter_j == pytest.approx(1e6 + 300 * 5.0, abs=31), "the counter went on meanwhile"
    events = [(e.key, e.what) for e in meter.drain_events()]
    assert events == [("g0", "lost"), ("g0", "recovered")]


def test_a_library_that_was_shut_down_is_started_again(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard())
    meter = nvml(found(fake))
    meter.poll()
    pynvml.nvmlShutdown()
    assert only(meter.poll()).counter_j is None
    fake.clock.sleep(2.0)
    assert only(meter.poll()).counter_j is not None
    assert [e.what for e in meter.drain_events()] == ["lost", "recovered"]


def test_a_lost_board_is_not_asked_at_every_poll(gpus: Gpus, found: Find) -> None:
    fake = gpus(FakeBoard(faults=[("lost", 1001.0, NEVER, 0.0)]))
    meter = nvml(found(fake))
    fake.clock.set(1001.0)
    before = fake.calls(0)
    for _ in range(50):
        meter.poll()
        fake.clock.sleep(0.1)
    assert fake.calls(0) - before <= 7, "about once a second"


@pytest.mark.parametrize("code", [15, 999, 1, 3])
def test_errors_in_mid_run_are_a_gap_never_an_exception(gpus: Gpus, found: Find, code: int) -> None:
    """GPU lost, unknown, uninitialised, not supported."""
    fake = gpus(FakeBoard(faults=[("error", 1001.0, 1002.0, code)]))
    meter = nvml(found(fake))
    fake.clock.set(1001.5)
    reading = only(meter.poll())
    assert (reading.counter_j, reading.power_w, reading.average_w) == (None, None, None)
    fake.clock.set(1004.0)
    assert only(meter.poll()).counter_j is not None
    assert [e.what for e in meter.drain_events()] == ["lost", "recovered"]


def test_a_slow_board_stalls_no_other(gpus: Gpus, found: Find) -> None:
    """A call that takes 1.5 s: the other board keeps its ten samples a second; the late reading is a counter alone,
    at the end of the call, for nobody knows when its power was taken."""
    slow_from = time.monotonic() + 0.6
    fake = gpus(FakeBoard(faults=[("slow", slow_from, slow_from + 0.5, 1.5)]), FakeBoard(), virtual=False)
    meter = nvml(found(fake))
    times: dict[str, list[float]] = {"g0": [], "g1": []}
    late: list[Reading] = []
    end = slow_from + 2.5
    while time.monotonic() < end:
        began = time.monotonic()
        for reading in meter.poll():
            times[reading.key].append(reading.t)
            if reading.key == "g0" and reading.power_w is None:
                late.append(reading)
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))
    gaps = [b - a for a, b in pairwise(times["g1"])]
    assert max(gaps) < 0.75, "less than the one call"
    assert late and late[0].counter_j is not None and late[0].t >= slow_from + 1.4
    assert [e.what for e in meter.drain_events()] == ["discarded"]


def test_foreign_processes_are_flagged_once_and_own_ones_never(gpus: Gpus, found: Find) -> None:
    own = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stranger = os.getppid()
    try:
        processes = [(own.pid, 0.0, NEVER), (stranger, 1010.0, 1020.0), (2**22 + 12345, 0.0, NEVER)]
        fake = gpus(FakeBoard(processes=processes))
        meter = nvml(found(fake))
        meter.own_pids = {os.getpid()}
        meter.info()
        assert meter.drain_events() == []
        assert meter.foreign_pids() == set()
        fake.clock.set(1015.0)
        meter.info()
        meter.info()
        (event,) = meter.drain_events()
        assert (event.key, event.what) == ("g0", "contended") and str(stranger) in event.text
        assert meter.foreign_pids() == {stranger}
        fake.clock.set(1025.0)
        assert meter.foreign_pids() == set()
    finally:
        own.communicate(b"\n")


def test_a_silent_board_keeps_its_number(nvml_library: Path, tmp_path: Path) -> None:
    """Board 1 hangs at start: CUDA_VISIBLE_DEVICES=2 still means the third board."""
    boards = [FakeBoard(), FakeBoard(faults=[("slow", 0.0, NEVER, 30.0)]), FakeBoard()]
    fake = FakeNvml(nvml_library, tmp_path, boards, virtual=False)
    code = (
        "from kdwatch.meters.nvml_boards import find; import time, os; "
        "look = lambda value: find(value, 'PCI_BUS_ID', time.monotonic, 1.5); "
        "found = look('2'); print([s.device.id for s in found.sensors], found.notes); "
        "found = look('1'); print([s.device.id for s in found.sensors], found.notes, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **fake.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"['{boards[2].uuid}'] []",
        "['unknown-1'] ['GPU 1 gives no answer yet: it is read from when it does']",
    ]


def test_a_board_that_is_slow_from_the_start_delays_no_other_and_joins(nvml_library: Path, tmp_path: Path) -> None:
    """Calls of board 1 take 1.5 s for the first 3.5 s. The others are read after the 2 s of waiting, and
    board 1 from when it has said what it gives."""
    slow_until = time.monotonic() + 3.5
    boards = [FakeBoard(), FakeBoard(faults=[("slow", 0.0, slow_until, 1.5)]), FakeBoard()]
    fake = FakeNvml(nvml_library, tmp_path, boards, virtual=False)
    code = """if True:
        import json, os, time
        from kdwatch.meters.discover import Discovery, add_gpus
        began, found = time.monotonic(), Discovery()
        add_gpus(found)
        took, (meter,) = time.monotonic() - began, found.meters
        first = {r.key: r.counter_j for r in meter.poll()}
        names = [d.id for d in meter.devices]
        times, joined, end = [], None, time.monotonic() + 20
        while joined is None and time.monotonic() < end:
            for r in meter.poll():
                if r.key == "g0": times.append(r.t)
                if r.key == "g1" and r.counter_j is not None: joined = r.counter_j
            time.sleep(0.05)
        gaps = [b - a for a, b in zip(times, times[1:])]
        events = [(e.key, e.what) for e in meter.drain_events()]
        ids = [d.id for d in meter.devices]
        print(json.dumps([took, found.sensors[0].text, first, names, max(gaps), events, ids]), flush=True)
        os._exit(0)
        """
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **fake.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    took, text, first, names, gap, events, ids = json.loads(done.stdout)
    assert 2.0 <= took < 4.0
    assert text.startswith("2 of 3 GPUs, 2 with an energy counter; GPU 1 gives no answer yet")
    assert first["g0"] is not None and first["g2"] is not None and first["g1"] is None
    assert names == [boards[0].uuid, "unknown-1", boards[2].uuid] and ids == [b.uuid for b in boards]
    assert gap < 1.0, "less than one slow call"
    assert events == [["g1", "lost"], ["g1", "recovered"]]


def test_a_name_that_only_the_silent_board_can_have_is_waited_for(nvml_library: Path, tmp_path: Path) -> None:
    """Board 1 answers after some 3 s; asked for by its UUID, its place is not known before."""
    slow_until = time.monotonic() + 2.0
    boards = [FakeBoard(), FakeBoard(faults=[("slow", 0.0, slow_until, 1.5)])]
    fake = FakeNvml(nvml_library, tmp_path, boards, virtual=False)
    boards[1].lines(1, 0.0)
    code = (
        "from kdwatch.meters.nvml_boards import find; import sys, time, os; "
        "found = find(sys.argv[1], None, time.monotonic, patience_s=0.2); "
        "print([s.device.id for s in found.sensors], found.notes, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, boards[1].uuid],
        env={**os.environ, **fake.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == f"['{boards[1].uuid}'] []"


def test_a_child_process_finds_the_same_boards_and_closing_ends_all_threads(nvml_library: Path, tmp_path: Path) -> None:
    fake = FakeNvml(nvml_library, tmp_path, [FakeBoard(), FakeBoard()], virtual=False)
    code = (
        "import threading, time; before = threading.active_count(); "
        "from kdwatch.meters import discover; assert threading.active_count() == before; "
        "found = discover.Discovery(); discover.add_gpus(found); meter = found.meters[0]; "
        "print(len(meter.poll()), len(meter.devices)); found.close(); time.sleep(0.3); "
        "print(threading.active_count() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **fake.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["2", "2", "0"]
