"""Without a screen: one frame of text, or a line a second and a table; no Textual is imported for it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tui_live import live_run
from tui_runs import Shape, make_run

from kdwatch.cli.root import cli
from kdwatch.tui import plain
from kdwatch.tui.view.line import width_of


@pytest.mark.parametrize("width", [40, 80, 200])
def test_one_frame_of_text(tmp_path: Path, width: int) -> None:
    """Stages, plot and devices, no wider than asked, without escape codes."""
    text = plain.frame(make_run(tmp_path / "run", Shape(gpus=2)), width)
    lines = text.splitlines()
    assert max(width_of(line) for line in lines if not line.startswith("warning")) <= width and "\x1b" not in text
    assert any(line.lstrip().startswith("total") for line in lines) and "GPU 0" in text and "power total" in text


def test_one_frame_of_a_moment(tmp_path: Path) -> None:
    """100 s: the third stage runs and the fourth waits; `replay --once --at` prints that, without --at the end."""
    run = make_run(tmp_path / "run", Shape(gpus=1, gap=None))
    text = CliRunner().invoke(cli, ["replay", str(run), "--once", "--at", "1:40"]).stdout
    assert text == plain.frame(run, 80, at_t=100.0) and "0:01:40" in text.splitlines()[0]
    states = {line.split("  ")[0][3:].strip(): line for line in text.splitlines() if line[:2].strip().isdigit()}
    assert " run" in states["teacher logits"] and " wait" in states["student"]
    assert "completed" in CliRunner().invoke(cli, ["replay", str(run), "--once"]).stdout.splitlines()[0]


def test_follow_prints_a_line_per_tick_and_the_table_at_the_end(tmp_path: Path) -> None:
    """Time, watts, joules, stage; then the end, once."""
    out = io.StringIO()
    with live_run(tmp_path / "live") as writer:
        steps = iter([4.0, 8.0, None])

        def wait(_: float) -> None:
            t = next(steps)
            if t is not None:
                writer.write_to(t)
            else:
                writer.event("stage_ended", t=8.1, stage="prerun", status="completed", exit_code=0)
                writer.event("run_ended", t=8.2, status="completed", exit_code=0)

        assert plain.follow(tmp_path / "live", out, wait=wait) == 0
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["0:00:01", "0:00:04", "0:00:08"]
    assert all("1/5 prerun" in line and " W  " in line for line in lines[:3])
    assert "stage prerun completed" in out.getvalue() and "kd-live  completed" in out.getvalue()
    assert out.getvalue().isascii()


def test_plain_lines_call_the_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage's end and the run's, which came while it was followed; what had happened before is no news."""
    called: list[tuple[list[str] | None, str]] = []
    monkeypatch.setattr(
        plain.hooks, "call", lambda hooks, notice, frame: called.append((hooks.get(notice.kind), notice.kind))
    )
    (tmp_path / "config.toml").write_text("[hooks]\nstage_ended = ['a']\nrun_ended = ['b', 'c']\n")
    with live_run(tmp_path / "live") as writer:

        def wait(_: float) -> None:
            writer.event("stage_ended", t=3.1, stage="prerun", status="completed", exit_code=0)
            writer.event("run_ended", t=3.2, status="completed", exit_code=0)

        writer.write_to(3.0)
        assert plain.follow(tmp_path / "live", io.StringIO(), wait=wait) == 0
    assert called == [(["a"], "stage_ended"), (["b", "c"], "run_ended")]
    called.clear()
    assert plain.follow(tmp_path / "live", io.StringIO()) == 0 and not called


def test_options_reach_plain_lines(tmp_path: Path) -> None:
    """`--units` of the command line outranks the default (joules) in plain lines too (docs/screens.md, Settings)."""
    run = make_run(tmp_path / "run", Shape(gpus=1))
    shown = {}
    for unit in ("J", "kWh"):
        out = io.StringIO()
        plain.follow(run, out, command_line={"units": unit})
        shown[unit] = out.getvalue()
        assert CliRunner().invoke(cli, ["watch", str(run), "--plain", "--units", unit]).stdout == shown[unit]
    assert "Wh" in shown["kWh"] and "Wh" not in shown["J"]


def test_follow_ends_quietly_when_its_reader_goes(tmp_path: Path) -> None:
    """`kdwatch watch | head` must not end in a traceback."""

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    assert plain.follow(make_run(tmp_path / "run"), Closed()) == 0


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, its output piped."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_plain_output_imports_no_textual_polars_or_torch(tmp_path: Path) -> None:
    """Headless commands stay light."""
    run = make_run(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from kdwatch.tui import plain; print(plain.frame(Path(sys.argv[1])));"
        "print([m for m in ('textual','polars','torch','transformers','codecarbon','plotext') if m in sys.modules])"
    )
    assert run_python(code, str(run)).stdout.splitlines()[-1] == "[]"


def test_run_and_replay_screens_import_no_polars_or_torch(tmp_path: Path) -> None:
    """Opened, drawn and closed, live and in replay."""
    run = make_run(tmp_path / "run")
    code = """
import asyncio, sys
from pathlib import Path
from kdwatch.tui.app import KdwatchApp
async def main():
    for replay in (False, True):
        app = KdwatchApp(Path(sys.argv[1]), replay=replay)
        async with app.run_test(size=(120, 40)) as pilot:
            while app.frame is None:
                await pilot.pause(0.01)
            await pilot.press("z", "d", "u", "5", "2")
asyncio.run(main())
print([m for m in ("polars", "torch", "transformers", "codecarbon", "numpy", "plotext") if m in sys.modules])
"""
    answer = run_python(code, str(run))
    assert answer.stdout.splitlines()[-1:] == ["[]"], answer.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_of_the_pipe_will_do(tmp_path: Path, encoding: str) -> None:
    """Names in Japanese on an ASCII pipe become question marks, not an error."""
    run = make_run(tmp_path / "run", Shape(names=("日本", "b", "c", "d", "e")))
    code = "import sys,pathlib; from kdwatch.tui.plain import frame; print(frame(pathlib.Path(sys.argv[1]), 80))"
    answer = subprocess.run(
        [sys.executable, "-c", code, str(run)],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    text = answer.stdout.decode(encoding)
    assert ("日本" in text) == (encoding == "utf-8") and "total" in text


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    """TERM decides, even on a tty."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", type("Tty", (), {"isatty": lambda self: True})())
    monkeypatch.setenv("TERM", term)
    assert not plain.can_show_screen()
    monkeypatch.setenv("TERM", "xterm")
    assert plain.can_show_screen()
