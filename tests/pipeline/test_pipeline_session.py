"""`kdwatch.stage` inside a program: nesting, repetition, threads, forks; and nothing of it reaches the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import naive
import pytest
from pipeline_helpers import events

from kdwatch.ledger.report import build_report
from kdwatch.rundir.paths import list_runs

pytestmark = pytest.mark.usefixtures("mark")


def run_program(code: str, env: dict[str, str] | None = None) -> Any:
    """Run a Python program, which may import `naive`; the JSON value that it prints last."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(naive.__file__).parent), **(env or {})},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


def stages(run: Path) -> dict[str, dict[str, Any]]:
    return {s["name"]: s for s in build_report(run)["stages"]}


def test_nested_and_repeated_stages(package_250w) -> None:
    """250 W throughout. Faults 50 and 52: windows of one name add up, the gap between them stays unattributed, and a
    nested stage takes its time's energy from the outer one, which goes on after it."""
    result = run_program(
        """
        import json, time, kdwatch
        with kdwatch.stage("outer", kind="student") as outer:
            time.sleep(1)
            with kdwatch.stage("inner") as inner:
                time.sleep(1.5)
            time.sleep(1)
        with kdwatch.stage("again"): time.sleep(1)
        time.sleep(1)
        with kdwatch.stage("again") as second: time.sleep(1)
        found = [stage.measurement() for stage in (outer, inner, second)]
        print(json.dumps([[m.time, m.total_energy] for m in found]))
        """
    )
    for seconds, joules in result:
        assert joules == pytest.approx(250.0 * seconds, rel=0.25)
    (run,) = list_runs()
    report = build_report(run)
    found = stages(run)
    assert found["inner"]["energy_j"]["total"] == pytest.approx(375.0, rel=0.25)
    assert found["outer"]["energy_j"]["total"] == pytest.approx(500.0, rel=0.25)
    assert found["again"]["duration_s"] == pytest.approx(2.0, rel=0.25)
    assert found["again"]["energy_j"]["total"] == pytest.approx(500.0, rel=0.25)
    assert report["unattributed_j"] >= 200.0
    assert sum(s["energy_j"]["total"] for s in report["stages"]) + report["unattributed_j"] == pytest.approx(
        report["total_j"], rel=1e-9
    )
    assert found["outer"]["kind"] == "student" and report["status"] == "completed"


def test_windows_as_in_zeus(package_250w) -> None:
    seconds, joules, packages, none = run_program(
        """
        import json, time, kdwatch
        kdwatch.begin_window("epoch")
        time.sleep(1)
        m = kdwatch.end_window("epoch")
        import logging; logging.disable(logging.CRITICAL)
        print(json.dumps([m.time, m.total_energy, len(m.cpu_energy), kdwatch.end_window("epoch")]))
        """
    )
    assert joules == pytest.approx(250.0 * seconds, rel=0.25)
    assert packages == 1 and none is None


@pytest.mark.fault(58)
def test_the_hosts_signal_handlers_stay(package_250w) -> None:
    """Fault 58: other tools replace SIGINT and SIGTERM handlers."""
    same = run_program(
        """
        import json, signal
        signal.signal(signal.SIGTERM, lambda *_: None)
        known = range(1, signal.NSIG)
        before = [signal.getsignal(n) for n in known]
        import kdwatch
        with kdwatch.stage("s"): pass
        wakeup = signal.set_wakeup_fd(-1)
        ours = before == [signal.getsignal(n) for n in known]
        import naive
        naive.own_handlers()
        print(json.dumps([ours, wakeup, before == [signal.getsignal(n) for n in known]]))
        """
    )
    assert same == [True, -1, False]


@pytest.mark.fault(59)
def test_a_stage_in_a_thread() -> None:
    """Fault 59: creating the tracker off the main thread raises elsewhere."""
    naive_way = run_program(
        """
        import json, threading, kdwatch, naive
        problem = []
        def work():
            with kdwatch.stage("threaded") as s: s.add_tokens(7)
            try: naive.own_handlers()
            except ValueError as e: problem.append(str(e))
        t = threading.Thread(target=work); t.start(); t.join()
        print(json.dumps(problem))
        """
    )
    assert "main thread" in naive_way[0]
    (run,) = list_runs()
    assert stages(run)["threaded"]["tokens"] == 7


def test_tokens_and_steps_add_up_over_windows() -> None:
    run_program(
        """
        import kdwatch
        for _ in range(3):
            with kdwatch.stage("train", kind="student") as s:
                for _ in range(100): s.add_tokens(2, input_tokens=1)
                s.progress(step=3, total_steps=4, loss=1.5)
                s.phase("save")
        """
    )
    (run,) = list_runs()
    train = stages(run)["train"]
    assert (train["tokens"], train["input_tokens"]) == (600, 300)
    assert len(events(run, "progress")) <= 12  # reports are thinned out, not one for each call


def test_an_exception_passes_and_is_recorded() -> None:
    run_program(
        """
        import kdwatch
        try:
            with kdwatch.stage("s"): raise KeyError("mine")
        except KeyError as e:
            assert e.args == ("mine",)
        """
    )
    (run,) = list_runs()
    assert stages(run)["s"]["status"] == "failed"


