"""`kdwatch exec` on simulated boards and a driven powercap tree, in real time: the report against the exact truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sim_nvml
import sim_traces
from sim_nvml import NEVER, FakeBoard, FakeNvml
from sim_powercap import Driver, PowercapTree

from kdwatch.rundir.reader import RunReader

SLEEP = (sys.executable, "-S", "-c", "import time; time.sleep(1.63)")


def execute(fake: FakeNvml, root: Path, folder: Path) -> tuple[dict[str, Any], RunReader]:
    """The report object of a measured command, and its run."""
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "kdwatch", "exec", "--report", str(report), "--", *SLEEP],
        env={**os.environ, **fake.environment, "KDWATCH_POWERCAP_ROOT": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = (Path(os.environ["KDWATCH_HOME"]) / "runs").iterdir()
    return json.loads(report.read_text()), RunReader(run)


def window(reader: RunReader) -> tuple[float, float]:
    """CLOCK_MONOTONIC times of the one stage's start and end."""
    origin = float(reader.manifest["clock"]["monotonic_origin"])
    times = {e["type"]: float(e["t"]) for e in reader.iter_events() if e["type"].startswith("stage_")}
    return origin + times["stage_started"], origin + times["stage_ended"]


def test_report_against_truth(nvml_library: Path, tmp_path: Path) -> None:
    """Four boards, each its own trace; CPU package at 120 W and memory at 15 W: within 4 % over 1.6 s, bounds and
    sources said; a busy machine reads late at the edges, and must then state a bound that holds. (The accuracy test
    has the distribution; this shows that the real recorder gets there.)"""
    boards = [FakeBoard(trace=t, noise_w=0.5, shift_s=0.3, counter_phase_s=0.01) for t in sim_traces.ALL[:3]]
    boards.append(FakeBoard(trace=sim_traces.ramp(), counter_s=0.0, noise_w=0.5))
    fake = FakeNvml(nvml_library, tmp_path, boards, virtual=False)
    tree = PowercapTree(tmp_path / "powercap")
    package, dram = tree.add("intel-rapl:0", "package-0"), tree.add("intel-rapl:0:0", "dram")
    with Driver({package: 120.0, dram: 15.0}):
        report, reader = execute(fake, tree.root, tmp_path)
    start, end = window(reader)
    (stage,) = report["stages"]
    by_id = {d["id"]: d for d in stage["devices"]}
    for number, board in enumerate(boards):
        true = fake.joules(number, start, end)
        open_j = max(0.04 * true, 1.5 * by_id[board.uuid]["bound_terms_j"]["edge"])
        assert by_id[board.uuid]["energy_j"] == pytest.approx(true, abs=open_j), board.trace.name
        assert by_id[board.uuid]["source"] == ("counter" if board.counter_s else "integrated")
        assert by_id[board.uuid]["coverage"] == pytest.approx(1.0, abs=0.02)
    assert stage["energy_j"]["cpu"] == pytest.approx(120 * (end - start), rel=0.3)
    assert stage["energy_j"]["dram"] == pytest.approx(15 * (end - start), rel=0.3)
    assert stage["energy_j"]["ram_estimated"] in (None, 0)
    assert stage["bound_j"] > 0 and report["total_j"] >= stage["energy_j"]["total"]


def test_an_old_library_with_the_legacy_calls_alone(tmp_path: Path) -> None:
    """No field values, no limits, no list of processes: two boards at 250 W, by their counters."""
    library = sim_nvml.build_bare(tmp_path)
    fake = FakeNvml(library, tmp_path, [], virtual=False)
    report, reader = execute(fake, tmp_path / "none", tmp_path)
    start, end = window(reader)
    gpus = [d for d in report["stages"][0]["devices"] if d["kind"] == "gpu"]
    assert [d["source"] for d in gpus] == ["counter", "counter"]
    for device in gpus:
        assert device["energy_j"] == pytest.approx(250 * (end - start), rel=0.04)
    assert {w["code"] for w in report["warnings"]} <= {"estimated"}


def test_faults_in_mid_run_change_no_exit_status(nvml_library: Path, tmp_path: Path) -> None:
    """A board that is lost, one whose driver reloads, one that hangs for a second, one with a foreign process."""
    import time

    now = time.monotonic()
    boards = [
        FakeBoard(faults=[("lost", now + 2.0, NEVER, 0.0)]),
        FakeBoard(faults=[("reload", now + 2.5, NEVER, 0.0)]),
        FakeBoard(faults=[("slow", now + 2.0, now + 2.5, 1.0)]),
        FakeBoard(processes=[(os.getppid(), 0.0, NEVER)]),
        FakeBoard(),
    ]
    fake = FakeNvml(nvml_library, tmp_path, boards, virtual=False)
    report, reader = execute(fake, tmp_path / "none", tmp_path)
    start, end = window(reader)
    (stage,) = report["stages"]
    assert stage["status"] == "completed" and stage["exit_code"] == 0
    by_id = {d["id"]: d for d in stage["devices"]}
    assert by_id[boards[4].uuid]["energy_j"] == pytest.approx(300 * (end - start), rel=0.04)
    for device in stage["devices"]:
        assert device["energy_j"] is None or device["energy_j"] >= 0
    assert "contended" in {w["code"] for w in report["warnings"]}
