"""Runs of recipes with commands: order, status, exit codes, logs, environment, time limits, requests."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from pipeline_helpers import (
    begin,
    events,
    finish,
    python,
    record,
    recorder_pid,
    stage_events,
    wait_for,
    warning_codes,
)

from kdwatch.ledger.report import build_report
from kdwatch.meters.models import power_model
from kdwatch.rundir import control

pytestmark = pytest.mark.usefixtures("mark")


def test_stages_run_in_order_and_their_energy_adds_up(tmp_path: Path, package_250w) -> None:
    """Two stages of about 1 s at 250 W: each gets 250 J a second, and nothing is lost (protocol: conservation)."""
    run = record(tmp_path, "name: two\nstages:\n- {name: a, run: sleep 1}\n- {name: b, kind: student, run: sleep 1}\n")
    report = build_report(run)
    assert report["status"] == "completed"
    assert [s["name"] for s in report["stages"]] == ["a", "b"]
    assert report["stages"][1]["kind"] == "student"
    for stage in report["stages"]:
        assert stage["status"] == "completed" and stage["exit_code"] == 0
        assert stage["energy_j"]["cpu"] == pytest.approx(250.0 * stage["duration_s"], rel=0.25)
    parts = sum(s["energy_j"]["total"] for s in report["stages"]) + report["unattributed_j"]
    assert parts == pytest.approx(report["total_j"], rel=1e-9)
    assert report["stages"][0]["end_s"] <= report["stages"][1]["start_s"]


def test_the_papers_protocol_has_what_it_needs_where_the_cpu_is_measured(tmp_path: Path, package_250w) -> None:
    """CodeCarbon's process model: TDP x CPU seconds / CPUs, from the recorded CPU time and TDP (design, protocol)."""
    burn = python("import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(2)")
    power_model()  # asked once on a machine and kept: then it is in the record when the recorder exits
    run = record(tmp_path, f"stages:\n- {{name: s, run: {burn}}}\n")
    hardware = json.loads((run / "manifest.json").read_text())["hardware"]
    cpu_s = stage_events(run, "s")["stage_ended"]["cpu_s"]
    stage = build_report(run, protocol="paper")["stages"][0]
    assert stage["energy_j"]["cpu"] == pytest.approx(hardware["cpu_tdp_w"] * cpu_s / hardware["cores"])


def test_a_failing_stage_ends_the_run_and_the_rest_is_skipped(tmp_path: Path) -> None:
    run = record(tmp_path, "stages:\n- {name: bad, run: sh -c 'exit 7'}\n- {name: after, run: 'true'}\n")
    end = stage_events(run, "bad")["stage_ended"]
    assert (end["status"], end["exit_code"], end["signal"]) == ("failed", 7, None)
    assert stage_events(run, "after")["stage_skipped"]["reason"] == "stage bad failed"
    last = events(run, "run_ended")[0]
    assert (last["status"], last["exit_code"]) == ("failed", 1)


def test_a_stage_ended_by_a_signal_says_which(tmp_path: Path) -> None:
    run = record(tmp_path, "stages:\n- {name: s, run: sh -c 'kill -SEGV $$'}\n")
    end = stage_events(run, "s")["stage_ended"]
    assert end["signal"] == signal.SIGSEGV and end["exit_code"] == 128 + signal.SIGSEGV


def test_output_goes_to_the_log_and_input_is_empty(tmp_path: Path) -> None:
    run = record(tmp_path, "stages:\n- {name: s, run: sh -c 'cat; echo out; echo err >&2'}\n")
    assert sorted((run / "logs" / "s.log").read_text().split()) == ["err", "out"]


def test_a_flood_of_output_is_capped_and_never_blocks_the_stage(tmp_path: Path) -> None:
    code = "print('first')\nfor i in range(200000): print('line', i)\nprint('last')"
    run = record(tmp_path, f"log_cap: 100kB\nstages:\n- {{name: s, run: {python(code)}}}\n")
    kept = (run / "logs" / "s.log").read_bytes()
    assert kept.startswith(b"first\nline 0\n") and kept.endswith(b"line 199999\nlast\n")
    assert 50_000 < len(kept) < 100_200
    assert "log_capped" in warning_codes(run)
    assert stage_events(run, "s")["stage_ended"]["status"] == "completed"


