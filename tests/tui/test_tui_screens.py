"""What the screens do: freeze, zoom, units, control that asks, notices, hostile text, small terminals."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tui_live import live_run
from tui_pilot import part, rows_of, running, text_on, until
from tui_runs import Shape, make_run

from kdwatch.rundir.control import take
from kdwatch.settings import load
from kdwatch.tui import hooks, keys
from kdwatch.tui.app import KdwatchApp
from kdwatch.tui.feed import RunFeed
from kdwatch.tui.fmt import Units
from kdwatch.tui.frame import Frame, Notice
from kdwatch.tui.raster import ASCII
from kdwatch.tui.screens.dialogs import AskScreen, ConfirmScreen
from kdwatch.tui.view.compare import compare_lines
from kdwatch.tui.view.line import text_of
from kdwatch.tui.widgets.lines import Lines


@pytest.fixture
def run(own_home: Path) -> Path:
    """A finished run of the user's own."""
    return make_run(own_home / "runs" / "r1", Shape(gpus=2))


async def test_a_run_that_takes_long_to_read_says_so(run: Path) -> None:
    """Before the first frame the header names the run and what is done; keys work; then the run is there."""
    begun, go = threading.Event(), threading.Event()

    def feed(path: Path, **_: object) -> RunFeed:
        found = RunFeed(path)
        frame = found.frame

        def slowly() -> Frame:
            begun.set()
            go.wait(60.0)
            return frame()

        found.frame = slowly
        return found

    app = KdwatchApp(run, make_feed=feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, begun.is_set, "the reader")
        await until(pilot, lambda: "reading the run" in part(app, "header"), "the word")
        assert "kd-qwen" in part(app, "header")
        await pilot.press("z", "down", "u", "space")
        go.set()
        await until(pilot, lambda: "completed" in part(app, "header"), "the run")


async def test_units_walk_and_are_kept(run: Path) -> None:
    """u: J to Wh; the next start begins with Wh, and config says who chose it."""
    async with running(run) as (app, pilot):
        assert "296 kJ" in part(app, "energy")
        await pilot.press("u")
        assert "82.2 Wh" in part(app, "energy")
    settings = load()
    assert settings["units"] == "Wh" and settings.sources["units"] == "chosen on the screen"
    async with running(run) as (app, pilot):
        assert "82.2 Wh" in part(app, "energy")


async def test_co2e_is_the_reports(run: Path) -> None:
    """The screen's kg CO2e equal those of `kdwatch report`: same grid, same PUE."""
    from kdwatch.ledger.report import build_report

    async with running(run) as (app, pilot):
        await pilot.press("u", "u", "u")
        kg = build_report(run)["co2e_kg"]
        assert f"{kg * 1e3:.3g} gCO2e" in part(app, "energy")


async def test_zoom_and_device_change_the_plot(run: Path) -> None:
    """z walks the windows, d the devices; the title says which."""
    async with running(run) as (app, pilot):
        seen = []
        for _ in range(4):
            await pilot.press("z")
            seen.append(part(app, "plot").splitlines()[0].rsplit("  ", 1)[-1])
        assert seen == ["last 1 min", "all", "last 1 h", "last 10 min"]
        await pilot.press("d")
        assert "GPU 0" in part(app, "plot").splitlines()[0]
        await pilot.press("D", "D")
        assert "DRAM" in part(app, "plot").splitlines()[0]


async def test_freeze_holds_the_picture_while_the_run_goes_on(tmp_path: Path) -> None:
    """space: the header says frozen; the numbers stand still until space again."""
    with live_run(tmp_path / "live") as writer:
        async with running(tmp_path / "live", settings=load({"refresh": 0.2})) as (app, pilot):
            writer.write_to(5.0)
            await until(pilot, lambda: app.frame.t >= 5.0, "5 s")
            await pilot.press("space")
            before = part(app, "stages")
            writer.write_to(20.0)
            await until(pilot, lambda: app.frame.t >= 20.0, "20 s")
            assert "frozen" in part(app, "header") and part(app, "stages") == before
            await pilot.press("space")
            await until(pilot, lambda: part(app, "stages") != before, "the newest")
            assert "frozen" not in part(app, "header")


