"""`kdwatch doctor` and the prerun stage, as processes on simulated hardware."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import pytest
import sim_traces
from sim_nvml import NEVER, FakeBoard, FakeNvml
from sim_powercap import PowercapTree, two_sockets

from kdwatch.meters.base import Device
from kdwatch.meters.checks import Check, home_checks, run_groups
from kdwatch.meters.nvml_late import unknown_board
from kdwatch.meters.sensor_checks import device_check, energy_check
from kdwatch.meters.trial import Trial, mean_power, mean_sample, period, try_meter
from kdwatch.stages.prerun_checks import Host, differences, mismatch, sampling_line
from kdwatch.stages.prerun_settings import Expected

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(nvml_library: Path, tmp_path: Path) -> Run:
    """Run a Python module on boards and a powercap root."""

    def start(*command: str, boards: list[FakeBoard] | None = None, root: Path | None = None, **extra: str):
        (tmp_path / "none").mkdir(exist_ok=True)
        environment = {**os.environ, "KDWATCH_POWERCAP_ROOT": str(root or tmp_path / "none"), **extra}
        if boards is not None:
            environment |= FakeNvml(nvml_library, tmp_path, boards, virtual=False).environment
        return subprocess.run(
            [sys.executable, "-m", *command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return start


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    return {c["id"]: c for c in found["checks"]}


def test_everything_well(run: Run, tmp_path: Path) -> None:
    boards = [FakeBoard(trace=sim_traces.square()), FakeBoard(counter_s=0)]
    done = run("kdwatch", "doctor", "--json", boards=boards, root=two_sockets(tmp_path / "p").root)
    assert done.returncode == 0, done.stderr
    found = checks(done)
    assert json.loads(done.stdout)["ok"] is True
    assert list(found) == [
        "python", "home", "training", "gpu", "sensor.g0", "sensor.g1", "gpu.processes", "cpu.rapl", "sensor.cpu0",
        "sensor.dram0", "sensor.cpu1", "sensor.dram1", "energy",
    ]  # fmt: skip
    assert {c["status"] for c in found.values()} == {"ok"}
    assert "2 of 2 GPUs, 1 with an energy counter" in found["gpu"]["text"]
    assert "no energy counter: power is integrated" in found["sensor.g1"]["text"]
    assert found["sensor.g0"]["data"]["trial"]["counter_period_s"] == pytest.approx(0.1, abs=0.05)
    assert found["energy"]["text"] == "measured: cpu, dram, gpu; estimated: nothing"


def test_no_sensor_at_all_still_says_what_it_has(run: Run) -> None:
    done = run("kdwatch", "doctor")
    assert done.returncode == 0
    assert "libnvidia-ml.so.1" in done.stdout and "virtual machine" in done.stdout
    assert "estimated by a model, not measured" in done.stdout
    assert "\x1b" not in done.stdout


def test_closed_counters_come_with_the_fix(run: Run, tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "p")
    tree.add("intel-rapl:0", "package-0").close()
    found = checks(run("kdwatch", "doctor", "--json", root=tree.root))
    assert found["cpu.rapl"]["status"] == "warn"
    assert "udev" in found["cpu.rapl"]["fix"]
    assert found["energy"]["status"] == "warn" and "estimated: cpu" in found["energy"]["text"]


def test_a_driver_that_hangs_costs_three_seconds_and_no_other_check(run: Run, tmp_path: Path) -> None:
    hung = FakeBoard(faults=[("slow", 0.0, NEVER, 60.0)])
    began = time.monotonic()
    done = run("kdwatch", "doctor", "--json", boards=[hung, FakeBoard()], root=two_sockets(tmp_path / "p").root)
    seconds = time.monotonic() - began
    found = checks(done)
    assert seconds < 20, "three seconds, the interpreter's start, and a busy machine"
    assert "GPU 0 gives no answer" in found["gpu"]["text"]
    assert found["sensor.g1"]["status"] == "ok" and found["sensor.cpu0"]["status"] == "ok"


def test_a_home_that_cannot_be_written_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("kdwatch", "doctor", "--json", KDWATCH_HOME=str(tmp_path / "file" / "home"))
    assert done.returncode == 1
    assert checks(done)["home"]["status"] == "fail"
    assert home_checks(tmp_path)[0].status in ("ok", "warn")


def test_a_group_that_raises_or_overruns_is_one_failed_check() -> None:
    def broken() -> list[Check]:
        raise RuntimeError("no bus")

    def slow() -> list[Check]:
        time.sleep(5)
        return []

    began = time.monotonic()
    found = run_groups([("a", broken), ("b", slow), ("c", lambda: [Check("c", "ok", "fine")])], limit_s=0.3)
    assert time.monotonic() - began < 4
    assert [(c.id, c.status) for c in found] == [("a", "fail"), ("b", "fail"), ("c", "ok")]
    assert "no bus" in found[0].text and "0.3 s" in found[1].text


def gpu(**values: Any) -> Device:
    return Device(**{"key": "g0", "id": "GPU-1", "name": "NVIDIA H100", "kind": "gpu", "scope": "gpu",
                     "source": "counter", "details": {"memory_b": 80 * 2**30}, **values})  # fmt: skip


def trial(**values: Any) -> Trial:
    empty = dict.fromkeys(Trial.__dataclass_fields__)
    return Trial(**{**empty, "key": "g0", "poll_s": 0.001, "reads": 10, **values})


def test_a_sensor_without_a_reading_fails() -> None:
    check = device_check(gpu(), trial())
    assert check.status == "fail" and "no reading" in check.text
    assert energy_check([check]).status == "fail"


def test_rates_and_means_of_a_trial() -> None:
    """A counter of 200 W that updates every 0.1 s, read every 0.01 s, begun in mid-tick."""
    readings = [(0.005 + i * 0.01, 20.0 * ((i + 5) // 10)) for i in range(100)]
    assert period(readings) == pytest.approx(0.1)
    assert mean_power(readings) == pytest.approx(200.0)
    assert period([(0.0, 1.0), (1.0, 2.0)]) is None
    assert mean_power([(0.0, 5.0)]) is None
    assert mean_sample([(0.0, 100.0), (1.0, 100.0), (3.0, 400.0)]) == pytest.approx(200.0)
    assert mean_sample([]) is None and mean_sample([(0.0, 7.0)]) == 7.0


HOST = Host(cpus=8, memory_b=32 * 2**30)


@pytest.mark.parametrize(
    ("expect", "lines"),
    [
        ({}, []),
        ({"gpus": 1, "gpu_name": "h100", "gpu_memory_gb": 80, "gpu_counter": True, "cpus": 8, "memory_gb": 32}, []),
        ({"gpus": 2}, ["expect.gpus: 2, found 1"]),
        ({"gpu_name": "A100"}, ["expect.gpu_name: A100, g0 is NVIDIA H100"]),
        ({"gpu_memory_gb": 90}, ["expect.gpu_memory_gb: 90 or more, g0 has 85.9"]),
        ({"gpu_counter": False}, ["expect.gpu_counter: False, g0 gives counter"]),
        ({"cpu_measured": True}, ["expect.cpu_measured: True, found False; see `kdwatch doctor`"]),
        ({"cpus": 9, "memory_gb": 64}, ["expect.cpus: 9 or more, found 8", "expect.memory_gb: 64 or more, found 34.4"]),
    ],
)
def test_hardware_against_what_the_recipe_asserts(expect: dict[str, Any], lines: list[str]) -> None:
    assert differences(Expected.model_validate(expect), [gpu()], HOST) == lines


def test_a_gpu_that_is_silent_so_far_is_not_guessed_at() -> None:
    silent = unknown_board(1)
    assert differences(Expected.model_validate({"gpus": 1}), [silent], HOST) == []
    assert differences(Expected.model_validate({"gpu_counter": True}), [silent], HOST) == [
        "expect: g1 gives no answer yet, so what it has is not known"
    ]


def test_a_gpu_name_without_any_gpu_is_a_difference() -> None:
    assert differences(Expected.model_validate({"gpu_name": "H100"}), [], HOST) == [
        "expect.gpu_name: H100, found no GPU"
    ]


def test_counter_against_integrated_power() -> None:
    seen = trial(counter_w=330.0, counter_period_s=0.1, beside_counter_w=300.0)
    assert mismatch(seen, 1.0) == pytest.approx(0.10)
    assert mismatch(seen, 0.3) is None, "too few ticks to tell"
    assert mismatch(trial(beside_counter_w=300.0), 1.0) is None
    assert mismatch(trial(counter_w=330.0, counter_period_s=0.1), 1.0) is None


def test_a_load_that_sets_in_during_the_trial_is_no_mismatch(gpus, found) -> None:
    """100 W for 0.45 s, then 600 W: counter and power are compared over the same time, whatever their phases."""
    step = sim_traces.Trace("step", ((0.45, 100.0, 100.0), (100.0, 600.0, 600.0)))
    fake = gpus(FakeBoard(trace=step, counter_phase_s=0.037))
    (meter,) = (m for m in found(fake).meters if m.name == "nvml")
    (tried,) = try_meter(meter, 1.0, fake.clock, fake.clock.sleep)
    assert mismatch(tried, 1.0) == pytest.approx(0.0, abs=0.04)
    assert tried.counter_period_s == pytest.approx(0.1, abs=0.004)
    assert tried.power_w == 600 and tried.reads > 300


def test_a_counter_that_lies_is_a_mismatch(prerun) -> None:
    """A counter that stands for half the load (its period is real, its energy is not): warned of under load."""
    liar = FakeBoard(trace=sim_traces.constant(300), faults=[("spike", 0.0, NEVER, 600.0)])
    _, events = prerun({"idle_s": 0, "seconds": 0.8, "gpu_load": False}, boards=[liar])
    (warning,) = of(events, "warning")
    assert warning["code"] == "counter_mismatch"
    told = re.search(r"differs by (-\d+\.\d)%", warning["text"])
    assert told is not None and float(told[1]) == pytest.approx(-50, abs=10)


def test_the_rate_that_this_hardware_supports() -> None:
    line = sampling_line(gpu(), trial(counter_period_s=0.1, power_period_s=0.02, average_period_s=0.1))
    assert line == (
        "g0: counter new every 100 ms, power new every 20 ms, mean new every 100 ms: "
        "sampling faster than 50 Hz only repeats values"
    )
    assert "unknown" in sampling_line(gpu(), trial())


@pytest.fixture
def prerun(run: Run, tmp_path: Path):
    """Run the stage; returns the process and the events it reported."""

    def start(settings: dict[str, Any], **hardware):
        config, events = tmp_path / "config.json", tmp_path / "events.jsonl"
        config.write_text(json.dumps({"name": "prerun", "settings": settings, "inputs": {}, "output": None}))
        extra = {"KDWATCH_STAGE_CONFIG": str(config), "KDWATCH_EVENTS": str(events)}
        done = run("kdwatch.stages.prerun", **hardware, **extra)
        lines = events.read_text().splitlines() if events.exists() else []
        return done, [json.loads(line) for line in lines]

    return start


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [e for e in events if e["type"] == kind]


def test_prerun_reports_sensors_baseline_and_rates(prerun, tmp_path: Path) -> None:
    board = FakeBoard(trace=sim_traces.Trace("wave", ((0.3, 95.0, 105.0), (0.3, 105.0, 95.0))))
    settings = {"expect": {"gpus": 1, "gpu_name": "H100", "gpu_counter": True}, "gpu_load": False}
    done, events = prerun(settings, boards=[board])
    assert done.returncode == 0, done.stderr
    (baseline,) = of(events, "baseline")
    assert baseline["idle_w"]["g0"] == pytest.approx(100, rel=0.08) and baseline["duration_s"] == 0.6
    assert "nvml: ok: 1 of 1 GPUs" in done.stdout and "MiB hashed" in done.stdout
    assert "g0: counter new every" in done.stdout and "of integrated power" in done.stdout
    assert not [w for w in of(events, "warning") if w["code"] == "counter_mismatch"]


def test_prerun_fails_where_the_hardware_is_another(prerun) -> None:
    done, events = prerun({"expect": {"gpus": 8}, "seconds": 0, "idle_s": 0}, boards=[FakeBoard()])
    assert done.returncode == 1
    assert done.stderr.strip() == "prerun: expect.gpus: 8, found 1"
    assert not of(events, "baseline")


@pytest.mark.fault(75)
def test_75_no_idle_baseline_while_something_runs_on_the_gpu(prerun) -> None:
    """A board at 300 W under somebody's load: taken for idle, a stage of 250 W for 10 s would use less than nothing."""
    assert naive.net(2500.0, 300.0, 10.0) < 0
    busy = FakeBoard(processes=[(os.getppid(), 0.0, NEVER)])
    done, events = prerun({"seconds": 0}, boards=[busy])
    assert done.returncode == 0
    assert not of(events, "baseline")
    (warning,) = of(events, "warning")
    assert warning["code"] == "baseline_refused" and str(os.getppid()) in warning["text"]


def test_prerun_names_a_wrong_setting_in_one_line(prerun) -> None:
    done, _ = prerun({"expect": {"gpu": 1}})
    assert done.returncode == 2
    assert done.stderr.startswith("prerun: with.expect.gpu: ") and len(done.stderr.splitlines()) == 1


def test_prerun_imports_neither_torch_nor_codecarbon() -> None:
    code = (
        "import sys, kdwatch.stages.prerun; "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'torch', 'codecarbon', 'pandas', 'polars', 'textual'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
