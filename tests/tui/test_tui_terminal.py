"""The program as a person runs it: on a pseudo-terminal and in tmux."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tui_live import live_run
from tui_runs import Shape, make_run
from tui_terminal import Terminal, kdwatch_home, restored

from kdwatch.rundir.reader import RunReader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals as Linux has them")


@pytest.fixture
def run(own_home: Path) -> Path:
    """A finished run."""
    return make_run(own_home / "runs" / "r1", Shape(gpus=2))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None)])
def test_signals_restore_the_terminal(run: Path, own_home: Path, number: int, code: int | None) -> None:
    """SIGTERM and SIGHUP end it with 128+n, alternate screen and mouse left; SIGINT does no harm."""
    terminal = Terminal(["replay", "r1"], **kdwatch_home(own_home))
    terminal.wait_for("teacher logits")
    terminal.kill(number)
    if code is None:
        terminal.read(0.5)
        terminal.send("q")
        assert terminal.wait() == 0
    else:
        assert terminal.wait() == code
    assert restored(terminal.written) and b"Traceback" not in terminal.written


def test_a_terminal_that_goes_away_ends_the_screen_and_not_the_run(own_home: Path) -> None:
    """The SSH connection drops: the pty's master is closed."""
    with live_run(own_home / "runs" / "live") as writer:
        terminal = Terminal(["watch", "live"], **kdwatch_home(own_home))
        terminal.wait_for("prerun")
        os.close(terminal.fd)
        end = time.monotonic() + 90
        while os.waitpid(terminal.pid, os.WNOHANG)[0] == 0:
            assert time.monotonic() < end, "the screen stayed without a terminal"
            time.sleep(0.05)
        writer.write_to(5.0)
        assert RunReader(own_home / "runs" / "live").status() == "running"


def test_bytes_per_tick_with_sixteen_gpus(own_home: Path) -> None:
    """At most 8 kB a tick at 120x40 (the issue's limit), over ticks in which every device's power changed."""
    shape = Shape(gpus=16, gap=None, hz=1.0)
    with live_run(own_home / "runs" / "live", shape) as writer:
        for k in range(2, 40):
            writer.write_to(float(k))
        terminal = Terminal(["watch", "live"], (120, 40), KDWATCH_REFRESH="0.5", **kdwatch_home(own_home))
        terminal.wait_for("GPU 15")
        terminal.read(1.5)
        sizes = []
        for k in range(40, 48):
            writer.write_to(float(k))
            sizes.append(len(terminal.read(0.6)))
        terminal.send("\x11")
        terminal.wait()
    assert any(sizes), "nothing was drawn"
    assert sum(sizes) / len(sizes) <= 8_000, sizes


@pytest.mark.parametrize(
    ("environment", "mark"),
    [
        ({"NO_COLOR": "1"}, "━"),
        ({"COLORTERM": ""}, "━"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "#"),
    ],
    ids=["no-color", "256-colours", "ascii"],
)
def test_plain_terminals(run: Path, own_home: Path, environment: dict[str, str], mark: str) -> None:
    """Greys under NO_COLOR, 256 colours without truecolor, ASCII in the C locale."""
    terminal = Terminal(["watch", "r1"], (100, 30), **{**kdwatch_home(own_home), **environment})
    terminal.wait_for("teacher logits")
    terminal.wait_for(mark)
    terminal.send("q")
    assert terminal.wait() == 0
    if "NO_COLOR" in environment:
        colours = {tuple(c) for c in _rgb(terminal.written)}
        assert all(max(c) - min(c) <= 1 for c in colours), colours


def _rgb(written: bytes) -> list[list[int]]:
    """Truecolor foregrounds and backgrounds that were sent."""
    import re

    return [[int(x) for x in m.groups()] for m in re.finditer(rb"[34]8;2;(\d+);(\d+);(\d+)", written)]


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_dumb_terminals_get_lines(run: Path, own_home: Path, term: str) -> None:
    """No escape code at all; the final table comes."""
    terminal = Terminal(["watch", "r1"], (100, 50), **{**kdwatch_home(own_home), "TERM": term})
    assert terminal.wait() == 0
    assert b"\x1b" not in terminal.written and b"teacher logits" in terminal.written