@pytest.mark.parametrize(
    ("key", "action", "field"),
    [("s", "stop_stage", ("stage", "prerun")), ("x", "skip", ("stage", "prerun")), ("S", "stop", None)],
)
async def test_control_keys_ask_and_then_request(tmp_path: Path, key: str, action: str, field) -> None:
    """The question names the process; no leaves no trace, yes leaves one request for the recorder."""
    with live_run(tmp_path / "live") as writer:
        writer.write_to(3.0)
        async with running(tmp_path / "live") as (app, pilot):
            await pilot.press(key)
            assert isinstance(app.screen, ConfirmScreen)
            asked = "".join(str(w.render()) for w in app.screen.query("Static"))
            assert str(writer.stage_pid if field else writer.pid) in asked
            await pilot.press("enter", "escape")
            assert take(tmp_path / "live") == []
            await pilot.press(key, "y")
            requests = take(tmp_path / "live")
            assert [r["action"] for r in requests] == [action]
            assert field is None or requests[0][field[0]] == field[1]


async def asked_by(app: Any, pilot: Any, key: str) -> str:
    """The text of the dialog that a key opens; it is left again."""
    await pilot.press(key)
    text = "".join(str(w.render()) for w in app.screen.query("Static"))
    await pilot.press("escape")
    return text


async def test_every_question_names_a_process(tmp_path: Path) -> None:
    """The stage's where one is hit, the recorder's where it only obeys: a stage that waits is skipped without a kill,
    and the dialog for a budget's text comes before the one that asks."""
    with live_run(tmp_path / "live") as writer:
        writer.write_to(3.0)
        recorder, stage = f"Recorder: process {writer.pid}.", f"Process {writer.stage_pid} "
        async with running(tmp_path / "live") as (app, pilot):
            assert recorder in (said := await asked_by(app, pilot, "S")) and stage in said
            assert recorder in await asked_by(app, pilot, "b")
            assert stage in await asked_by(app, pilot, "s")
            await pilot.press("down", "down")
            assert (
                recorder in (said := await asked_by(app, pilot, "x")) and "preprocess" in said and "SIGTERM" not in said
            )
            (tmp_path / "live" / "events.jsonl").write_text("")
            await pilot.press("f")
            for key in ("s", "x", "S"):
                assert recorder in await asked_by(app, pilot, key)
            assert take(tmp_path / "live") == []


async def test_budget_is_only_ever_extended(tmp_path: Path) -> None:
    """Less than now, and nonsense, are refused in the dialog; more is asked again and requested in joules."""
    with live_run(tmp_path / "live") as writer:
        writer.write_to(3.0)
        async with running(tmp_path / "live") as (app, pilot):
            await pilot.press("b", *"5kJ", "enter")
            assert isinstance(app.screen, AskScreen)
            for text in ("much", "-1kWh"):
                app.screen.query_one("Input").value = text
                await pilot.press("enter")
                assert isinstance(app.screen, AskScreen)
            app.screen.query_one("Input").value = "2kWh"
            await pilot.press("enter")
            assert isinstance(app.screen, ConfirmScreen)
            await pilot.press("y")
            assert take(tmp_path / "live")[0] | {"value": 7.2e6, "action": "extend_budget"} == {
                "value": 7.2e6, "action": "extend_budget"}  # fmt: skip


@pytest.mark.parametrize("key", ["s", "x", "S", "b"])
async def test_readonly_has_no_control_keys(tmp_path: Path, key: str) -> None:
    """Off under --readonly: no dialog, no hint in the footer, no request."""
    with live_run(tmp_path / "live") as writer:
        writer.write_to(3.0)
        async with running(tmp_path / "live", readonly=True) as (app, pilot):
            await pilot.press(key)
            assert len(app.screen_stack) == 2 and take(tmp_path / "live") == []
            assert not any(k.control for k in app.keys_now("run"))


@pytest.mark.parametrize("key", ["s", "S", "b"])
async def test_control_of_a_finished_run_says_so(run: Path, key: str) -> None:
    """Nothing to stop: a message, no dialog."""
    async with running(run) as (app, pilot):
        await pilot.press(key)
        assert len(app.screen_stack) == 2 and take(run) == []
        assert len(app._notifications) == 1


