"""Packages that show another one's counter, and packages that only look like it for a while."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from rapl_walk import Walk
from sim_powercap import FakeZone, PowercapTree

from kdwatch.meters import perf_energy, rapl, rapl_mirrors, rapl_open
from kdwatch.meters.perf_energy import open_counters
from kdwatch.meters.rapl_mirrors import UNKNOWN_SOCKETS, sockets
from kdwatch.meters.rapl_open import open_rapl


@pytest.fixture(autouse=True)
def no_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdwatch.meters.perf_energy.open_counters", lambda: [])


@pytest.fixture
def socket_count(monkeypatch: pytest.MonkeyPatch):
    """Set what the kernel's topology says."""

    def say(count: int | None) -> None:
        for module in (rapl, rapl_open):
            monkeypatch.setattr(module, "sockets", lambda: count)

    return say


def packages(folder: Path, count: int) -> tuple[PowercapTree, list[FakeZone]]:
    """Packages that begin equal."""
    tree = PowercapTree(folder)
    return tree, [tree.add(f"intel-rapl:{n}", f"package-{n}", start_uj=5_000_000) for n in range(count)]


def codes(walk: Walk) -> list[str]:
    return [w["code"] for w in walk.ledger.totals().warnings]


def total_j(walk: Walk) -> float | None:
    return walk.ledger.totals().total_j


def test_sockets_are_the_kernels(tmp_path: Path) -> None:
    for cpu, package in enumerate((0, 0, 1, 1)):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
    (tmp_path / "cpufreq").mkdir()
    assert sockets(tmp_path) == 2
    (tmp_path / "cpu3" / "topology" / "physical_package_id").write_text("\n")
    assert sockets(tmp_path) is None and sockets(tmp_path / "none") is None