def test_environment_and_directory_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caller, then recipe, then stage; GPUs become CUDA_VISIBLE_DEVICES; kdwatch tells where to report."""
    (tmp_path / "w" / "deep").mkdir(parents=True)
    monkeypatch.setenv("FROM_CALLER", "1")
    monkeypatch.setenv("KDWATCH_EVENTS", "/outer")
    code = "import os, json; print(json.dumps([dict(os.environ), os.getcwd()]))"
    run = record(
        tmp_path,
        f"""
        env: {{A: recipe, B: recipe}}
        workdir: w
        stages:
        - {{name: s, run: {python(code)}, env: {{B: stage, N: 3, T: true}}, workdir: deep, gpus: [1, 0]}}
        """,
    )
    env, cwd = json.loads((run / "logs" / "s.log").read_text())
    assert (env["FROM_CALLER"], env["A"], env["B"], env["N"], env["T"]) == ("1", "recipe", "stage", "3", "true")
    assert env["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert cwd == str(tmp_path / "w" / "deep")
    assert env["KDWATCH_RUN_DIR"] == str(run)
    assert env["KDWATCH_EVENTS"] == str(run / "progress" / "s.jsonl")


def test_stages_leave_no_zombie_in_the_recorder(tmp_path: Path) -> None:
    run = begin(
        tmp_path,
        "stages:\n- {name: a, run: 'true'}\n- {name: b, run: sh -c '(sleep 0.1 &)'}\n- {name: s, run: sleep 600}\n",
    )
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the last stage")
    recorder = recorder_pid(run)
    children = Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split()
    assert len(children) == 1, children  # the shim of the stage that runs
    os.kill(recorder, signal.SIGTERM)
    finish(run)


def test_a_stage_is_the_leader_of_its_own_process_group(tmp_path: Path) -> None:
    run = record(tmp_path, f"stages:\n- {{name: s, run: {python('import os; print(os.getpgid(0) == os.getpid())')}}}\n")
    assert (run / "logs" / "s.log").read_text().strip() == "True"
    started = stage_events(run, "s")["stage_started"]
    assert started["pid"] == started["pgid"] > 1


def test_timeout_ends_a_stage_that_ignores_term(tmp_path: Path) -> None:
    stubborn = python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    run = record(tmp_path, f"stages:\n- {{name: s, run: {stubborn}, timeout: 0.7, grace: 0.4}}\n")
    end = stage_events(run, "s")["stage_ended"]
    assert (end["status"], end["signal"]) == ("failed", signal.SIGKILL)
    assert "timeout" in warning_codes(run)
    started = stage_events(run, "s")["stage_started"]
    assert 1.0 <= end["t"] - started["t"] < 6.0


def test_stop_gives_term_first(tmp_path: Path) -> None:
    """A stage that obeys TERM can save its work; the run ends as stopped, what follows is skipped."""
    polite = python(
        "import signal, sys, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    run = begin(tmp_path, f"stages:\n- {{name: s, run: {polite}}}\n- {{name: after, run: 'true'}}\n")
    wait_for(lambda: (run / "logs" / "s.log").exists() and "ready" in (run / "logs" / "s.log").read_text(), "the stage")
    control.request(run, "stop")
    last = finish(run)
    assert (last["status"], last["exit_code"]) == ("stopped", 143)
    assert "saved" in (run / "logs" / "s.log").read_text()
    assert "stage_skipped" in stage_events(run, "after")
    assert events(run, "control")[0]["action"] == "stop"


def test_skip_and_stop_of_one_stage(tmp_path: Path) -> None:
    run = begin(
        tmp_path,
        """
        stages:
        - {name: a, run: sleep 600}
        - {name: b, run: "true"}
        - {name: c, run: sleep 600}
        - {name: d, run: "true"}
        """,
    )
    wait_for(lambda: "stage_started" in stage_events(run, "a"), "stage a")
    control.request(run, "skip", stage="b")
    control.request(run, "skip", stage="a")
    wait_for(lambda: "stage_started" in stage_events(run, "c"), "stage c")
    control.request(run, "stop_stage", stage="c", now=True)
    last = finish(run)
    status = {s["name"]: s["status"] for s in build_report(run)["stages"]}
    assert status == {"a": "skipped", "b": "skipped", "c": "stopped", "d": "completed"}
    assert (last["status"], last["exit_code"]) == ("stopped", 143)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_recorder_stops_the_run_in_order(tmp_path: Path, number: signal.Signals) -> None:
    run = begin(tmp_path, "stages:\n- {name: s, run: sleep 600}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    os.kill(recorder_pid(run), number)
    last = finish(run)
    assert (last["status"], last["exit_code"]) == ("stopped", 128 + number)
    assert stage_events(run, "s")["stage_ended"]["status"] == "stopped"


@pytest.mark.parametrize("how", ["signal", "request"])
def test_a_run_can_be_stopped_during_its_idle_baseline(tmp_path: Path, how: str) -> None:
    run = begin(tmp_path, "idle_baseline: 10m\nstages:\n- {name: s, run: 'true'}\n")
    wait_for(lambda: events(run, "clock"), "the recorder's begin")
    if how == "signal":
        os.kill(recorder_pid(run), signal.SIGTERM)
    else:
        control.request(run, "stop")
    assert finish(run)["status"] == "stopped"
    assert "stage_skipped" in stage_events(run, "s")


def test_the_recorder_ignores_the_terminals_end(tmp_path: Path) -> None:
    run = begin(tmp_path, "stages:\n- {name: s, run: sleep 1}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    assert os.getsid(recorder_pid(run)) == recorder_pid(run)
    os.kill(recorder_pid(run), signal.SIGHUP)
    assert finish(run)["status"] == "completed"


def test_what_a_stage_leaves_behind_is_named_and_ended(tmp_path: Path) -> None:
    """A child in a session of its own that ignores TERM: the window lasts until its end, and it does end."""
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    start = f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)"
    code = f"import subprocess, sys, time; {start}; time.sleep(.3)"
    run = record(tmp_path, f"stages:\n- {{name: s, run: {python(code)}, grace: 0.5}}\n- {{name: after, run: 'true'}}\n")
    end, started = stage_events(run, "s")["stage_ended"], stage_events(run, "s")["stage_started"]
    assert end["status"] == "completed" and end["t"] - started["t"] >= 1.0
    assert "leftover" in warning_codes(run)
    assert stage_events(run, "after")["stage_ended"]["status"] == "completed"


def test_cpu_time_of_exited_children_counts(tmp_path: Path) -> None:
    """notes 2.4: short children's time is only in what wait4 gives. Four of 0.2 s each must be seen."""
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    code = f"import subprocess, sys\nfor _ in range(4): subprocess.run([sys.executable, '-c', {burn!r}])"
    run = record(tmp_path, f"stages:\n- {{name: s, run: {python(code)}}}\n")
    assert 0.8 <= stage_events(run, "s")["stage_ended"]["cpu_s"] < 4.0