async def test_the_footer_shows_control_keys_only_where_something_runs(run: Path, tmp_path: Path) -> None:
    """Not for a finished run; from the first frame of one that runs; no more when it has ended."""
    async with running(run, (200, 40)) as (app, pilot):
        assert "stop run" not in part(app, "footer") and "replay" in part(app, "footer")
    with live_run(tmp_path / "live") as writer:
        async with running(tmp_path / "live", (200, 40), settings=load({"refresh": 0.2})) as (app, pilot):
            await until(pilot, lambda: "stop run" in part(app, "footer"), "the keys")
            writer.event("run_ended", t=2.0, status="completed", exit_code=0, reason=None)
            await until(pilot, lambda: "stop run" not in part(app, "footer"), "the end")


async def test_a_failed_run_says_which_stage_and_how(own_home: Path) -> None:
    """In the header, where one looks first."""
    with live_run(own_home / "runs" / "bad") as writer:
        writer.event("stage_ended", t=1.5, stage="prerun", status="failed", exit_code=3, cpu_s=0.1)
        writer.event("run_ended", t=2.0, status="failed", exit_code=1, reason=None)
        async with running(own_home / "runs" / "bad", (60, 20)) as (app, _):
            assert "failed: prerun, exit code 3" in part(app, "header")


async def test_beside_samples_the_home_screen_says_how_to_come_to_a_run(own_home: Path, monkeypatch) -> None:
    """Samples alone are no start: the ways to a run stand under them, and not beside own runs or where it is narrow."""
    sample = make_run(own_home / "a-sample", Shape())
    monkeypatch.setattr("kdwatch.tui.runlist.sample_runs", lambda: [sample])
    async with running(None, (80, 24)) as (app, pilot):
        await until(pilot, lambda: not app.base_screen.busy, "the list")
        await pilot.pause()
        assert "kdwatch demo" in text_on(app) and "(sample)" in text_on(app)
        await pilot.press("end", "down")
        assert app.base_screen.row.path == sample
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        assert "kd-qwen" in text_on(app) and "kdwatch demo" not in text_on(app)
    make_run(own_home / "runs" / "mine", Shape())
    async with running(None, (80, 24)) as (app, pilot):
        await until(pilot, lambda: not app.base_screen.busy, "the list")
        await pilot.pause()
        assert "kdwatch demo" not in text_on(app)


async def test_quitting_a_live_run_says_that_it_goes_on(tmp_path: Path) -> None:
    """q names the recorder's process and how to return; escape stays, enter leaves, nothing is requested."""
    with live_run(tmp_path / "live") as writer:
        writer.write_to(3.0)
        async with running(tmp_path / "live") as (app, pilot):
            await pilot.press("q")
            said = "".join(str(w.render()) for w in app.screen.query("Static"))
            assert "goes on" in said and str(writer.pid) in said and "kdwatch watch live" in said
            await pilot.press("escape", "q", "enter")
            assert app.return_value == 0
        assert take(tmp_path / "live") == []


HOSTILE = (
    "[red]markup[/red] [/x]",
    "\x1b[31mred\x1b]0;title\x07",
    "abc\u202egnp.exe",
    "x" * 10_000,
    "日本語テスト" * 20,
    "\udcff bad",
)
"""Names and log lines that must show as harmless text."""


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_hostile_names_and_logs_are_harmless(own_home: Path, size) -> None:
    """Markup is shown, escape codes and bidi marks are gone, long text is cut, every row keeps its width."""
    names = tuple(n.replace("\udcff", "\ufffd") for n in HOSTILE[:5])
    log = "\n".join(HOSTILE).encode("utf-8", "surrogateescape") + b"\n\xff\xfe\x00\x1b[2J broken \r overwritten\n"
    run = make_run(own_home / "runs" / "bad", Shape(names=names))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["name"], manifest["devices"][0]["name"] = HOSTILE[0], HOSTILE[1]
    (run / "manifest.json").write_text(json.dumps(manifest))
    async with running(run, size) as (app, pilot):
        app.feed.log_path(names[0]).parent.mkdir(exist_ok=True)
        (run / "logs" / "plain.log").write_bytes(log)
        app.feed.log_path = lambda stage: run / "logs" / "plain.log"
        for screen in keys.SCREENS:
            app.show(screen)
            await pilot.pause()
            rows = rows_of(app)
            text = "\n".join(rows)
            assert not any(c in text for c in "\x1b\x07\u202e\x00\x9b")
            assert len(rows) == size[1]
        app.show("run")
        await pilot.pause()
        assert "[red]markup[/red]" in text_on(app)
        app.show("log")
        await until(pilot, lambda: "broken" in text_on(app) or "overwritten" in text_on(app), "the log")


