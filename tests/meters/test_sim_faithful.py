"""The simulated library is faithful: tools that know nothing of it run on it unmodified and read the right values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pynvml
import pytest
import sim_traces
from sim_nvml import NEVER, FakeBoard, FakeNvml

needs_nvitop = pytest.mark.skipif(find_spec("nvitop") is None, reason="nvitop is not installed (extra: test)")
needs_zeus = pytest.mark.skipif(find_spec("zeus") is None, reason="zeus is not installed (extra: test)")


def run(fake: FakeNvml, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **fake.environment, "HOME": str(fake.script.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def fake(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    boards = [
        FakeBoard(trace=sim_traces.constant(300), counter_s=0.02),
        FakeBoard(name="NVIDIA A100-SXM4-80GB", trace=sim_traces.constant(90), counter_s=0.02, capability=80),
    ]
    return FakeNvml(nvml_library, tmp_path, boards, virtual=False)


@needs_nvitop
def test_nvitop_lists_the_boards(fake: FakeNvml) -> None:
    code = (
        "import json; from nvitop import Device; "
        "print(json.dumps([[d.name(), d.uuid(), d.power_usage(), d.power_limit(), d.temperature(), "
        "d.memory_total(), d.gpu_utilization()] for d in Device.all()]))"
    )
    rows = json.loads(run(fake, "-c", code))
    assert rows == [
        ["NVIDIA H100 80GB HBM3", fake.boards[0].uuid, 300000, 700000, 55, 80 * 2**30, 50],
        ["NVIDIA A100-SXM4-80GB", fake.boards[1].uuid, 90000, 700000, 55, 80 * 2**30, 50],
    ]


@needs_nvitop
def test_nvitop_draws_its_table_once(fake: FakeNvml) -> None:
    picture = run(fake, "-m", "nvitop", "--once", "--ascii")
    assert "300W / 700W" in picture and "H100" in picture and "A100" in picture
    assert "580.65.06" in picture


@needs_zeus
def test_zeus_measures_a_window(fake: FakeNvml) -> None:
    """The counter's difference over about 0.5 s at 300 W and 90 W."""
    code = (
        "import json, time; from zeus.monitor import ZeusMonitor\n"
        "if __name__ == '__main__':\n"
        "    monitor = ZeusMonitor(gpu_indices=[0, 1], cpu_indices=[])\n"
        "    monitor.begin_window('w', sync_execution=False); time.sleep(0.5)\n"
        "    found = monitor.end_window('w', sync_execution=False)\n"
        "    print(json.dumps([found.time, found.gpu_energy]))\n"
    )
    seconds, energy = json.loads(run(fake, "-c", code).splitlines()[-1])
    assert energy["0"] == pytest.approx(300 * seconds, abs=2 * 300 * 0.02 + 3)
    assert energy["1"] == pytest.approx(90 * seconds, abs=2 * 90 * 0.02 + 1)


@needs_zeus
def test_zeus_returns_a_negative_window_over_a_reload_as_it_does_on_hardware(nvml_library, tmp_path) -> None:
    """What others report of it (and what our ledger must not do) can be reproduced: so the fault is modelled."""
    fake = FakeNvml(nvml_library, tmp_path, [FakeBoard()], virtual=True)
    fake.boards[0].faults = [("reload", fake.origin + 5.0, NEVER, 0.0)]
    fake = FakeNvml(nvml_library, tmp_path, fake.boards, virtual=True)
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from zeus.monitor import ZeusMonitor; import struct, mmap\n"
        "if __name__ == '__main__':\n"
        "    f = open(sys.argv[2], 'r+b'); clock = mmap.mmap(f.fileno(), 8)\n"
        "    monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[])\n"
        "    monitor.begin_window('w', sync_execution=False)\n"
        "    struct.pack_into('<d', clock, 0, struct.unpack_from('<d', clock)[0] + 10.0)\n"
        "    print(json.dumps(monitor.end_window('w', sync_execution=False).gpu_energy))\n"
    )
    assert fake.clock is not None
    energy = json.loads(run(fake, "-c", code, ".", str(fake.clock.path)).splitlines()[-1])
    assert energy["0"] < -900_000


def test_the_calls_of_the_binding_work_and_what_is_missing_says_so(fake: FakeNvml, monkeypatch) -> None:
    fake.load(monkeypatch)
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(fake.boards[1].uuid)
        assert pynvml.nvmlDeviceGetIndex(handle) == 1
        bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
        assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(bus)) == 1
        with pytest.raises(pynvml.NVMLError) as problem:
            pynvml.nvmlDeviceGetFanSpeed(handle)
        assert problem.value.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlDeviceGetHandleByUUID("GPU-none")
    finally:
        pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetPowerUsage(handle)
