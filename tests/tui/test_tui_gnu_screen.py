"""The real program in GNU screen: what a person sees, detached and attached again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tui_live import live_run
from tui_runs import Shape
from tui_terminal import Terminal, kdwatch_home

from kdwatch.rundir.control import take
from kdwatch.tui.plain import colours_of_screen
from kdwatch.tui.theme import DARK

pytestmark = pytest.mark.skipif(shutil.which("screen") is None, reason="needs GNU screen")


class Screen:
    """One session of GNU screen, its sockets in a directory of the test's own."""

    def __init__(self, directory: Path, home: Path, *command: str) -> None:
        self.name, self._copy = f"kdwatch-test-{uuid.uuid4().hex[:8]}", directory / "hardcopy"
        sockets = directory / "sockets"
        sockets.mkdir(mode=0o700)
        self.environment = {"SCREENDIR": str(sockets), "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
        environment = {**os.environ, **kdwatch_home(home), **self.environment, "TERM": "xterm-256color"}
        self._run = lambda *a: subprocess.run(["screen", *a], env=environment, timeout=30, check=False)
        self._run("-U", "-c", os.devnull, "-dmS", self.name, *command)

    def __call__(self, *command: str) -> None:
        """A screen command, as after ctrl+a and a colon."""
        self._run("-S", self.name, "-p", "0", "-X", *command)

    def wait_for(self, text: str) -> str:
        """Until the window shows `text`."""
        end = time.monotonic() + 90
        while text not in (shown := self.shown()):
            assert time.monotonic() < end, f"{text!r} did not come:\n{shown}"
            time.sleep(0.1)
        return shown

    def shown(self) -> str:
        """The window now; without a client, screen writes what is not ASCII as it likes."""
        self("hardcopy", str(self._copy))
        return self._copy.read_text(encoding="utf-8", errors="replace") if self._copy.exists() else ""


@pytest.fixture
def session(own_home: Path, tmp_path: Path) -> Iterator[Screen]:
    """`kdwatch watch live` in a detached session, on a run that lives."""
    with live_run(own_home / "runs" / "live", Shape(gpus=2, gap=None)) as writer:
        writer.write_to(20.0)
        screen = Screen(tmp_path, own_home, sys.executable, "-m", "kdwatch", "watch", "live")
        try:
            yield screen
        finally:
            screen("quit")


def test_detach_attach_and_stop_in_screen(session: Screen, own_home: Path) -> None:
    """Drawn while nobody looks; attached it fits the larger terminal and shows its own colours; the client dies and
    the screen stays; S y asks the recorder to stop."""
    session.wait_for("prerun")
    client = Terminal(["screen", "-U", "-r", session.name], (100, 30), "", **session.environment)
    client.wait_for("GPU 1")
    client.wait_for("━")
    client.read(1.0)
    seen = client.screen.buffer
    rows = client.text.splitlines()
    assert len(rows[0].rstrip()) > 80, "as wide as the terminal that looks"
    backs = {seen[y][x].bg for y in range(28) for x in range(100)}
    assert len(backs) == 1, f"one background, not attributes that were colours: {backs}"
    x = rows[0].index("kd-live")
    assert seen[0][x].bold and not seen[0][x].underscore and not seen[0][x].reverse
    os.close(client.fd)
    os.waitpid(client.pid, 0)
    session.wait_for("prerun")
    session("stuff", "S")
    session.wait_for("Stop the whole run kd-live?")
    session("stuff", "y")
    session.wait_for("asked the recorder")
    assert [r["action"] for r in take(own_home / "runs" / "live")] == ["stop"]


def test_screen_gets_256_colours() -> None:
    """Whatever COLORTERM says; elsewhere nothing is changed; greys of the dark theme stay grey among the 256."""
    from rich.color import Color, ColorSystem

    assert colours_of_screen({"COLORTERM": "truecolor", "TERM": "tmux-256color"}) == {}
    under = colours_of_screen({"STY": "1.x", "COLORTERM": "truecolor", "TERM": "screen"})
    assert under == {"COLORTERM": "", "TERM": "screen-256color"}
    for colour in (DARK.background, DARK.surface, DARK.panel):
        near = Color.parse(str(colour)).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
        assert near.red == near.green == near.blue