@pytest.mark.parametrize("size", [(39, 10), (20, 5), (4, 2), (1, 1)])
async def test_too_small_says_what_is_needed(run: Path, size) -> None:
    """One line, no crash; larger again, everything is back."""
    async with running(run, size) as (app, pilot):
        assert app.base_screen.query_one("#too-small").display
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert not app.base_screen.query_one("#too-small").display
        assert "teacher logits" in part(app, "stages")


async def test_resizing_at_any_time(run: Path) -> None:
    """A storm of sizes on each screen ends in a whole picture."""
    async with running(run) as (app, pilot):
        for screen in keys.SCREENS:
            app.show(screen)
            for size in [(240, 60), (40, 10), (3, 3), (120, 12), (60, 50)]:
                await pilot.resize_terminal(*size)
        app.show("run")
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "teacher logits" in part(app, "stages") and len(rows_of(app)) == 40


async def test_a_hidden_screen_draws_nothing(tmp_path: Path) -> None:
    """While Help is shown, frames come and the Run screen's parts stay as they were."""
    with live_run(tmp_path / "live") as writer:
        async with running(tmp_path / "live", settings=load({"refresh": 0.2})) as (app, pilot):
            run_screen = app.base_screen
            drawn = []
            run_screen.show_frame = drawn.append
            await pilot.press("question_mark")
            drawn.clear()
            seen = app.frames_shown
            writer.write_to(4.0)
            await until(pilot, lambda: app.frames_shown >= seen + 3, "three frames")
            assert drawn == []


async def test_notices_become_toasts_bell_and_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that fails: one toast, one bell, and the user's command with the notice in its environment."""
    out = tmp_path / "hooked"
    script = "import os,pathlib; pathlib.Path(os.environ['HOOK_OUT']).write_text(os.environ['KDWATCH_NOTICE_TEXT'])"
    monkeypatch.setenv("HOOK_OUT", str(out))
    config = f"bell = true\nrefresh = 0.2\n[hooks]\nstage_failed = {json.dumps([sys.executable, '-c', script])}\n"
    (tmp_path / "config.toml").write_text(config)
    rung = []
    with live_run(tmp_path / "live") as writer:
        writer.write_to(3.0)
        async with running(tmp_path / "live") as (app, pilot):
            monkeypatch.setattr(app, "bell", lambda: rung.append(1))
            writer.event("stage_ended", t=3.1, stage="prerun", status="failed", exit_code=7)
            await until(pilot, lambda: rung and out.exists() and out.read_text(), "bell and hook")
            assert out.read_text() == "stage prerun failed, exit code 7"
            assert "exit code 7" in next(iter(app._notifications)).message