def test_dies_of_one_socket_are_known_when_they_are_opened(
    tmp_path: Path, socket_count, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First-generation EPYC: four dies, one counter, which moves between two looks."""
    socket_count(1)
    tree, zones = packages(tmp_path, 4)

    def move(seconds: float) -> None:
        for zone in zones:
            zone.add_j(0.001)

    monkeypatch.setattr(rapl_open, "look_closely", partial(rapl_mirrors.look_closely, sleep=move))
    opened = open_rapl(tree.root)
    assert [c.device.key for c in opened.counters] == ["cpu0", "cpu1", "cpu2", "cpu3"]
    assert [c.device.details.get("mirror_of") for c in opened.counters] == [None, "cpu0", "cpu0", "cpu0"]
    assert opened.text.startswith("1 CPU package;") and "package-3 repeats package-0: counted once" in opened.text
    walk = Walk(tree)
    for _ in range(3):
        walk.step(z0=100, z1=100, z2=100, z3=100)
    assert total_j(walk) == pytest.approx(300, abs=0.2) and codes(walk) == []


def test_mirrors_that_stood_still_are_found_by_and_by_and_count_once_from_the_start(
    tmp_path: Path, socket_count
) -> None:
    socket_count(1)
    tree, _ = packages(tmp_path, 2)
    walk = Walk(tree)
    for _ in range(2):
        walk.step(z0=100, z1=100)
    assert total_j(walk) == pytest.approx(400, abs=0.2), "two moves prove nothing yet"
    walk.step(z0=100, z1=100)
    assert total_j(walk) == pytest.approx(300, abs=0.2)
    assert codes(walk) == ["mirror"]
    (stage,) = walk.ledger.totals().stages
    assert stage.energy_j["cpu"] == pytest.approx(300) and stage.energy_j["missing"] == ["dram"]
    assert [(d.key, d.counted, d.energy_j) for d in stage.devices] == [
        ("cpu0", True, pytest.approx(300)),
        ("cpu1", False, pytest.approx(300)),
    ]


def test_a_verdict_that_was_wrong_costs_no_energy(tmp_path: Path, socket_count) -> None:
    """Equal for 5 s, told a mirror, then apart: all that was read counts, from the start."""
    socket_count(1)
    tree, _ = packages(tmp_path, 2)
    walk = Walk(tree)
    for _ in range(5):
        walk.step(z0=100, z1=100)
    assert total_j(walk) == pytest.approx(500, abs=0.2)
    walk.step(z0=100, z1=130)
    assert total_j(walk) == pytest.approx(1230, abs=0.2)
    assert codes(walk) == ["mirror", "distinct"]
    for _ in range(20):
        walk.step(z0=100, z1=100)
    assert total_j(walk) == pytest.approx(1230 + 4000, abs=0.2)


def test_two_sockets_that_move_alike_are_two(tmp_path: Path, socket_count) -> None:
    """The topology says two sockets: equal values for however long are two packages, and a warning."""
    socket_count(2)
    tree, _ = packages(tmp_path, 2)
    walk = Walk(tree)
    for _ in range(9):
        walk.step(z0=80, z1=80)
    assert codes(walk) == []
    for _ in range(21):
        walk.step(z0=80, z1=80)
    assert walk.total() == {"cpu0": pytest.approx(2400), "cpu1": pytest.approx(2400)}
    assert total_j(walk) == pytest.approx(4800, abs=0.2)
    assert codes(walk) == ["mirror_suspected"]


def test_two_sockets_of_dies_are_two_counters(tmp_path: Path, socket_count) -> None:
    """Four packages, two sockets: dies 0 and 1 mirror one, dies 2 and 3 the other."""
    socket_count(2)
    tree, zones = packages(tmp_path, 4)
    for zone in zones[2:]:
        zone.add_j(1.0)
    walk = Walk(tree)
    for _ in range(5):
        walk.step(z0=100, z1=100, z2=60, z3=60)
    assert {d.key for d in walk.ledger.totals().devices if d.counted} == {"cpu0", "cpu2"}
    assert total_j(walk) == pytest.approx(800, abs=0.2)


def test_without_a_topology_it_takes_more_moves(tmp_path: Path, socket_count) -> None:
    socket_count(None)
    tree, _ = packages(tmp_path, 2)
    walk = Walk(tree)
    for _ in range(UNKNOWN_SOCKETS - 1):
        walk.step(z0=100, z1=100)
    assert codes(walk) == []
    walk.step(z0=100, z1=100)
    assert codes(walk) == ["mirror"] and total_j(walk) == pytest.approx(100 * UNKNOWN_SOCKETS, abs=0.2)


@pytest.mark.parametrize("count", [1, 2, None])
def test_sockets_that_merely_began_equal_are_two(tmp_path: Path, socket_count, count: int | None) -> None:
    socket_count(count)
    tree, _ = packages(tmp_path, 2)
    walk = Walk(tree)
    walk.step(z0=100, z1=90)
    walk.step(z0=10, z1=20)
    for _ in range(20):
        walk.step(z0=50, z1=50)
    assert total_j(walk) == pytest.approx(2220, abs=0.2) and codes(walk) == []


def test_a_wrap_or_a_failed_read_between_two_looks_decides_nothing(tmp_path: Path, socket_count) -> None:
    socket_count(1)
    tree, zones = packages(tmp_path, 2)
    for zone in zones:
        zone.set_uj(zone.range_uj - 250_000_000)
    walk = Walk(tree)
    walk.step(z0=100, z1=100)
    away = tmp_path / "away"
    zones[1].path.rename(away)
    walk.step(z0=100)
    away.rename(zones[1].path)
    zones[1].add_j(100)
    for _ in range(5):
        walk.step(z0=100, z1=100)
    assert total_j(walk) == pytest.approx(700, abs=0.2)
    assert [c for c in codes(walk) if c.startswith(("mirror", "distinct"))] == ["mirror"]


@pytest.mark.parametrize(("shares", "mirrored"), [((1.0, 1.0), True), ((1.0, 0.9), False)])
def test_perf_counters_of_one_socket_are_told_by_their_moves(
    tmp_path: Path, socket_count, monkeypatch: pytest.MonkeyPatch, shares: tuple[float, float], mirrored: bool
) -> None:
    """Each event begins at its own 0 and they are opened 20 ms apart, in which the socket uses 4 J."""
    socket_count(1)
    events = [perf_energy.Event("energy-pkg", n, n, 2, 2**-32) for n in range(2)]
    used, zeros = [0.0], list[float]()

    def open_event(event: perf_energy.Event, kind: int) -> int:
        zeros.append(used[0] * shares[event.package])
        used[0] += 4.0
        return event.package

    def read(fd: int, size: int) -> bytes:
        return struct.pack("<Q", round((used[0] * shares[fd] - zeros[fd]) * 2**32))

    (tmp_path / "type").write_text("9\n")
    monkeypatch.setattr(perf_energy, "events", lambda pmu: events)
    monkeypatch.setattr(perf_energy, "open_event", open_event)
    monkeypatch.setattr(perf_energy, "os", SimpleNamespace(read=read, close=lambda fd: None))
    counters = open_counters(tmp_path)
    assert [c.read_j() for c in counters] == [0.0, 0.0]
    meter, found = rapl.RaplMeter(counters), []
    for _ in range(5):
        meter.poll()
        found += [(e.key, e.what) for e in meter.drain_events()]
        used[0] += 100.0
    assert found == ([("cpu1", "mirror")] if mirrored else [])
    assert meter.poll()[0].counter_j == 500.0


@pytest.mark.parametrize(
    ("before", "between", "after", "same"),
    [
        (5.0, 5.0, 5.0, True),
        (5.0, 6.0, 7.0, True),
        (5.0, 4.5, 5.0, True),
        (5.0, 7.5, 7.0, True),
        (5.0, 3.9, 7.0, False),
        (5.0, 8.1, 7.0, False),
        (9.0, 9.5, 1.0, None),
        (9.0, 0.5, 1.0, None),
        (None, 5.0, 5.0, None),
        (5.0, None, 5.0, None),
        (5.0, 5.0, None, None),
    ],
)
def test_a_value_between_two_readings_may_be_the_same_counters(before, between, after, same) -> None:
    assert rapl_mirrors.agree(before, between, lambda: after) is same
