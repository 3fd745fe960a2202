"""kill -9 of recorder, stage, shim, screen, all at once, at random moments, with stages that are hard to end.

Whatever dies: the run directory opens and says what happened, less than a second of samples is lost, and two
seconds after the recorder's death nothing of the stage is alive (issue 2, "Done when").
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pipeline_helpers import begin, marked, python, recorder_pid, stage_events, wait_for

from kdwatch.ledger.load import load_ledger
from kdwatch.ledger.report import build_report
from kdwatch.pipeline import processes
from kdwatch.rundir.reader import RunReader

HARD = python(
    """
    import os, signal, subprocess, sys, threading, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    grand = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {stubborn!r}]); " + stubborn
    subprocess.Popen([sys.executable, "-c", grand])
    subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    print("up", flush=True)
    end = time.monotonic() + 120  # should the test itself be killed
    while time.monotonic() < end:
        os.write(1, b"flood " * 10000 + b"\\n")
        time.sleep(0.002)
    """
)
"""Grandchildren, daemons, TERM ignored, standard output flooded."""

RAPL_PERIOD_S = 1.0
VICTIMS = ("recorder", "stage", "shim", "screen", "all", "recorder_group")


def shim_of(run: Path) -> int:
    """The shim of the running stage: the parent of its first process."""
    pid = stage_events(run, "hard")["stage_started"]["pid"]
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    raise AssertionError("no parent")


def kill_some(victim: str, run: Path, screen: subprocess.Popen[bytes]) -> None:
    recorder = recorder_pid(run)
    stage = stage_events(run, "hard")["stage_started"]["pid"]
    if victim == "recorder":
        os.kill(recorder, signal.SIGKILL)
    elif victim == "recorder_group":
        os.killpg(recorder, signal.SIGKILL)
    elif victim == "stage":
        os.kill(stage, signal.SIGKILL)
    elif victim == "shim":
        os.kill(shim_of(run), signal.SIGKILL)
    elif victim == "screen":
        screen.kill()
    elif victim == "all":
        for pid in (recorder, screen.pid, shim_of(run)):
            os.kill(pid, signal.SIGKILL)
        processes.send_group(stage, signal.SIGKILL)


def last_sample_t(run: Path) -> float:
    return max(s.t for s in RunReader(run).iter_samples())


def attack(tmp_path: Path, victim: str, delay_s: float, mark: str) -> None:
    run = begin(
        tmp_path,
        "name: hard\nstages:\n- {name: first, run: 'true'}\n"
        f"- {{name: hard, run: {HARD}, grace: 0.3}}\n- {{name: after, run: 'true'}}\n",
    )
    screen = subprocess.Popen(
        [sys.executable, "-m", "kdwatch", "watch", str(run), "--plain"], stdout=subprocess.DEVNULL
    )
    recorder = recorder_pid(run)
    try:
        wait_for(lambda: "stage_started" in stage_events(run, "hard"), "the stage")
        time.sleep(delay_s)
        now = time.monotonic() - RunReader(run).manifest["clock"]["monotonic_origin"]
        kill_some(victim, run, screen)
        killed = time.monotonic()
        if victim == "screen":
            os.kill(recorder, signal.SIGTERM)
        if victim in ("recorder", "all", "recorder_group"):
            while set(marked(mark)) - {screen.pid}:
                assert time.monotonic() - killed < 2.0 + 3.0, "processes outlived the recorder"
                time.sleep(0.05)
            lived = time.monotonic() - killed
            assert lived < 2.0 + 1.5, f"gone only after {lived:.1f} s"  # 1.5 s for a machine that is busy
        wait_for(lambda: not processes.is_alive(recorder), "the recorder's exit")
        check_record(run, victim, now)
    finally:
        screen.kill()
        screen.wait()


def check_record(run: Path, victim: str, killed_t: float) -> None:
    """The run opens, its status is right, its samples reach up to the last second before the kill."""
    report = build_report(run)
    status = {s["name"]: s["status"] for s in report["stages"]}
    assert report["stages"][0]["status"] == "completed"
    if victim in ("recorder", "all", "recorder_group"):
        assert report["status"] == "interrupted"
        assert status["hard"] == "interrupted"
    elif victim == "screen":
        assert (report["status"], status["hard"], status["after"]) == ("stopped", "stopped", "skipped")
    else:
        assert (report["status"], status["hard"], status["after"]) == ("failed", "failed", "skipped")
        assert stage_events(run, "hard")["stage_ended"]["signal"] in (signal.SIGKILL, None)
        assert ("shim_lost" in {w["code"] for w in report["warnings"]}) == (victim == "shim")
    if killed_t > 1.5:  # RAPL is polled each second; what was read is on disk within half a second
        assert killed_t - last_sample_t(run) < RAPL_PERIOD_S + 0.6
    assert load_ledger(run).totals().total_j is not None
    assert (run / "logs" / "hard.log").exists()  # it may have been killed before it wrote a word


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_at_a_random_moment(tmp_path: Path, mark: str, package_250w, victim: str) -> None:
    attack(tmp_path, victim, random.Random(victim).uniform(0.0, 2.5), mark)


def attack_early(tmp_path: Path, delay_s: float, mark: str) -> None:
    """Kill the recorder's session and what is near it a moment after its start, whatever it is doing then."""
    run = begin(tmp_path, f"stages:\n- {{name: first, run: 'true'}}\n- {{name: hard, run: {HARD}, grace: 0.3}}\n")
    recorder = recorder_pid(run)
    time.sleep(delay_s)
    os.kill(recorder, signal.SIGKILL)
    wait_for(lambda: not marked(mark), "the end of all processes", limit_s=2.0 + 3.0)
    wait_for(lambda: not processes.is_alive(recorder), "the recorder's exit")
    report = build_report(run)
    assert report["status"] == "interrupted"
    assert all(s["status"] in ("pending", "completed", "interrupted") for s in report["stages"])


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.1])
def test_kill_just_after_the_start(tmp_path: Path, mark: str, package_250w, delay_s: float) -> None:
    attack_early(tmp_path, delay_s, mark)


@pytest.mark.slow  # 60 runs of about 1 s
@pytest.mark.parametrize("seed", range(60))
def test_kill_at_60_moments_of_the_start(tmp_path: Path, mark: str, package_250w, seed: int) -> None:
    attack_early(tmp_path, seed * 0.005, mark)


@pytest.mark.slow  # 100 runs of about 4 s
@pytest.mark.parametrize("seed", range(100))
def test_kill_at_100_random_moments(tmp_path: Path, mark: str, package_250w, seed: int) -> None:
    chance = random.Random(seed)
    attack(tmp_path, VICTIMS[seed % len(VICTIMS)], chance.uniform(0.0, 4.0), mark)