async def test_a_replay_calls_no_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its notices are shown; what they tell happened long ago."""
    called: list[str] = []
    monkeypatch.setattr(hooks, "call", lambda found, notice, frame: called.append(notice.kind))
    run = make_run(tmp_path / "run", Shape(gpus=1))
    async with running(run, replay=True, speed=1000.0) as (app, pilot):
        await until(pilot, lambda: app._notifications, "a stage's end")
        assert called == []


def test_a_run_directory_cannot_name_a_hook() -> None:
    """Only what the config file holds is called, and a missing program is no error."""
    notice = Notice("stage_failed", "x", "error")
    assert not hooks.call({}, notice, None)
    assert not hooks.call({"stage_failed": ["/no/such/program"]}, notice, None)


async def test_runs_lists_own_and_broken_ones_and_opens_them(own_home: Path) -> None:
    """Newest first; a damaged one says why; enter opens, p plays, m marks for Compare."""
    make_run(own_home / "runs" / "good", Shape())
    broken = make_run(own_home / "runs" / "broken", Shape())
    (broken / "manifest.json").write_text("{")
    async with running(None) as (app, pilot):
        await until(pilot, lambda: not app.base_screen.busy, "the list")
        names = [r.run_id for r in app.base_screen.rows if not r.sample]
        app.base_screen.at = names.index("broken")
        await pilot.press("enter")
        assert app.base_screen.NAME == "runs" and "damaged" in next(iter(app._notifications)).message
        app.base_screen.at = names.index("good")
        await pilot.press("enter")
        await until(pilot, lambda: app.frame is not None, "frame")
        assert app.base_screen.NAME == "run" and not app.replaying
        await pilot.press("1", "p")
        await until(pilot, lambda: app.replaying and app.frame is not None, "replay")


async def test_without_any_run_the_home_screen_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three commands to begin with, and the plan."""
    monkeypatch.setattr("kdwatch.tui.runlist.sample_runs", list)
    async with running(None) as (app, pilot):
        await until(pilot, lambda: not app.base_screen.busy, "the list")
        assert all(word in text_on(app) for word in ("kdwatch demo", "kdwatch run recipe.yaml", "kdwatch exec"))
        await pilot.press("2")
        assert app.base_screen.NAME == "runs"


async def test_compare_puts_marked_runs_side_by_side(own_home: Path) -> None:
    """Energy by stage, ratio to the first, and a word where the devices differ."""
    make_run(own_home / "runs" / "one", Shape(gpus=1))
    make_run(own_home / "runs" / "two", Shape(gpus=2, dram=False))
    async with running(None) as (app, pilot):
        await until(pilot, lambda: not app.base_screen.busy, "the list")
        await pilot.press("m", "m", "3")
        await until(pilot, lambda: app.base_screen.NAME == "compare" and app.base_screen.reports, "reports")
        await pilot.pause()
        text = text_on(app)
        assert "teacher logits" in text and " x " in text and "not the same devices" in text


def compared(name: str, joules: float, q: float | None, kinds: tuple[str, ...] = ("gpu",)) -> dict[str, Any]:
    """A report with one stage, as far as Compare reads it."""
    energy = {"total": joules, "estimated": 0.0}
    stage = {"name": "student", "kind": "student", "status": "completed", "energy_j": energy, "j_per_token": None}
    return {
        "name": name, "run_id": name, "regime": "kd", "status": "completed", "stages": [stage], "total_j": joules,
        "unattributed_j": 0.0, "duration_s": 1.0, "co2e_kg": None, "quality": {"q": q},
        "devices": [{"kind": kind, "total_j": joules, "counted": True} for kind in kinds],
    }  # fmt: skip


def test_compare_gives_each_runs_place_on_the_frontier() -> None:
    """1 MJ at 0.5 and 3 MJ at 0.9 are on it, 3.6 MJ at 0.8 is beaten by the second, 2 MJ of unknown quality has no
    place. Bars share one scale; the chart has a letter for each run of known place."""
    runs = [compared("dear", 3.6e6, 0.8), compared("cheap", 1e6, 0.5), compared("best", 3e6, 0.9)]
    runs.append(compared("mute", 2e6, None))
    text = [text_of(line) for line in compare_lines(runs, 138, Units("kWh"), ASCII)]
    places = next(line for line in text if line.startswith("frontier"))[18:]
    assert [places[i : i + 30].strip() for i in (0, 30, 60, 90)] == ["beaten by C", "on it", "on it", "n/a"]
    bars = next(line for line in text if "##" in line)[18:]
    lengths = [bars[i : i + 30].count("#") for i in (0, 30, 60, 90)]
    assert lengths[0] == 28 and lengths[1:] == pytest.approx([28 / 3.6, 28 * 3 / 3.6, 28 * 2 / 3.6], abs=1.3)
    assert text[-1] == "A dear  B cheap  C best  D mute"
    chart = text[text.index("quality Q over kWh per run") + 1 : -1]
    rows = [next(y for y, line in enumerate(chart) if letter in line) for letter in "CAB"]
    assert rows == sorted(rows), "the higher the quality, the higher up"