def test_progress_of_a_stage_is_checked_and_recorded(tmp_path: Path) -> None:
    code = """
        import json, os
        from kdwatch import progress
        progress.phase("load")
        progress.progress(tokens=5, step=1, total_steps=2, loss=2.5)
        progress.progress(tokens=9, loss=float("nan"))
        progress.quality({"gsm8k": {"student": 0.5, "teacher": 1.0}}, q=0.5)
        with open(os.environ["KDWATCH_EVENTS"], "ab") as f:
            f.write(b'{"type": "run_ended", "status": "failed"}\\n')
            f.write(b'{"type": "progress", "tokens": -4}\\n{"type": "progress", "tokens": 1e400}\\n')
            f.write(b'not json\\n\\xff\\xfe\\n[1]\\n' + b'x' * 200000 + b'\\n')
            f.write(b'{"type": "warning", "code": "mine", "text": "' + b'y' * 5000 + b'"}\\n')
            f.write(b'{"type": "progress", "tokens": 12}')
        """
    run = record(tmp_path, f"stages:\n- {{name: s, run: {python(code)}}}\n")
    report = build_report(run)
    stage = report["stages"][0]
    assert report["status"] == "completed"
    assert stage["tokens"] == 9 and stage["step"] == 1 and stage["total_steps"] == 2
    assert "load" in stage["phases_s"]
    assert report["quality"]["q"] == 0.5
    assert {"mine", "progress_refused"} <= warning_codes(run)
    assert all(len(json.dumps(e)) < 5000 for e in events(run))


def test_a_command_that_cannot_be_started_fails_with_the_reason(tmp_path: Path) -> None:
    """The file goes between the check of the recipe and the start."""
    script = tmp_path / "gone.sh"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    run = record(tmp_path, "stages:\n- {name: s, run: ./gone.sh}\n")
    assert stage_events(run, "s")["stage_ended"]["exit_code"] == 127
    texts = [e["text"] for e in events(run, "warning") if e["code"] == "not_started"]
    assert texts and "gone.sh" in texts[0]


def test_idle_baseline_gives_net_energy(tmp_path: Path, package_250w) -> None:
    """Constant 250 W idle and working: net energy is about nothing, and never below."""
    run = record(tmp_path, "idle_baseline: 1.5s\nstages:\n- {name: s, run: sleep 1.5}\n")
    report = build_report(run)
    baseline = events(run, "baseline")[0]["idle_w"]
    assert next(w for key, w in baseline.items() if key.startswith("cpu")) == pytest.approx(250.0, rel=0.25)
    assert 0.0 <= report["stages"][0]["net_energy_j"] <= 0.3 * report["stages"][0]["energy_j"]["total"]
