"""What a run says of its host: other runs, little disk space, an unwritable home, who may give orders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import naive
import pytest
from pipeline_helpers import begin, events, finish, record, recorder_pid, stage_events, wait_for, warning_codes

from kdwatch.ledger.report import build_report
from kdwatch.pipeline import hosts, processes
from kdwatch.pipeline.hosts import ActiveRuns, low_disk
from kdwatch.rundir.process import identity

pytestmark = pytest.mark.usefixtures("mark")


@pytest.mark.fault(60)
def test_two_runs_at_once_both_work_and_both_say_so(tmp_path: Path) -> None:
    """Fault 60: a second instance fails elsewhere."""
    runs = [begin(tmp_path, "stages:\n- {name: s, run: sleep 3}\n") for _ in range(2)]
    for run in runs:
        assert finish(run)["status"] == "completed"
        assert "shared_host" in warning_codes(run)
        assert build_report(run)["total_j"] is not None
    naive.only_instance(tmp_path / "lock")
    with pytest.raises(FileExistsError):
        naive.only_instance(tmp_path / "lock")


def test_a_run_that_begins_and_ends_between_two_looks_is_known_to_the_other(tmp_path: Path) -> None:
    long, short = ActiveRuns("long", tmp_path), ActiveRuns("short", tmp_path)
    long.enter()
    assert long.others() == []
    short.enter()
    assert short.others() == ["long"]
    short.leave()
    assert long.others() == ["short"]
    long.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_run_alone_says_nothing(tmp_path: Path, own_home: Path) -> None:
    assert "shared_host" not in warning_codes(record(tmp_path, "stages:\n- {name: s, run: sleep 0.5}\n"))
    assert list((own_home / "active").glob("*.json")) == []


def test_the_dead_and_those_elsewhere_do_not_count(tmp_path: Path) -> None:
    mine = ActiveRuns("mine", tmp_path)
    mine.enter()
    for name, entry in {
        "dead": {**identity(), "start_time": 1},
        "elsewhere": {**identity(), "host_hash": "other"},
        "alive": identity(),
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"run_id": name, **entry}))
    (tmp_path / "torn.json").write_text('{"run_id": ')
    assert mine.others() == ["alive"]
    assert not (tmp_path / "dead.json").exists() and (tmp_path / "elsewhere.json").exists()


def test_a_relative_home_and_a_directory_full_of_traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage's working directory is not the caller's, and modules that lie there shadow nothing of ours."""
    for name in ("json", "logging", "signal", "kdwatch", "yaml", "statistics"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user was imported')")
    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KDWATCH_HOME", "h")
    report = 'echo \'{"type": "progress", "tokens": 3}\' >> "$KDWATCH_EVENTS"'
    (tmp_path / "r.yaml").write_text(
        json.dumps({"workdir": "w", "stages": [{"name": "s", "run": ["sh", "-c", report]}]})
    )
    command = Path(sys.executable).with_name("kdwatch")
    done = subprocess.run(
        [command, "run", "r.yaml", "--plain"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "h" / "runs").iterdir()
    assert build_report(run)["stages"][0]["tokens"] == 3
    assert (tmp_path / "h").stat().st_mode & 0o077 == 0


def test_less_than_a_gigabyte_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    for free, warned in ((999_999_999, True), (1_000_000_000, False)):
        monkeypatch.setattr(hosts.shutil, "disk_usage", lambda _, free=free: usage(2e9, 1e9, free))
        assert (low_disk(tmp_path) is not None) == warned


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="needs root to mount a small tmpfs")
def test_a_full_disk_costs_no_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home is a tmpfs of 300 kB that fills up: low_disk is said, the stages run, the run directory opens."""
    home = tmp_path / "small"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(home)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode().strip()}")
    try:
        monkeypatch.setenv("KDWATCH_HOME", str(home))
        run = begin(
            tmp_path,
            "stages:\n- {name: s, run: sh -c 'head -c 2000000 /dev/zero; sleep 1'}\n- {name: t, run: sleep 1}\n",
        )
        recorder = recorder_pid(run)
        wait_for(lambda: not processes.is_alive(recorder), "the recorder's end")
        report = build_report(run)
        assert "low_disk" in {w["code"] for w in report["warnings"]}
        assert report["stages"][0]["name"] == "s"
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.parametrize("command", [["run", "{recipe}"], ["exec", "--", "true"]])
def test_an_unwritable_home_is_one_line(tmp_path: Path, command: list[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("stages:\n- {name: s, run: 'true'}\n")
    words = [word.format(recipe=recipe) for word in command]
    done = subprocess.run(
        [sys.executable, "-m", "kdwatch", *words],
        env={**os.environ, "KDWATCH_HOME": "/proc/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "KDWATCH_HOME" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_users_request_is_not_obeyed(tmp_path: Path) -> None:
    run = begin(tmp_path, "stages:\n- {name: s, run: sleep 1.5}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    request = run / "control" / ".1.json"
    request.write_text('{"action": "kill"}')
    os.chown(request, 12345, 12345)
    request.rename(run / "control" / "1.json")
    assert finish(run)["status"] == "completed"
    assert events(run, "control") == []
