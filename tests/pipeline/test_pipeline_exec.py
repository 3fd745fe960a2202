"""`kdwatch exec` behaves as the command does: output, input, exit code, signals, terminal; and measures it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import naive
import pytest
from pipeline_helpers import events, wait_for

from kdwatch.ledger.report import build_report
from kdwatch.pipeline import processes
from kdwatch.rundir.paths import list_runs

EXEC = [sys.executable, "-m", "kdwatch", "exec"]

pytestmark = pytest.mark.usefixtures("mark")


def kdwatch_exec(*args: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EXEC, *args], capture_output=True, text=True, timeout=60, check=False, **kwargs)


def test_output_input_and_exit_code_pass_through() -> None:
    done = kdwatch_exec("--", "sh", "-c", "cat; echo err >&2; exit 5", input="from stdin")
    assert (done.stdout, done.stderr, done.returncode) == ("from stdin", "err\n", 5)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_command_ended_by_signal_n_gives_128_plus_n(number: signal.Signals) -> None:
    assert kdwatch_exec("--", "sh", "-c", f"kill -{int(number)} $$").returncode == 128 + number


def test_report_is_the_contracts_object(tmp_path: Path, package_250w) -> None:
    """250 W for about 1.5 s: the package's counter gives 250 J a second (sensor settable: KDWATCH_POWERCAP_ROOT)."""
    out = tmp_path / "r.json"
    done = kdwatch_exec(
        "--name", "nap", "--report", str(out), "--", sys.executable, "-c", "import time; time.sleep(1.5)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    report = json.loads(out.read_text(), parse_constant=lambda c: pytest.fail(c))
    assert (report["name"], report["status"]) == ("nap", "completed")
    (stage,) = report["stages"]
    assert (stage["name"], stage["kind"], stage["exit_code"]) == ("nap", "other", 0)
    assert stage["energy_j"]["cpu"] == pytest.approx(250.0 * stage["duration_s"], rel=0.25)
    assert stage["devices"][0]["source"] == "counter"
    assert stage["energy_j"]["total"] + report["unattributed_j"] == pytest.approx(report["total_j"], rel=1e-9)


def test_json_goes_to_stdout_and_the_commands_output_to_stderr() -> None:
    done = kdwatch_exec("--json", "--", "sh", "-c", "echo data; exit 4")
    assert json.loads(done.stdout)["stages"][0]["exit_code"] == 4
    assert (done.stderr, done.returncode) == ("data\n", 4)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "COMMAND"),
        (("--name", "a/b", "--", "true"), 2, "--name"),
        (("--report", "/nonexistent/dir/r.json", "--", "true"), 2, "--report"),
        (("--region", "FRB", "--", "true"), 2, "FRA"),
        (("--pue", "0.5", "--", "true"), 2, "--pue"),
        (("--no-such-option", "--", "true"), 2, "--no-such-option"),
        (("--", "no-such-command-here"), 127, "not found"),
        (("--", "/etc/passwd"), 126, "cannot be run"),
    ],
)
def test_bad_usage_ends_before_the_command_starts(args: tuple[str, ...], code: int, words: str) -> None:
    done = kdwatch_exec(*args)
    assert done.returncode == code
    assert done.stdout == "" and words in done.stderr and "Traceback" not in done.stderr
    assert list_runs() == []


def test_options_of_the_command_are_the_commands() -> None:
    done = kdwatch_exec("sh", "-c", 'echo "$@"', "sh", "--json", "--name", "x", "--help")
    assert done.stdout == "--json --name x --help\n"