def kdwatch(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program with its output piped."""
    return subprocess.run(
        [sys.executable, "-m", "kdwatch", *arguments],
        env={**os.environ, **kdwatch_home(home)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [["replay", "nothing-like-it"], ["replay", "--at", "noon"], ["replay", "--speed", "0"]]
)
def test_bad_arguments_are_one_line(run: Path, own_home: Path, arguments: list[str]) -> None:
    """Exit 2, nothing on stdout, no traceback."""
    answer = kdwatch(own_home, *arguments)
    assert answer.returncode == 2 and answer.stdout == "" and "Traceback" not in answer.stderr


def test_kdwatch_alone_is_the_home_screen_on_a_terminal_and_the_help_in_a_pipe(run: Path, own_home: Path) -> None:
    """The list of runs; enter opens one, q leaves."""
    terminal = Terminal([], (100, 30), **kdwatch_home(own_home))
    terminal.wait_for("kd-qwen")
    terminal.send("\r")
    terminal.wait_for("teacher logits")
    terminal.send("q")
    assert terminal.wait() == 0 and restored(terminal.written)
    assert "Commands:" in kdwatch(own_home).stdout


def test_a_new_user_comes_from_the_samples_to_a_replay_and_a_plan(own_home: Path) -> None:
    """An empty home in a checkout: what to do stands there; p plays a sample, 2 x faster, 4 plans, q leaves."""
    terminal = Terminal([], (80, 24), **kdwatch_home(own_home))
    terminal.wait_for("(sample)")
    terminal.wait_for("kdwatch run recipe.yaml")
    terminal.send("p")
    terminal.wait_for("replay 1x")
    terminal.send(">")
    terminal.wait_for("replay 2x")
    terminal.send("4")
    terminal.wait_for("candidates")
    terminal.send("q")
    assert terminal.wait() == 0 and restored(terminal.written)


def test_the_wheel_moves_text_and_cursor(own_home: Path) -> None:
    """As a terminal reports it: three lines of the help a notch, one run of the list."""
    for name in ("r1", "r2"):
        make_run(own_home / "runs" / name, Shape(gpus=2))
    terminal = Terminal(["watch", "r1"], (80, 24), **kdwatch_home(own_home))
    terminal.wait_for("teacher logits")
    terminal.send("?")
    terminal.wait_for("1-21 of")
    down, up = "\x1b[<65;20;10M", "\x1b[<64;20;10M"
    terminal.send(down)
    terminal.wait_for("4-24 of")
    terminal.send(up)
    terminal.wait_for("1-21 of")
    terminal.send("1")
    terminal.wait_for("(sample)")
    back = terminal.screen.buffer[6][10].bg
    assert terminal.screen.buffer[3][10].bg != back, "the first run is selected"
    terminal.send(down)
    end = time.monotonic() + 90
    while terminal.screen.buffer[4][10].bg == back or terminal.screen.buffer[3][10].bg != back:
        assert time.monotonic() < end, "the second run is not selected"
        terminal.read(0.05)
    terminal.send("\x11")
    assert terminal.wait() == 0


def test_the_command_line_outranks_the_environment(run: Path, own_home: Path) -> None:
    """--units over KDWATCH_UNITS; --readonly takes the control keys away."""
    terminal = Terminal(
        ["watch", "r1", "--units", "kWh", "--readonly"], (200, 30), KDWATCH_UNITS="Wh", **kdwatch_home(own_home)
    )
    terminal.wait_for(" kWh")
    assert "stop stage" not in terminal.text
    terminal.send("q")
    assert terminal.wait() == 0
    assert "82.2 Wh" in kdwatch(own_home, "watch", "r1", "--once", "--units", "Wh").stdout


def test_piped_replay_prints_the_table(run: Path, own_home: Path) -> None:
    """No terminal: lines, and the data on stdout only."""
    answer = kdwatch(own_home, "replay", "r1")
    assert answer.returncode == 0 and "total" in answer.stdout and answer.stderr == ""
    once = kdwatch(own_home, "replay", "r1", "--once")
    assert once.returncode == 0 and "teacher logits" in once.stdout


RECIPE = """\
name: tmux-check
regime: custom
stages:
  - name: long
    kind: student
    run: {python} -c "import time; print('at work', flush=True); time.sleep(600)"
    grace: 1s
"""


class Tmux:
    """A tmux server of the test's own."""

    def __init__(self) -> None:
        self.name = f"kdwatch-test-{uuid.uuid4().hex[:8]}"

    def __call__(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout

    def wait_for(self, text: str, target: str = "w") -> str:
        """Until the pane shows `text`."""
        end = time.monotonic() + 90
        while text not in (pane := self("capture-pane", "-p", "-t", target)):
            assert time.monotonic() < end, f"{text!r} did not come:\n{pane}"
            time.sleep(0.1)
        return pane


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_start_detach_attach_stop_in_tmux(own_home: Path, tmp_path: Path) -> None:
    """run starts; the client and its server are killed and the run goes on; watch returns; S y stops it."""
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(python=sys.executable))
    environment = [f"{k}={v}" for k, v in kdwatch_home(own_home).items()]
    command = ["env", *environment, sys.executable, "-m", "kdwatch"]
    tmux = Tmux()
    try:
        tmux(
            "new-session",
            "-d",
            "-s",
            "w",
            "-x",
            "80",
            "-y",
            "24",
            shlex.join([*command, "run", str(tmp_path / "recipe.yaml")]),
        )
        tmux.wait_for("long")
        tmux.wait_for("live")
        tmux("kill-server")
        path = next((own_home / "runs").iterdir())
        assert RunReader(path).status() == "running"
        tmux = Tmux()
        tmux("new-session", "-d", "-s", "w", "-x", "80", "-y", "24", shlex.join([*command, "watch", "last"]))
        tmux.wait_for("live")
        tmux("send-keys", "-t", "w", "S")
        tmux.wait_for("Stop the whole run tmux-check?")
        tmux("send-keys", "-t", "w", "y")
        tmux.wait_for("stopped")
        assert RunReader(path).status() == "stopped"
    finally:
        tmux("kill-server")
        kdwatch(own_home, "stop", "last", "--kill")
