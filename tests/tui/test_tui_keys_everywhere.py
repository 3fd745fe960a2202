"""Every key on every screen at every size does something harmless: no crash, no row wider than the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from tui_pilot import rows_of, running, until
from tui_runs import Shape, make_run

from kdwatch.tui import keys

SIZES = [(40, 10), (80, 24), (120, 40), (200, 60)]

LEAVING = {"leave", "quit_now", "palette"}
"""Pressed in tests of their own."""


@pytest.fixture
def no_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Sensors screen must not open this machine's sensors in a test of keys."""
    monkeypatch.setattr("kdwatch.tui.app.KdwatchApp.ask_sensors", lambda self: [])


async def press_all(app, pilot, screen: str, *, replay: bool) -> None:
    """Press every key that works on a screen, coming back to it each time; dialogs are left by escape."""
    for key in keys.for_screen(screen, replay=replay):
        if key.id in LEAVING:
            continue
        for name in key.keys.split(","):
            await pilot.press(name)
            await pilot.pause()
            while len(app.screen_stack) > 2:
                await pilot.press("escape")
                await pilot.pause()
            if screen != app.base_screen.NAME:
                app.show(screen)
                await pilot.pause()
        width, height = app.size
        rows = rows_of(app)
        assert len(rows) == height
        assert all(cell_len(row) == width for row in rows), (screen, key.id)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("replay", [False, True], ids=["live", "replay"])
async def test_every_key_on_every_screen(tmp_path: Path, size, replay: bool, no_sensors, quick_keys) -> None:
    """8 GPUs, four sizes, all screens, all keys; a replay changes the keys of Run and Log only."""
    run = make_run(tmp_path / "home" / "runs" / "eight", Shape(gpus=8, log="line\n" * 50))
    async with running(run, size, replay=replay) as (app, pilot):
        for screen in (keys.RUN, keys.LOG) if replay else keys.SCREENS:
            app.show(screen)
            await pilot.pause()
            if app.feed is None or app.feed.path != run:
                app.open_run(run, replay=replay)
            await until(pilot, lambda: app.frame is not None, "a frame")
            await press_all(app, pilot, screen, replay=app.replaying)
        assert app._exception is None


async def test_palette_lists_what_works_here_and_calls_it(tmp_path: Path) -> None:
    """ctrl+p finds an action by its name."""
    run = make_run(tmp_path / "run")
    async with running(run) as (app, pilot):
        before = app.units_name
        await pilot.press("ctrl+p")
        await pilot.press(*"units")
        await until(pilot, lambda: app.screen.query("CommandList").first().option_count, "hits")
        await pilot.press("enter")
        await until(pilot, lambda: app.units_name != before, "the unit to change")


async def test_q_leaves_a_finished_run_at_once(tmp_path: Path) -> None:
    """Nothing goes on behind a finished run, so q does not ask."""
    run = make_run(tmp_path / "run")
    async with running(run) as (app, pilot):
        await pilot.press("q")
        await pilot.pause()
        assert app.return_code == 0 and app.return_value == 0


async def test_ctrl_q_leaves_at_once(tmp_path: Path) -> None:
    """One of the two ctrl keys."""
    async with running(make_run(tmp_path / "run")) as (app, pilot):
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert app.return_value == 0
