"""The RAPL meter on simulated powercap trees."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapl_walk import Walk
from sim_powercap import AMD_RANGE_UJ, INTEL_RANGE_UJ, Driver, PowercapTree, two_sockets

from kdwatch.meters.base import Reading
from kdwatch.meters.rapl import RaplMeter
from kdwatch.meters.rapl_open import open_rapl


@pytest.fixture(autouse=True)
def no_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own perf events stay out of it."""
    monkeypatch.setattr("kdwatch.meters.perf_energy.open_counters", lambda: [])


def meter_of(tree: PowercapTree) -> RaplMeter:
    return RaplMeter(open_rapl(tree.root).counters)


def joules(readings: list[Reading] | tuple[Reading, ...]) -> dict[str, float | None]:
    return {r.key: r.counter_j for r in readings}


@pytest.mark.parametrize("layout", ["flat", "nested", "virtual"])
def test_packages_and_memory_are_chosen_by_name(tmp_path: Path, layout: str) -> None:
    opened = open_rapl(two_sockets(tmp_path, layout).root)
    devices = [c.device for c in opened.counters]
    assert [(d.key, d.id, d.kind, d.scope, d.source) for d in devices] == [
        ("cpu0", "rapl:package-0", "cpu", "package", "counter"),
        ("dram0", "rapl:package-0/dram", "dram", "dram", "counter"),
        ("cpu1", "rapl:package-1", "cpu", "package", "counter"),
        ("dram1", "rapl:package-1/dram", "dram", "dram", "counter"),
    ]
    assert [d.wrap_j for d in devices] == pytest.approx([262143.328850, 65712.999613] * 2)
    assert (opened.status, opened.text, opened.fix) == ("ok", "2 CPU packages, 2 memory zones", None)


def test_the_root_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDWATCH_POWERCAP_ROOT", str(two_sockets(tmp_path).root))
    assert len(open_rapl().counters) == 4


def test_a_psys_that_comes_first_is_still_psys(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "psys")
    tree.add("intel-rapl:1", "package-0")
    assert [c.device.id for c in open_rapl(tree.root).counters] == ["rapl:package-0"]


def test_readings_are_joules(tmp_path: Path) -> None:
    tree = two_sockets(tmp_path)
    meter = meter_of(tree)
    before = joules(meter.poll())
    tree.zones["intel-rapl:0"].add_j(12.5)
    after = joules(meter.poll())
    assert after["cpu0"] - before["cpu0"] == pytest.approx(12.5, abs=1e-6)
    assert after["cpu1"] == before["cpu1"]
    meter.close()


def test_one_failed_read_costs_one_reading(tmp_path: Path) -> None:
    tree = two_sockets(tmp_path)
    meter = meter_of(tree)
    meter.poll()
    tree.zones["intel-rapl:0"].path.rename(tmp_path / "away")
    assert joules(meter.poll())["cpu0"] is None
    assert joules(meter.poll())["cpu1"] is not None
    (tmp_path / "away").rename(tree.zones["intel-rapl:0"].path)
    tree.zones["intel-rapl:0"].add_j(400)
    assert joules(meter.poll())["cpu0"] == pytest.approx(401)
    assert [(e.key, e.what) for e in meter.drain_events()] == [
        ("cpu0", "lost"),
        ("dram0", "lost"),
        ("cpu0", "recovered"),
        ("dram0", "recovered"),
    ]


def test_several_wraps_in_a_stage_are_right_to_the_joule(tmp_path: Path) -> None:
    """A true 1 048 623 J is four wraps of the Intel range and 50 J: a reader of both ends alone says 50 J."""
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0")
    walk = Walk(tree)
    for _ in range(4661):
        walk.step(z0=1048623.0 / 4661)
    assert walk.total()["cpu0"] == pytest.approx(1048623.0, abs=1.0)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0.5, 900), st.floats(0.5, 900), st.floats(0.2, 30)), min_size=2, max_size=30),
    starts=st.tuples(st.integers(0, AMD_RANGE_UJ - 1), st.integers(0, INTEL_RANGE_UJ - 2)),
)
def test_zones_unwrap_by_their_own_range(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, float, float]], starts: tuple[int, int]
) -> None:
    """Law: whatever the powers, pauses and starting points, each zone's total is what went in, to the joule."""
    tree = PowercapTree(tmp_path_factory.mktemp("tree"))
    tree.add("intel-rapl:0", "package-0", AMD_RANGE_UJ, starts[0])
    tree.add("intel-rapl:1", "package-1", INTEL_RANGE_UJ, starts[1])
    walk = Walk(tree)
    true = [0.0, 0.0]
    for a, b, seconds in steps:
        walk.step(seconds, z0=a, z1=b)
        true = [true[0] + a * seconds, true[1] + b * seconds]
    total = walk.total()
    assert total["cpu0"] == pytest.approx(true[0], abs=1.0)
    assert total["cpu1"] == pytest.approx(true[1], abs=1.0)


def test_in_real_time_a_reading_is_what_the_zone_holds_at_that_moment(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path)
    zone = tree.add("intel-rapl:0", "package-0")
    meter = meter_of(tree)
    with Driver({zone: 200.0}):
        for _ in range(20):
            time.sleep(0.01)
            least = zone.value_uj
            (reading,) = meter.poll()
            time.sleep(0.01)
            assert reading.counter_j is not None
            assert least - 1e6 <= reading.counter_j * 1e6 <= zone.value_uj + 1e6
    assert zone.value_uj > 1_000_000


def test_reading_leaves_no_open_file_behind(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = open_files()
    meter = meter_of(two_sockets(tmp_path))
    for _ in range(20):
        meter.poll()
    assert open_files() == before
    meter.close()
    meter.close()


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path)
    zone = tree.add("intel-rapl:0", "package-0")
    meter = meter_of(tree)
    meter.poll()
    (tmp_path / "new").write_text("7000000\n")
    (tmp_path / "new").replace(zone.path / "energy_uj")
    assert joules(meter.poll())["cpu0"] == pytest.approx(7.0)


@pytest.mark.parametrize("content", ["", "n/a\n", "-5\n", "1.5\n", "\0\0", "9" * 30])
def test_a_file_without_a_number_is_a_gap(tmp_path: Path, content: str) -> None:
    tree = PowercapTree(tmp_path)
    zone = tree.add("intel-rapl:0", "package-0")
    meter = meter_of(tree)
    meter.poll()
    (zone.path / "energy_uj").write_text(content)
    assert joules(meter.poll())["cpu0"] is None
