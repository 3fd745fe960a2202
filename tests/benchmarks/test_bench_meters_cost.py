"""What recording costs, beside nvitop and CodeCarbon, on the same simulated boards.

    pytest tests/benchmarks/test_bench_meters_cost.py -m benchmark -s

`kdwatch exec -- sleep` in its default configuration (NVML at 10 Hz on 8 boards, RAPL at 1 Hz, to disk), CPU time of
all its processes and threads over 60 s between the two edges, median of five runs; the bursts at the edges are told
apart. Beside it stands the memory at the end of those 60 s; that ours stays flat over 10 000 polls is tested in
tests/meters/test_meters_memory.py. `KDWATCH_BENCH_SECONDS` and `KDWATCH_BENCH_RUNS` shorten it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sim_nvml
import sim_traces
from sim_nvml import FakeBoard, FakeNvml
from sim_powercap import two_sockets

from kdwatch.meters.processes import process

pytestmark = pytest.mark.benchmark

SECONDS = float(os.environ.get("KDWATCH_BENCH_SECONDS", "60"))
RUNS = int(os.environ.get("KDWATCH_BENCH_RUNS", "5"))
LIMIT = 0.17
"""Of what nvitop's collector takes at the same rate: 0.5 % of a core where that takes 2.95 % (docs/sensors.md). Other
tenants of a host make both dearer, by half and more."""

NVITOP = """
import sys, time
from nvitop import Device, ResourceMetricCollector
collector = ResourceMetricCollector(Device.all(), root_pids=set(), interval=float(sys.argv[1]))
daemon = collector.daemonize(on_collect=lambda metrics: True, interval=float(sys.argv[1]))
time.sleep(float(sys.argv[2]) + 60)
"""

CODECARBON = """
import logging, sys, time
logging.disable(logging.CRITICAL)
from codecarbon import OfflineEmissionsTracker
tracker = OfflineEmissionsTracker(
    country_iso_code="FRA", measure_power_secs=float(sys.argv[1]), save_to_file=False, log_level="critical"
)
tracker.start()
time.sleep(float(sys.argv[2]) + 60)
"""


def family(mark: str) -> set[int]:
    """Processes whose environment holds a string."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
            except OSError:
                continue
    return found


def cpu_s(pids: set[int]) -> float:
    """CPU seconds of some processes so far, threads that ended included, in steps of the kernel's 10 ms."""
    return sum(p.own_s + p.waited_s for p in map(process, pids) if p is not None)


def resident_b(pids: set[int]) -> int:
    """Resident memory of some processes, bytes; pages that they share count for each."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


class Subject:
    """A measured command on simulated hardware, with all processes it starts."""

    def __init__(self, folder: Path, fake: FakeNvml, *command: str) -> None:
        folder.mkdir()
        self._home = folder
        self.memory_b = 0
        """Resident memory of all its processes, as last seen."""
        tree = two_sockets(folder / "powercap")
        smi = folder / "nvidia-smi"  # CodeCarbon looks for GPUs only where this command exists
        smi.write_text("#!/bin/sh\nexit 0\n")
        smi.chmod(0o755)
        environment = {
            **os.environ,
            **fake.environment,
            "KDWATCH_POWERCAP_ROOT": str(tree.root),
            "KDWATCH_HOME": str(folder),
            "HOME": str(folder),
            "PATH": f"{folder}:{os.environ['PATH']}",
        }
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([sys.executable, *command], env=environment, stdout=quiet, stderr=quiet)

    def share(self, seconds: float, settle_s: float) -> float:
        """Share of a core that all its processes use, once started."""
        time.sleep(settle_s)
        pids = family(str(self._home))
        before, began = cpu_s(pids), time.monotonic()
        time.sleep(seconds)
        used, length = cpu_s(pids) - before, time.monotonic() - began
        assert self.process.poll() is None
        self.memory_b = resident_b(pids)
        return used / length

    def close(self) -> None:
        """End what was started."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def settled(share: float, memory_b: float) -> str:
    return f"{share:8.3%} of a core {memory_b / 1e6:6.0f} MB"


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    boards = [FakeBoard(trace=sim_traces.training(i), noise_w=0.5) for i in range(8)]
    return FakeNvml(sim_nvml.build(tmp_path), tmp_path, boards, virtual=False)


def test_recording_costs_half_a_percent_of_a_core(
    fake: FakeNvml, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares, memory = [], []
    for run in range(RUNS):
        subject = Subject(tmp_path / f"run{run}", fake, "-m", "kdwatch", "exec", "--", "sleep", str(SECONDS + 30))
        calls = fake.calls(0, "fields")
        shares.append(subject.share(SECONDS, settle_s=6.0))
        memory.append(subject.memory_b)
        rate = (fake.calls(0, "fields") - calls) / (SECONDS + 6.0)
        subject.close()
        assert rate > 9.0, "it sampled all the time"
    ours = settled(statistics.median(shares), statistics.median(memory))
    lines = [f"{'kdwatch, 10 Hz x 8 boards, RAPL 1 Hz, to disk':<47} {ours}  (medians of {RUNS})"]
    others = [
        ("CodeCarbon, every 1 s", CODECARBON, "1"),
        ("CodeCarbon, every 15 s (default)", CODECARBON, "15"),
        ("nvitop collector, every 1 s", NVITOP, "1"),
        ("nvitop collector, every 0.1 s", NVITOP, "0.1"),
    ]
    for number, (name, code, period) in enumerate(others):
        subject = Subject(tmp_path / f"other{number}", fake, "-c", code, period, str(SECONDS))
        time.sleep(8.0)
        calls = fake.calls(0)
        share = subject.share(SECONDS, settle_s=4.0)
        lines.append(f"{name:<47} {settled(share, subject.memory_b)}")
        assert fake.calls(0) > calls, f"{name} reads the boards"
        subject.close()
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert statistics.median(shares) <= LIMIT * share


def test_cost_of_an_edge(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A burst of 8 boards around a stage's edge: CPU time and wall time, medians of 30."""
    from kdwatch.meters.discover import Discovery, add_gpus

    fake.load(monkeypatch)
    found = Discovery()
    add_gpus(found)
    (meter,) = found.meters
    cpu, wall = [], []
    for _ in range(30):
        before, began = time.process_time(), time.monotonic()
        meter.edge()
        cpu.append(time.process_time() - before)
        wall.append(time.monotonic() - began)
    found.close()
    with capsys.disabled():
        used, took = statistics.median(cpu) * 1e3, statistics.median(wall) * 1e3
        print(f"\nedge of 8 boards: {used:.1f} ms of CPU in {took:.0f} ms")
    assert statistics.median(wall) < 1.0, "0.15 s, and a busy machine"