def test_compare_cuts_no_number() -> None:
    """Four runs at 80 columns: every cell is whole, ids keep their ends. At 40 columns a run at a time, with the letter
    and the place that it has among all."""
    runs = [compared(f"20261130-100929-a-rather-long-name-{n}", 4e6 - n * 1e5, 0.5 + n / 10) for n in range(4)]
    energy = {"total": 0.0, "estimated": 0.0}
    reused = {"status": "reused", "energy_j": energy, "reused_from": {"energy_j": 123_456.0}}
    runs[3]["stages"] = [runs[3]["stages"][0] | reused]
    runs[1]["stages"][0]["energy_j"]["estimated"] = 1.0
    text = [text_of(line) for line in compare_lines(runs, 80, Units("J"), ASCII)]
    rows = text[: text.index("quality Q over kWh per run")]
    cut_rows = [line for line in rows if "…" in line]
    assert cut_rows == text[:2] and all(f"{n}" in text[1].split()[n][-1] for n in range(4))
    assert "reused" in text[6] and "saved 123 kJ" in text[7] and "~3.90 MJ" in text[6]
    for first in range(4):
        narrow = [text_of(line) for line in compare_lines(runs, 40, Units("J"), ASCII, first)]
        assert narrow[0].split()[0] == "ABCD"[first] and all(len(line) <= 40 for line in narrow[:16])
        place = next(line for line in narrow if line.startswith("frontier"))
        assert ("on it" if first == 3 else "beaten by") in place


def test_a_reused_stage_takes_no_other_stages_bar() -> None:
    """The first run reused `cache` and trained for 4 MJ, the second made it for 1 MJ and trained for 2 MJ; what was
    saved is marked as estimated where the run's own energy is."""
    runs = [compared("one", 4e6, 0.5), compared("two", 3e6, 0.5)]
    cache = runs[0]["stages"][0] | {"name": "cache", "energy_j": {"total": 1e6, "estimated": 0.0}}
    runs[1]["stages"][0]["energy_j"]["total"] = 2e6
    runs[1]["stages"].insert(0, cache)
    again = {"status": "reused", "energy_j": {"total": 0.0, "estimated": 0.0}, "reused_from": {"energy_j": 1e6}}
    runs[0]["stages"].insert(0, cache | again)
    runs[0]["stages"][1]["energy_j"]["estimated"] = 1.0
    text = [text_of(line) for line in compare_lines(runs, 98, Units("J"), ASCII)]
    at = next(y for y, line in enumerate(text) if line.startswith("cache"))
    assert "saved ~1.00 MJ" in text[at + 1] and text[at + 1].count("#") == pytest.approx(38 / 4, abs=1)
    bars = text[at + 3][18:]
    assert bars[:40].count("#") == 38 and bars[40:].count("#") == pytest.approx(19, abs=1)


async def test_compare_walks_through_runs_that_do_not_fit(own_home: Path) -> None:
    """At 40 columns one of three: right and left walk, and stop at the ends."""
    for name in ("one", "two", "three"):
        make_run(own_home / "runs" / name, Shape())
    async with running(None, (40, 24)) as (app, pilot):
        await until(pilot, lambda: not app.base_screen.busy, "the list")
        await pilot.press("m", "m", "m", "3")
        await until(pilot, lambda: app.base_screen.NAME == "compare" and app.base_screen.reports, "reports")
        seen = []
        for key in ("right", "right", "right", "left"):
            await pilot.press(key)
            await pilot.pause()
            seen.append(part(app, "body").split()[0])
        assert seen == ["B", "C", "C", "B"] and "2 more" in part(app, "header")


def test_runs_of_other_devices_have_no_common_frontier() -> None:
    """A GPU's energy against GPU and CPU: no place and no chart, and a line that says why."""
    runs = [compared("a", 1e6, 0.5), compared("b", 2e6, 0.5, ("gpu", "cpu"))]
    text = [text_of(line) for line in compare_lines(runs, 80, Units("kWh"), ASCII)]
    assert next(line for line in text if line.startswith("frontier")).split()[1:] == ["n/a", "n/a"]
    assert "not the same devices" in text[-1] and not any("quality Q over" in line for line in text)


