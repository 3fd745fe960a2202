"""Faults that others had with RAPL, by their number in the list that the issue names: the naive way fails each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

import naive
import pytest
from sim_powercap import PowercapTree, two_sockets

from kdwatch.ledger.core import Ledger
from kdwatch.meters import perf_energy
from kdwatch.meters.base import Device
from kdwatch.meters.discover import discover
from kdwatch.meters.models import PowerModel
from kdwatch.meters.rapl import RaplMeter
from kdwatch.meters.rapl_open import open_rapl

MODEL = PowerModel("3.3.2", "Test CPU", 100.0, True, 1, 8, 20.0)


@pytest.fixture(autouse=True)
def no_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_energy, "open_counters", lambda: [])


def stage_energy(root: Path, use: dict, zones: dict) -> dict[str, float | None]:
    """Energy by kind of a stage of 1 s in which each zone used so many joules."""
    opened = open_rapl(root)
    now = [0.0]
    meter = RaplMeter(opened.counters, clock=lambda: now[0])
    devices = [asdict(c.device) | {"stream": "rapl", "period_s": 1.0} for c in opened.counters]
    clock = {"monotonic_origin": 0.0, "wall_origin": 0.0, "boottime_origin": 0.0}
    ledger = Ledger({"devices": devices, "stages": [{"name": "s", "kind": "other"}], "clock": clock})

    def poll() -> None:
        for r in meter.poll():
            ledger.sample(r.t, r.key, r.counter_j, r.power_w, r.average_w)

    poll()
    ledger.event({"type": "stage_started", "t": 0.0, "stage": "s", "kind": "other"})
    for zone, joules in use.items():
        zones[zone].add_j(joules)
    now[0] = 1.0
    poll()
    ledger.event({"type": "stage_ended", "t": 1.0, "stage": "s", "status": "completed"})
    (stage,) = ledger.totals(1.0).stages
    return stage.energy_j


@pytest.mark.fault(13)
def test_13_psys_is_never_added(tmp_path: Path) -> None:
    """psys is a top-level zone beside the package: 100 J of package and 150 J of psys are 100 J."""
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0")
    tree.add("intel-rapl:1", "psys")
    before = naive.every_zone(tree.root)
    energy = stage_energy(tree.root, {"intel-rapl:0": 100, "intel-rapl:1": 150}, tree.zones)
    assert energy["cpu"] == pytest.approx(100) and energy["total"] == pytest.approx(100)
    assert naive.grown(before, naive.every_zone(tree.root)) == pytest.approx(250)


@pytest.mark.fault(14)
@pytest.mark.parametrize("closed", ["intel-rapl-mmio:0", "intel-rapl:0"])
def test_14_msr_and_mmio_are_one_package_and_one_closed_provider_kills_nothing(tmp_path: Path, closed: str) -> None:
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0")
    tree.add("intel-rapl-mmio:0", "package-0")
    tree.zones[closed].close()
    opened = open_rapl(tree.root)
    assert [c.device.id for c in opened.counters] == ["rapl:package-0"]
    other = ({"intel-rapl:0", "intel-rapl-mmio:0"} - {closed}).pop()
    energy = stage_energy(tree.root, {other: 50}, tree.zones)
    assert energy["cpu"] == pytest.approx(50)
    with pytest.raises(OSError):
        naive.every_zone(tree.root)


@pytest.mark.fault(14)
def test_14_both_readable_are_one_package(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0")
    tree.add("intel-rapl-mmio:0", "package-0")
    (counter,) = open_rapl(tree.root).counters
    assert counter.device.details["control"] == "intel-rapl"
    before = naive.every_zone(tree.root)
    energy = stage_energy(tree.root, dict.fromkeys(tree.zones, 50), tree.zones)
    assert energy["cpu"] == pytest.approx(50)
    assert naive.grown(before, naive.every_zone(tree.root)) == pytest.approx(100)


@pytest.mark.fault(15, 17)
def test_15_17_memory_is_a_component_of_its_own_and_added(tmp_path: Path) -> None:
    """dram is a child directory of the package, but no part of its value: 100 J + 20 J = 120 J."""
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0")
    tree.add("intel-rapl:0:0", "dram")
    before = naive.top_level_zones(tree.root)
    energy = stage_energy(tree.root, {"intel-rapl:0": 100, "intel-rapl:0:0": 20}, tree.zones)
    assert (energy["cpu"], energy["dram"], energy["total"]) == pytest.approx((100, 20, 120))
    assert naive.grown(before, naive.top_level_zones(tree.root)) == pytest.approx(100)


def test_16_measured_memory_is_not_modelled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdwatch.meters.discover.power_model", lambda: MODEL)
    found = discover(powercap_root=two_sockets(tmp_path).root)
    assert {d.kind for m in found.meters for d in m.devices} == {"cpu", "dram"}
    found.close()


@pytest.mark.fault(18)
def test_18_core_and_uncore_are_never_added(tmp_path: Path) -> None:
    tree = two_sockets(tmp_path)
    use = {"intel-rapl:0": 100, "intel-rapl:0:0": 70, "intel-rapl:0:1": 20, "intel-rapl:2": 130}
    before = naive.every_zone(tree.root)
    assert stage_energy(tree.root, use, tree.zones)["total"] == pytest.approx(100)
    assert naive.grown(before, naive.every_zone(tree.root)) == pytest.approx(320)


@pytest.mark.fault(20)
def test_20_no_permission_leaves_a_run_with_estimates_and_names_file_and_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdwatch.meters.discover.power_model", lambda: MODEL)
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0").close()
    found = discover(powercap_root=tree.root)
    rapl = next(s for s in found.sensors if s.stream == "rapl")
    assert rapl.status == "unavailable" and "intel-rapl:0/energy_uj" in rapl.text
    assert rapl.fix is not None and "udev" in rapl.fix and "intel-rapl:0/energy_uj" in rapl.fix
    (meter,) = found.meters
    assert {d.source for d in meter.devices} == {"estimated"}
    assert "estimated, not measured" in found.sensors[-1].text
    with pytest.raises(OSError):
        naive.every_zone(tree.root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try real permissions")
def test_20_with_real_permissions_as_another_user() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tree = PowercapTree(Path(folder))
        (tree.add("intel-rapl:0", "package-0").path / "energy_uj").chmod(0)
        done = run_as_nobody(tree.root)
    if "PermissionError" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip("another user cannot read this checkout or its virtual environment")
    assert "no permission to read" in done.stdout and "counters=[]" in done.stdout, done.stderr


def run_as_nobody(root: Path) -> subprocess.CompletedProcess[str]:
    """`open_rapl` of a tree by a process without privileges."""
    code = (
        "import os, sys; sys.path[:0] = [sys.argv[2]]; "
        "from pathlib import Path; from kdwatch.meters.rapl_open import open_rapl; "
        "from kdwatch.meters import perf_energy; perf_energy.open_counters = lambda: []; "
        "os.setgid(65534); os.setuid(65534); print(open_rapl(Path(sys.argv[1])))"
    )
    here = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", code, str(root), here], capture_output=True, text=True, check=False, cwd="/"
    )


@pytest.mark.fault(21)
def test_21_every_layout_is_found(tmp_path: Path) -> None:
    ours, theirs = [], []
    for layout in ("flat", "nested", "virtual"):
        tree = two_sockets(tmp_path / layout, layout)
        root = tree.root / "intel-rapl" if layout == "nested" else tree.root
        ours.append(len(open_rapl(root).counters))
        theirs.append(len(naive.zones_by_class_path(root)))
    assert ours == [4, 4, 4]
    assert 0 in theirs


@pytest.mark.fault(22)
def test_22_broken_links_are_unavailable_not_zero(tmp_path: Path) -> None:
    tree = two_sockets(tmp_path)
    tree.break_links()
    opened = open_rapl(tree.root)
    assert opened.counters == [] and opened.status == "unavailable"
    assert set(naive.zero_where_unreadable(tree.root).values()) == {0.0}
    assert "leads nowhere" in opened.text and "/sys/devices/virtual/powercap" in str(opened.fix)


@pytest.mark.fault(23)
@pytest.mark.parametrize("exists", [True, False])
def test_23_a_virtual_machine_has_no_measured_cpu_at_all(tmp_path: Path, exists: bool, monkeypatch) -> None:
    monkeypatch.setattr("kdwatch.meters.discover.power_model", lambda: MODEL)
    root = tmp_path / "powercap"
    if exists:
        root.mkdir()
    found = discover(powercap_root=root)
    assert not [m for m in found.meters if m.name == "rapl"]
    assert all(d.source == "estimated" for m in found.meters for d in m.devices)
    assert "virtual machine" in next(s.text for s in found.sensors if s.stream == "rapl")
    assert naive.grown(naive.every_zone(root), naive.every_zone(root)) == 0.0, "a number, as if measured"


def test_one_closed_package_of_two_is_missing_never_a_short_sum_in_silence(tmp_path: Path) -> None:
    """Package 0 is read, package 1 is not: the sum names the CPU as incomplete, and keys stay those of the packages."""
    tree = two_sockets(tmp_path)
    tree.zones["intel-rapl:0"].close()
    opened = open_rapl(tree.root)
    assert [c.device.key for c in opened.counters] == ["dram0", "cpu1", "dram1", "cpu0"]
    assert opened.status == "warn" and "1 CPU package, 2 memory zones" in opened.text
    energy = stage_energy(tree.root, {"intel-rapl:1": 40, "intel-rapl:1:2": 5, "intel-rapl:0:2": 5}, tree.zones)
    assert energy["cpu"] == pytest.approx(40) and energy["missing"] == ["cpu"]


def test_a_root_that_does_not_exist_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDWATCH_POWERCAP_ROOT", "/no/such/tree")
    opened = open_rapl()
    assert opened.text == "KDWATCH_POWERCAP_ROOT: /no/such/tree does not exist" and "unset" in str(opened.fix)


@pytest.mark.fault(25)
def test_25_a_counter_that_starts_high_is_no_energy(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0", start_uj=200_000_000_000)
    energy = stage_energy(tree.root, {"intel-rapl:0": 30}, tree.zones)
    assert energy["cpu"] == pytest.approx(30)
    assert naive.first_power(200_000.0, 1.0) * 1.0 > 1000 * energy["cpu"]


@pytest.mark.fault(26)
def test_26_no_helper_process_or_thread_lives_on(tmp_path: Path) -> None:
    def children() -> set[str]:
        me = str(os.getpid())
        stats = (p / "stat" for p in Path("/proc").iterdir() if p.name.isdigit())
        found = set()
        for stat in stats:
            try:
                text = stat.read_text()
            except OSError:
                continue
            if text[text.rfind(")") + 2 :].split()[1] == me:
                found.add(stat.parent.name)
        return found

    before = children(), threading.active_count()
    tree = two_sockets(tmp_path)
    meter = RaplMeter(open_rapl(tree.root).counters)
    meter.poll()
    assert (children(), threading.active_count()) == before
    meter.close()
    with naive.helper_for_each_file(tree.root.glob("intel-rapl:*/energy_uj")) as helpers:
        assert len(children() - before[0]) == len(helpers) > 0


def test_max_range_that_cannot_be_read_is_said_and_never_subtracted(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0").close("max_energy_range_uj")
    opened = open_rapl(tree.root)
    assert opened.counters[0].device.wrap_j is None
    assert opened.status == "warn" and "max_energy_range_uj" in opened.text


def test_perf_events_serve_where_powercap_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter:
        def __init__(self) -> None:
            self.device = perf_energy.device_of(perf_energy.Event("energy-pkg", 0, 0, 2, 2**-32))

        def read_j(self) -> float:
            return 7.0

        def close(self) -> None:
            pass

    monkeypatch.setattr(perf_energy, "open_counters", lambda: [Counter()])
    tree = PowercapTree(tmp_path)
    tree.add("intel-rapl:0", "package-0").close()
    opened = open_rapl(tree.root)
    device: Device = opened.counters[0].device
    assert (device.key, device.kind, device.scope, device.source) == ("cpu0", "cpu", "package", "counter")
    assert device.details["interface"] == "perf_event" and "perf_event" in opened.text
    assert RaplMeter(opened.counters).poll()[0].counter_j == 7.0


def test_perf_files_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    """Two sockets; scale 2^-32 J a count; energy-psys and energy-cores are passed over."""
    (tmp_path / "events").mkdir()
    (tmp_path / "type").write_text("9\n")
    (tmp_path / "cpumask").write_text("0,32\n")
    for name, config in (
        ("energy-pkg", "0x02"),
        ("energy-ram", "0x03"),
        ("energy-psys", "0x05"),
        ("energy-cores", "0x01"),
    ):
        (tmp_path / "events" / name).write_text(f"event={config}\n")
        (tmp_path / "events" / f"{name}.scale").write_text("2.3283064365386962890625e-10\n")
    found = perf_energy.events(tmp_path)
    assert [(e.name, e.package, e.cpu, e.config) for e in found] == [
        ("energy-pkg", 0, 0, 2),
        ("energy-pkg", 1, 32, 2),
        ("energy-ram", 0, 0, 3),
        ("energy-ram", 1, 32, 3),
    ]
    assert found[0].scale == 2**-32
    assert perf_energy.cpus_of("0-3,8") == [0, 1, 2, 3, 8]
    assert perf_energy.cpus_of("") == []
