"""Runs on simulated boards: energy by device, no calls while nothing runs, slow and foreign things, GPU selection."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pipeline_helpers import begin, events, finish, python, record, recorder_pid, stage_events, wait_for, warning_codes
from sim_nvml import FakeBoard, FakeNvml, build
from sim_traces import constant, square

from kdwatch.ledger.report import build_report
from kdwatch.rundir.reader import RunReader

pytestmark = pytest.mark.usefixtures("mark")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pipeline_nvml"))


def boards(library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *specs: FakeBoard) -> FakeNvml:
    """Boards that recorders started from here will find."""
    nvml = FakeNvml(library, folder, specs, virtual=False)
    for name, value in nvml.environment.items():
        monkeypatch.setenv(name, value)
    return nvml


def test_two_boards_one_stage_each(nvml_library: Path, tmp_path: Path, monkeypatch, package_250w) -> None:
    """Constant 300 W and 100 W: joules are watts times seconds, within the bound of a short window (issue 3: 3 % at
    1.3 s with a 100 ms counter); the package's 250 W are not the boards'."""
    boards(nvml_library, tmp_path, monkeypatch, FakeBoard(trace=constant(300.0)), FakeBoard(trace=constant(100.0)))
    run = record(tmp_path, "stages:\n- {name: s, run: sleep 2}\n")
    (stage,) = build_report(run)["stages"]
    by_name = {d["id"]: d["energy_j"] for d in stage["devices"]}
    watts = sorted(joules / stage["duration_s"] for joules in by_name.values())
    assert watts == pytest.approx([100.0, 250.0, 300.0], rel=0.25)
    assert stage["energy_j"]["gpu"] == pytest.approx(400.0 * stage["duration_s"], rel=0.05)


def test_short_stages_of_a_restless_board_are_right_within_their_bounds(
    nvml_library: Path, tmp_path: Path, monkeypatch
) -> None:
    """A square wave of 100/700 W, stages of about 1.5 s, counters that tick every 20 and 100 ms: the whole way from the
    spawn's edge to the report. Issue 3 asks for 1 % and 3 % (p95, on virtual time); a busy machine gets four times
    that here. The stated bound holds in 95 % of windows, so twice of it must hold in these."""
    counters = (0.02, 0.1)
    nvml = boards(nvml_library, tmp_path, monkeypatch, *(FakeBoard(trace=square(), counter_s=c) for c in counters))
    lengths = (1.41, 1.57, 1.33)
    stages = "".join(f"- {{name: s{i}, run: sleep {length}}}\n" for i, length in enumerate(lengths))
    run = record(tmp_path, f"stages:\n{stages}")
    origin = RunReader(run).manifest["clock"]["monotonic_origin"]
    for stage in build_report(run)["stages"]:
        for board, device in enumerate(d for d in stage["devices"] if d["kind"] == "gpu"):
            true = nvml.joules(board, origin + stage["start_s"], origin + stage["end_s"])
            assert device["energy_j"] == pytest.approx(true, rel=(0.05, 0.12)[board])
            assert abs(device["energy_j"] - true) <= 2 * device["bound_j"]


def test_no_call_reaches_a_board_while_nothing_runs(nvml_library: Path, tmp_path: Path, monkeypatch) -> None:
    """Fault 40: monitoring keeps a GPU from sleeping. A session between two stages asks nothing of it."""
    nvml = boards(nvml_library, tmp_path, monkeypatch, FakeBoard())
    code = (
        "import kdwatch, sys\nwith kdwatch.stage('a'): pass\n"
        "print('idle', flush=True); sys.stdin.readline()\nwith kdwatch.stage('b'): pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdin and process.stdout.readline() == "idle\n"
    quiet = 0
    before = -1

    def is_quiet() -> bool:
        """The tail of the last stage is over once ten periods pass without a call."""
        nonlocal quiet, before
        now = nvml.calls(0)
        quiet = quiet + 1 if now == before else 0
        before = now
        return quiet >= 100  # x 0.01 s: wait_for's step

    wait_for(is_quiet, "a second without calls")
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(30) == 0
    assert nvml.calls(0) > before


def test_a_board_that_hangs_stalls_neither_the_run_nor_the_others(
    nvml_library: Path, tmp_path: Path, monkeypatch
) -> None:
    """Calls of one board begin to take 3 s after the start; the other is still sampled ten times a second, and the
    run ends in time."""
    boards(
        nvml_library,
        tmp_path,
        monkeypatch,
        FakeBoard(trace=constant(200.0)),
        FakeBoard(trace=constant(200.0), faults=[("slow", time.monotonic() + 4.0, 1e9, 3.0)]),
    )
    run = record(tmp_path, "stages:\n- {name: s, run: sleep 6}\n")
    started, ended = (stage_events(run, "s")[kind]["t"] for kind in ("stage_started", "stage_ended"))
    times = sorted(s.t for s in RunReader(run).iter_samples() if s.key == "g0" and started <= s.t <= ended)
    assert len(times) > 15 and ended - started < 10.0
    assert max(b - a for a, b in itertools.pairwise(times)) < 1.0


def test_a_board_that_is_slow_from_the_start_holds_up_no_run(nvml_library: Path, tmp_path: Path, monkeypatch) -> None:
    """Board 1 takes 2 s a call for the first 7.5 s: the run begins without it, measures board 0 whole, names board 1
    and what of it is missing."""
    nvml = boards(
        nvml_library,
        tmp_path,
        monkeypatch,
        FakeBoard(trace=constant(300.0)),
        FakeBoard(trace=constant(200.0), faults=[("slow", 0.0, time.monotonic() + 7.5, 2.0)]),
    )
    began = time.monotonic()
    run = record(tmp_path, "stages:\n- {name: s, run: sleep 7}\n")
    manifest = RunReader(run).manifest
    started = stage_events(run, "s")["stage_started"]["t"] + manifest["clock"]["monotonic_origin"] - began
    assert started < 7.0, "2 s for the board, the recorder's start, and a busy machine"
    (stage,) = build_report(run)["stages"]
    first, second = (d for d in stage["devices"] if d["kind"] == "gpu")
    assert first["energy_j"] == pytest.approx(300.0 * stage["duration_s"], rel=0.05) and first["coverage"] == 1.0
    assert second["coverage"] < 0.9 and "gap" in second["flags"]
    known_s = second["coverage"] * stage["duration_s"]
    assert second["energy_j"] == pytest.approx(200.0 * known_s, rel=0.1)
    assert [d["id"] for d in manifest["devices"] if d["kind"] == "gpu"] == [b.uuid for b in nvml.boards]
    assert manifest["hardware"]["gpus"] == [b.name for b in nvml.boards]


def test_a_killed_recorder_loses_less_than_a_second_of_samples(nvml_library: Path, tmp_path: Path, monkeypatch) -> None:
    """Issue 2. At ten samples a second, readings wait at most half a second before they are on disk."""
    boards(nvml_library, tmp_path, monkeypatch, FakeBoard())
    run = begin(tmp_path, "stages:\n- {name: s, run: sleep 600}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    time.sleep(2.0)
    killed = time.monotonic() - RunReader(run).manifest["clock"]["monotonic_origin"]
    os.kill(recorder_pid(run), signal.SIGKILL)
    last = max(s.t for s in RunReader(run).iter_samples() if s.key == "g0")
    assert 0.0 <= killed - last < 1.0
    wait_for(lambda: build_report(run)["status"] == "interrupted", "the end")


def test_another_process_on_the_board_is_flagged_and_the_runs_own_is_not(
    nvml_library: Path, tmp_path: Path, monkeypatch
) -> None:
    """The test's own process computes on board 0: it is no process of the stage. The stage's own child is."""
    boards(nvml_library, tmp_path, monkeypatch, FakeBoard(processes=[(os.getpid(), 0.0, 1e9)]))
    run = record(tmp_path, "idle_baseline: 1s\nstages:\n- {name: s, run: sleep 1}\n")
    assert {"contended", "baseline_refused"} <= {w["code"] for w in build_report(run)["warnings"]}
    assert events(run, "baseline") == []


def test_hidden_boards_are_not_measured(nvml_library: Path, tmp_path: Path, monkeypatch) -> None:
    """Fault 69's kind: only what CUDA_VISIBLE_DEVICES shows belongs to this run, whoever else uses the host."""
    boards(nvml_library, tmp_path, monkeypatch, *(FakeBoard() for _ in range(4)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    run = record(tmp_path, "stages:\n- {name: s, run: sleep 0.5}\n")
    gpus = [d for d in build_report(run)["devices"] if d["kind"] == "gpu"]
    assert [d["id"] for d in gpus] == ["GPU-00000002-aaaa-bbbb-cccc-000000000002"]


def test_the_budget_guard_stops_within_a_period(nvml_library: Path, tmp_path: Path, monkeypatch) -> None:
    """Fault 71 on a board of 250 W alone: 1 kJ is used up after 4 s; NVML is read each 0.1 s."""
    monkeypatch.setenv("KDWATCH_POWERCAP_ROOT", str(tmp_path / "none"))
    boards(nvml_library, tmp_path, monkeypatch, FakeBoard(trace=constant(250.0), counter_s=0.02))
    polite = python("import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(60)")
    run = begin(tmp_path, f"budget: 1kJ\nstop_over_budget: true\nstages:\n- {{name: s, run: {polite}}}\n")
    assert finish(run)["status"] == "over_budget"
    assert "over_budget" in warning_codes(run)
    report = build_report(run)
    gpu = next(d for d in report["devices"] if d["kind"] == "gpu")
    other = report["total_j"] - gpu["total_j"]  # this machine's estimated CPU and memory count too
    assert 1000.0 <= gpu["total_j"] + other <= 1000.0 + 300.0 * 0.6