@pytest.mark.fault(58)
def test_os_exit_skips_no_record(tmp_path: Path) -> None:
    """Fault 58: os._exit runs no clean-up of ours; the recorder sees the end of the pipe."""
    code = (
        "import kdwatch, os, naive, pathlib, sys\nnaive.written_at_exit(pathlib.Path(sys.argv[1]))\n"
        "with kdwatch.stage('s'): os._exit(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "result")],
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(naive.__file__).parent)},
    )
    assert done.returncode == 3 and not (tmp_path / "result").exists()
    (run,) = list_runs()
    from pipeline_helpers import wait_for

    assert wait_for(lambda: events(run, "run_ended"), "the recorder's end")[0]["status"] == "interrupted"
    assert stages(run)["s"]["status"] == "interrupted"


@pytest.mark.parametrize("kill", ["recorder", "home", "name"])
def test_no_fault_of_measuring_reaches_the_program(tmp_path: Path, kill: str) -> None:
    """Fault 72. The recorder dies in mid-stage; the home cannot be written; the name is no name."""
    code = {
        "recorder": """
            import json, os, signal, kdwatch
            with kdwatch.stage("s") as s:
                run = kdwatch.session.default_session().run
                os.kill(json.load(open(run / "manifest.json"))["recorder"]["pid"], signal.SIGKILL)
                for _ in range(1000): s.add_tokens(1)
            with kdwatch.stage("t") as t: pass
            assert s.measurement() is None and t.measurement() is None
            """,
        "home": """
            import os, logging, kdwatch
            logging.disable(logging.CRITICAL)
            os.environ["KDWATCH_HOME"] = "/proc/nowhere"
            with kdwatch.stage("s") as s: s.add_tokens(1)
            assert s.measurement() is None
            """,
        "name": """
            import kdwatch
            with kdwatch.stage("../../../x\\x00\\n") as s: pass
            """,
    }[kill]
    run_program(code)


def test_a_fork_of_the_program_does_not_hold_the_run_open() -> None:
    """A data loader's worker inherits everything; the run must still end with the program that made it."""
    run_program(
        """
        import os, time, kdwatch
        with kdwatch.stage("s") as s:
            if os.fork() == 0:
                s.add_tokens(5)
                os.close(1); os.close(2)
                time.sleep(2)
                os._exit(0)
        os._exit(0)
        """
    )
    (run,) = list_runs()
    from pipeline_helpers import wait_for

    ended = wait_for(lambda: events(run, "run_ended"), "the end", limit_s=1.5)
    assert ended[0]["status"] == "completed"


@pytest.mark.fault(69)
def test_four_ranks_of_a_host_make_one_record(package_250w) -> None:
    """Fault 69: every rank writing the whole machine's energy multiplies it by the ranks."""
    code = "import kdwatch, time\nwith kdwatch.stage('train') as s: s.add_tokens(1); time.sleep(1)\n"
    code += "assert (s.measurement() is None) == (RANK != 0)"
    ranks = [
        subprocess.Popen([sys.executable, "-c", f"RANK = {rank}\n{code}"], env={**os.environ, "LOCAL_RANK": str(rank)})
        for rank in range(4)
    ]
    assert [process.wait(60) for process in ranks] == [0, 0, 0, 0]
    assert len(list_runs()) == 1
    machine_j = stages(list_runs()[0])["train"]["energy_j"]["total"]
    assert machine_j == pytest.approx(250.0, rel=0.5)
    assert naive.every_rank_the_machine(machine_j, 4) != pytest.approx(250.0, rel=0.5)


def test_inside_a_run_a_stage_is_a_phase_of_the_runs_stage(tmp_path: Path) -> None:
    from pipeline_helpers import python, record

    code = """
        import kdwatch
        with kdwatch.stage("tokenise") as s: s.add_tokens(5)
        with kdwatch.stage("train") as s: s.add_tokens(6)
        """
    run = record(tmp_path, f"stages:\n- {{name: own, run: {python(code)}}}\n")
    assert len(list_runs()) == 1
    own = stages(run)["own"]
    assert own["tokens"] == 11
    assert {"tokenise", "train"} <= set(own["phases_s"])


@pytest.mark.fault(61)
def test_the_sampler_is_not_starved_by_a_busy_program(package_250w) -> None:
    """Fault 61: the sampler is another process; a program that never lets go of the interpreter costs no samples. A
    thread of the program's own loses more than one in twenty."""
    naive_samples = run_program(
        """
        import json, time, kdwatch, naive, sys
        sys.setswitchinterval(10)
        with kdwatch.stage("busy"):
            sampler = naive.ThreadSampler(1.0)
            end = time.monotonic() + 3
            while time.monotonic() < end: pass
            print(json.dumps(len(sampler.times)))
        """
    )
    assert naive_samples < 0.95 * 3
    (run,) = list_runs()
    from kdwatch.rundir.reader import RunReader

    started, ended = events(run, "stage_started")[0]["t"], events(run, "stage_ended")[0]["t"]
    times = sorted({s.t for s in RunReader(run).iter_samples() if started <= s.t <= ended})
    gaps = [b - a for a, b in zip([started, *times], [*times, ended], strict=True)]
    assert max(gaps) < 1.5  # RAPL is read each second


def test_measuring_stays_light_in_the_program() -> None:
    code = "import sys, json, kdwatch\nwith kdwatch.stage('s'): pass\nprint(json.dumps(sorted(sys.modules)))"
    loaded = set(run_program(code))
    assert not loaded & {"torch", "polars", "pydantic", "yaml", "click", "textual", "codecarbon", "psutil"}