async def test_plan_screen_gives_the_studys_answer() -> None:
    """20 kWh: SFT at 7B, 19.50 kWh, 0.50 left; 5 kWh: nothing fits, cheapest 7.00, 2.00 short."""
    async with running(None, screen="plan") as (app, pilot):
        screen = app.base_screen
        await until(pilot, lambda: screen.plan is not None, "the plan")
        await pilot.pause()
        text = text_on(app)
        assert "SFT-7B" in text and "19.50 kWh" in text and "0.500 kWh" in text
        assert "(" in "".join(text_of(line) for line in screen.query_one("#chart").lines)
        await pilot.press("e")
        app.screen.query_one("#field-budget").value = "5kWh"
        before = screen.plan
        await pilot.press("enter")
        await until(pilot, lambda: screen.plan is not before, "the new plan")
        await pilot.pause()
        text = text_on(app)
        assert "nothing fits" in text and "7.00 kWh, 2.00 kWh short" in text


async def test_plan_keys_ask_what_if() -> None:
    """`+` and `-` change N, `v` the region, `c` the teacher's batch, `a` the longest answer; each plans anew."""
    async with running(None, screen="plan") as (app, pilot):
        screen = app.base_screen
        await until(pilot, lambda: screen.plan is not None, "the plan")
        for key, ask, now in (
            ("+", lambda plan: plan["reuse_n"], 2),
            ("-", lambda plan: plan["reuse_n"], 1),
            ("v", lambda plan: plan["limits"]["region"], "FRA"),
            ("c", lambda plan: plan["limits"]["teacher_batch"], 4),
            ("a", lambda plan: plan["limits"]["max_new_tokens"], 256),
        ):
            await pilot.press(key)
            await until(pilot, lambda ask=ask, now=now: screen.plan and ask(screen.plan) == now, key)


async def test_plan_writes_the_recipe_and_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`W` asks for a new file, writes what `kdwatch run` accepts; `X` asks, and starts just that file."""
    from kdwatch.pipeline.recipe import load_recipe

    began: list[Path] = []
    run = make_run(tmp_path / "began")
    monkeypatch.setattr("kdwatch.tui.screens.plan.start", lambda recipe: began.append(recipe) or run)
    path = tmp_path / "mine.yaml"
    async with running(None, screen="plan") as (app, pilot):
        await until(pilot, lambda: app.base_screen.plan is not None, "the plan")
        await pilot.press("X")
        assert not began and len(app.screen_stack) == 2, "nothing is written yet"
        await pilot.press("W")
        app.screen.query_one("Input").value = str(path)
        await pilot.press("enter")
        await until(pilot, path.exists, "the recipe")
        assert load_recipe(path).name == "plan-SFT-7B"
        await pilot.press("W")
        app.screen.query_one("Input").value = str(path)
        await pilot.press("enter")
        assert "there already" in str(app.screen.query_one("#answer").render())
        await pilot.press("escape")
        await pilot.press("X")
        await pilot.press("y")
        await until(pilot, lambda: app.base_screen.NAME == "run", "the run's screen")
        assert began == [path]


async def test_plan_form_refuses_in_one_line() -> None:
    """Watts for an energy, an unknown region: the dialog says so and stays."""
    async with running(None, screen="plan") as (app, pilot):
        await until(pilot, lambda: app.base_screen.plan is not None, "the plan")
        await pilot.press("e")
        for field, value in (("budget", "20kW"), ("region", "FRX"), ("reuse", "1.5")):
            app.screen.query_one(f"#field-{field}").value = value
            await pilot.press("enter")
            answer = str(app.screen.query_one("#answer").render())
            assert app.screen.query_one("#answer").has_class("wrong") and "\n" not in answer
            app.screen.query_one(f"#field-{field}").value = ""


async def test_log_finds_follows_and_wraps(own_home: Path) -> None:
    """The log of the stage; find goes to the line, end follows, wrapped lines lose nothing."""
    text = "".join(f"line {i} {'x' * (200 if i == 30 else 5)}\n" for i in range(2000))
    run = make_run(own_home / "runs" / "r", Shape(log=text))
    async with running(run, (80, 24)) as (app, pilot):
        await pilot.press("home", "n", "n", "5")
        await until(pilot, lambda: "line 1999" in text_on(app), "the end of the log")
        await pilot.press("slash", *"line 30 ", "enter")
        await pilot.pause()
        assert "line 30 xxx" in text_on(app) and "following" not in part(app, "header")
        assert "".join(rows_of(app)).count("x" * 60) == 1
        await pilot.press("w")
        await pilot.pause()
        assert "".join(rows_of(app)).count("x" * 60) == 3
        await pilot.press("f")
        await pilot.pause()
        assert "line 1999" in text_on(app)


async def test_replay_keys_move_the_clock(run: Path) -> None:
    """n, full stop, comma, g: the header's time follows."""
    async with running(run, replay=True) as (app, pilot):
        await pilot.press("space")
        await until(pilot, lambda: app.frame.replay.paused, "pause")
        for key, t in (("n", 5.0), ("n", 30.0), ("full_stop", 40.0), ("comma", 30.0), ("N", 5.0)):
            await pilot.press(key)
            await until(pilot, lambda t=t: app.frame.t == pytest.approx(t, abs=0.01), f"{key} to {t}")
        await pilot.press("g", *"50%", "enter")
        await until(pilot, lambda: app.frame.t == pytest.approx(app.frame.replay.end_t / 2, abs=0.01), "the middle")
        assert "replay paused" in part(app, "header")


