"""`kdwatch run`, `watch` and `stop` without a screen: output, exit codes, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_helpers import begin, events, finish, recorder_pid, stage_events, wait_for, write_recipe

from kdwatch.ledger.report import build_report
from kdwatch.pipeline import processes
from kdwatch.rundir.paths import list_runs

pytestmark = pytest.mark.usefixtures("mark")

KDWATCH = [sys.executable, "-m", "kdwatch"]
LONG = "stages:\n- {name: s, run: sleep 600}\n"


def kdwatch(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KDWATCH, *map(str, args)], capture_output=True, text=True, timeout=60, check=False)


def start(*args: str | Path) -> tuple[subprocess.Popen[str], Path]:
    """A `kdwatch` in the foreground whose stage has begun."""
    process = subprocess.Popen([*KDWATCH, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = wait_for(lambda: next(iter(list_runs()), None), "the run")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    assert process.stdout and process.stdout.readline()
    return process, run


@pytest.mark.parametrize(("command", "code", "status"), [("'true'", 0, "completed"), ("'false'", 1, "failed")])
def test_run_shows_lines_and_passes_the_verdict_on(tmp_path: Path, command: str, code: int, status: str) -> None:
    done = kdwatch("run", write_recipe(tmp_path, f"name: r\nstages:\n- {{name: only, run: {command}}}\n"), "--plain")
    assert done.returncode == code
    assert "only" in done.stdout and status in done.stdout
    assert "Traceback" not in done.stderr


def test_a_pipe_needs_no_option(tmp_path: Path) -> None:
    done = kdwatch("run", write_recipe(tmp_path, "stages:\n- {name: only, run: 'true'}\n"))
    assert done.returncode == 0 and "\x1b" not in done.stdout


def test_detach_prints_the_id_and_watch_follows_to_the_end(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "name: x\nstages:\n- {name: s, run: sleep 1}\n")
    done = kdwatch("run", path, "--detach", "--name", "other")
    assert done.returncode == 0 and done.stderr == ""
    (run,) = list_runs()
    assert done.stdout == run.name + "\n" and "-other-" in run.name
    assert kdwatch("watch", run.name, "--plain").returncode == 0
    assert events(run, "run_ended")[0]["status"] == "completed"
    once = kdwatch("watch", "--once")
    assert once.returncode == 0 and "completed" in once.stdout and "\x1b" not in once.stdout


def test_home_is_where_it_says(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "stages:\n- {name: s, run: 'true'}\n")
    assert kdwatch("run", path, "--home", tmp_path / "h").returncode == 0
    assert len(list((tmp_path / "h" / "runs").iterdir())) == 1 and list_runs() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_plain_lines_stops_the_run_in_order(tmp_path: Path, number: signal.Signals) -> None:
    process, run = start("run", write_recipe(tmp_path, LONG), "--plain")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert (finish(run)["status"], finish(run)["exit_code"]) == ("stopped", 128 + number)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_losing_the_terminal_leaves_the_run_alone(tmp_path: Path, number: signal.Signals) -> None:
    process, run = start("run", write_recipe(tmp_path, "stages:\n- {name: s, run: sleep 1}\n"), "--plain")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert finish(run)["status"] == "completed"


def test_watching_changes_nothing(tmp_path: Path) -> None:
    run = begin(tmp_path, "stages:\n- {name: s, run: sleep 2}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    process, _ = start("watch", run, "--plain")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert finish(run)["status"] == "completed" and events(run, "control") == []


def test_stop_waits_for_the_end(tmp_path: Path) -> None:
    run = begin(tmp_path, LONG)
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    done = kdwatch("stop")
    assert done.returncode == 0 and done.stdout == ""
    assert events(run, "run_ended")[0]["status"] == "stopped"
    again = kdwatch("stop")
    assert again.returncode == 2 and "ended already" in again.stderr


def test_stop_kill_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    run = begin(tmp_path, "stages:\n- {name: s, run: sh -c 'trap \"\" TERM; sleep 600 & wait; wait', grace: 1h}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    assert kdwatch("stop", run.name, "--kill").returncode == 0
    assert stage_events(run, "s")["stage_ended"]["signal"] == signal.SIGKILL


def test_stop_of_one_stage_by_name(tmp_path: Path) -> None:
    run = begin(tmp_path, "stages:\n- {name: s, run: sleep 600}\n- {name: t, run: 'true'}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    wrong = kdwatch("stop", "last", "--stage", "x")
    assert wrong.returncode == 2 and "it has s, t" in wrong.stderr
    assert kdwatch("stop", "last", "--skip").returncode == 2
    assert kdwatch("stop", "last", "--stage", "s", "--skip").returncode == 0
    finish(run)
    assert {s["name"]: s["status"] for s in build_report(run)["stages"]} == {"s": "skipped", "t": "completed"}


def test_stop_says_when_the_recorder_is_dead(tmp_path: Path) -> None:
    run = begin(tmp_path, LONG)
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    recorder = recorder_pid(run)
    os.kill(recorder, signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(recorder), "the recorder's end")
    done = kdwatch("stop", "last")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [("watch", "nope"), ("stop", "nope"), ("watch", "/etc"), ("run", "nope.yaml")])
def test_what_is_not_there_is_one_line(args: tuple[str, ...]) -> None:
    done = kdwatch(*args)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's device that takes nothing")
def test_output_to_a_full_disk_is_one_line(tmp_path: Path) -> None:
    kdwatch("run", write_recipe(tmp_path, "stages:\n- {name: s, run: 'true'}\n"), "--detach")
    for args in (("ls",), ("report", "last")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*KDWATCH, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "standard output" in done.stderr and "No space left" in done.stderr


@pytest.mark.parametrize("command", [("demo", "--plain"), ("recipes", "demo", "{file}/x")])
def test_a_place_that_cannot_be_made_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    words = [word.format(file=file) for word in command]
    home = {"KDWATCH_HOME": str(file / "home")}
    done = subprocess.run([*KDWATCH, *words], env=os.environ | home, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert str(file) in done.stderr