def start(code: str, **kwargs) -> subprocess.Popen[str]:
    """A command under exec, started far enough to have said `ready`."""
    process = subprocess.Popen([*EXEC, "--", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **kwargs)
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


LISTEN = """
import signal, sys, time
def got(n, _):
    print("got", n, flush=True)
    sys.exit(40 + n)
for n in (1, 2, 10, 15):
    signal.signal(n, got)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command_and_the_record_is_whole(number: signal.Signals) -> None:
    """Fault 58: the command gets the signal, its exit code is passed on, and the run is written to its end."""
    process = start(LISTEN)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (f"got {int(number)}\n", 40 + number)
    (run,) = list_runs()
    assert events(run, "stage_ended")[0]["exit_code"] == 40 + number
    assert events(run, "run_ended")


def test_ctrl_c_on_a_terminal_reaches_the_command_once() -> None:
    """The terminal sends SIGINT to the whole group; passing it on as well would make two of one."""
    code = (
        "import signal, time\nhits = []\nsignal.signal(signal.SIGINT, lambda *_: hits.append(1))\n"
        "print('tty', open('/dev/tty').isatty(), flush=True)\nprint('ready', flush=True)\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: time.sleep(0.05)\nprint('hits', len(hits), flush=True)"
    )
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*EXEC, "--", sys.executable, "-c", code])
    seen = b""
    while b"ready" not in seen:
        seen += os.read(fd, 1024)
    os.write(fd, b"\x03")
    try:
        while data := os.read(fd, 1024):
            seen += data
    except OSError:
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"tty True" in seen and b"hits 1\r\n" in seen


def test_kdwatch_stop_ends_the_command() -> None:
    process = start("import time; print('ready', flush=True); time.sleep(600)")
    (run,) = list_runs()
    stopped = subprocess.run(
        [sys.executable, "-m", "kdwatch", "stop", "last"], capture_output=True, timeout=60, check=False
    )
    assert stopped.returncode == 0
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert events(run, "run_ended")[0]["status"] == "stopped"


@pytest.mark.fault(72)
def test_the_recorders_death_leaves_the_command_alone() -> None:
    """Fault 72 and issue 3: no monitor fault may change a stage's exit status."""
    process = start("import time; print('ready', flush=True); time.sleep(1.5); raise SystemExit(7)")
    (run,) = list_runs()
    os.kill(json.loads((run / "manifest.json").read_text())["recorder"]["pid"], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == 7
    with pytest.raises(SystemExit) as ended:
        naive.monitored(lambda: 7, lambda: json.loads("the answer of a service"))
    assert ended.value.code != 7


def test_when_exec_is_killed_its_recorder_ends_too_and_says_so() -> None:
    process = start("import time; print('ready', flush=True); time.sleep(600)")
    (run,) = list_runs()
    child = events(run, "stage_started")[0]["pid"]
    process.kill()
    process.wait()
    ended = wait_for(lambda: events(run, "run_ended"), "the recorder's end")
    assert ended[0]["status"] == "interrupted"
    wait_for(lambda: not processes.is_alive(child), "the command's end")


@pytest.mark.parametrize("with_recorder", [False, True])
def test_nothing_outlives_a_killed_exec(with_recorder: bool) -> None:
    """A command that ignores TERM, with a child in a session of its own; 2 s as for a recipe's stages."""
    process = start(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    (run,) = list_runs()
    child = events(run, "stage_started")[0]["pid"]
    below = processes.descendants(child)
    recorder = json.loads((run / "manifest.json").read_text())["recorder"]["pid"]
    if with_recorder:
        os.kill(recorder, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(processes.is_alive, [child, *below])), "the end of all", limit_s=2.0 + 3.0)
    assert len(below) == 1
    wait_for(lambda: not processes.is_alive(recorder), "the recorder's end")
    assert build_report(run)["status"] == "interrupted"


def test_a_command_measured_at_once_costs_it_little(package_250w) -> None:
    """The command starts after the recorder measures, so its time is its own: 0.3 s of sleep are 0.3 s of stage."""
    begin = time.monotonic()
    assert kdwatch_exec("--", "sleep", "0.3").returncode == 0
    whole = time.monotonic() - begin
    (run,) = list_runs()
    start_t, end_t = (events(run, kind)[0]["t"] for kind in ("stage_started", "stage_ended"))
    assert 0.3 <= end_t - start_t <= min(whole, 2.0)