@pytest.mark.parametrize("theme", ["dark", "light", "terminal"])
async def test_the_selected_line_stands_out_in_every_theme(run: Path, theme: str) -> None:
    """By a background of its own, or reversed where the terminal's colours are used as they are."""
    async with running(run, settings=load({"theme": theme})) as (app, pilot):
        await pilot.press("down", "up")
        await pilot.pause()
        stages = app.base_screen.query_one("#stages", Lines)
        rows = [stages.render_line(y) for y in (stages.cursor, stages.cursor + 1)]
        looks = [{(s.style.bgcolor, bool(s.style.reverse)) for s in row if s.style} for row in rows]
        assert stages.cursor > 0 and looks[0].isdisjoint(looks[1])


def colours_of(app: KdwatchApp) -> set[tuple[str, str]]:
    """Foreground and background of every piece of the picture."""
    strips = app.screen._compositor.render_strips()
    return {(str(s.style.color), str(s.style.bgcolor)) for strip in strips for s in strip if s.style}


async def test_the_theme_key_recolours_every_row(run: Path) -> None:
    """Rows are kept as they were drawn: after each change of theme the picture has just the colours that a screen
    opened in that theme has, and back in the first one the first picture's."""
    fresh = {}
    for theme in ("dark", "light", "terminal"):
        async with running(run, (100, 30), settings=load({"theme": theme})) as (app, pilot):
            fresh[theme] = colours_of(app)
    async with running(run, (100, 30), settings=load({"theme": "dark"})) as (app, pilot):
        for theme in ("light", "terminal", "dark"):
            await pilot.press("t")
            app.clear_notifications()
            await until(pilot, lambda theme=theme: colours_of(app) == fresh[theme], theme)
    assert not fresh["dark"] & fresh["light"]


async def test_a_run_of_the_first_release_plays(tmp_path: Path) -> None:
    """tests/data/schema1: 20 s of 300 W measured and 40 W estimated, 6800 J; a jump to 12 s shows 12 s of them."""
    path = tmp_path / "schema1"
    shutil.copytree(Path(__file__).parents[1] / "data" / "schema1" / "run", path)
    async with running(path, replay=True, start=20.0) as (app, pilot):
        await until(pilot, lambda: app.frame.t == 20.0, "the end")
        assert app.frame.total_j == pytest.approx(6800.0, rel=0.001)
        assert "teacher" in part(app, "stages") and "6.80 kJ" in part(app, "stages")
        await pilot.press("g", *"12s", "enter")
        await until(pilot, lambda: app.frame.t == pytest.approx(12.0, abs=0.5), "the jump")
        assert app.frame.total_j == pytest.approx(340.0 * app.frame.t, rel=0.02)
        assert [s.status for s in app.frame.stages] == ["completed", "reused", "running", "pending"]
