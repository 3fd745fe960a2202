"""Pinned pictures. After a wanted change, or a new Textual:
`pytest tests/tui/test_tui_snapshots.py --snapshot-update`, then look at every picture that changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import textual
from tui_pilot import until
from tui_runs import Shape, make_run

from kdwatch.settings import load
from kdwatch.tui.app import KdwatchApp
from kdwatch.tui.screens.sensors import sensor_row

PINNED_TEXTUAL = "8.2"
"""Pictures change with Textual; with another one they are not compared."""

pytestmark = pytest.mark.skipif(
    not textual.__version__.startswith(PINNED_TEXTUAL), reason=f"pictures were drawn with Textual {PINNED_TEXTUAL}"
)


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine: no CPU share, no sensors, no sample runs; a plan as it was made once."""
    monkeypatch.setattr("kdwatch.tui.build.CpuShare.read", lambda self: 0.012)
    rows = [sensor_row("nvml", "ok", "8 x NVIDIA H100, energy counter", None)]
    rows.append(sensor_row("rapl", "denied", "energy_uj cannot be read", "sudo chmod -R a+r /sys/class/powercap"))
    monkeypatch.setattr("kdwatch.tui.app.KdwatchApp.ask_sensors", lambda self: rows)
    monkeypatch.setattr("kdwatch.tui.runlist.sample_runs", list)
    plan = json.loads((Path(__file__).parent / "data" / "plan_20kwh.json").read_text(encoding="utf-8"))
    monkeypatch.setattr("kdwatch.tui.planning.Planner.plan", lambda self, values: plan)


@pytest.fixture
def shown(snap_compare, own_home: Path, monkeypatch: pytest.MonkeyPatch):
    """Compare a picture of a run after some keys, pressed once it is `loaded`; the home is named as on every
    machine."""
    monkeypatch.chdir(own_home)

    def compare(shape: Shape | None, size: tuple[int, int], *presses: str, ready=None, loaded=None, **options) -> bool:
        settings = load({"glyphs": "braille", **options.pop("settings", {})})
        run = make_run(own_home / "runs" / "kd-qwen-7b", shape) if shape else None
        app = KdwatchApp(run, settings=settings, **options)

        async def before(pilot) -> None:
            if run is not None:
                await until(pilot, lambda: app.frame is not None, "frame")
            if loaded is not None:
                await until(pilot, lambda: loaded(app), "the screen's content")
            for key in presses:
                await pilot.press(key)
            if ready is not None:
                await until(pilot, lambda: ready(app), "the screen")
            app.clear_notifications()
            await pilot.pause()
            await pilot.pause()

        return snap_compare(app, terminal_size=size, run_before=before)

    return compare


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40), (200, 60)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_run_with_eight_gpus(shown, size) -> None:
    """The Run screen at the sizes of the issue."""
    assert shown(Shape(gpus=8, hz=1.0), size)


def test_run_on_a_laptop(shown) -> None:
    """No GPU, everything estimated."""
    assert shown(Shape(gpus=0, estimated=True), (80, 24))


def test_run_with_sixteen_gpus_folded(shown) -> None:
    """Not enough rows for all: heat cells."""
    assert shown(Shape(gpus=16, hz=1.0), (100, 30), "d", "d", "d")


def test_run_interrupted_without_power(shown) -> None:
    """GPUs give nothing and the recorder was killed: n/a, broken, over budget."""
    assert shown(Shape(gpus=2, power_missing=True, until=200.0, budget_j=20_000.0), (100, 30))


def test_replay_paused_at_a_stage(shown) -> None:
    """Speed, time, events, selected stage."""
    ready = lambda app: app.frame.replay.paused and app.frame.t == 150.0  # noqa: E731
    assert shown(Shape(gpus=2), (120, 36), "space", "n", "n", ready=ready, replay=True, start=20.0)


def test_run_in_ascii(shown) -> None:
    """For terminals without UTF-8."""
    assert shown(Shape(gpus=2), (80, 24), settings={"glyphs": "ascii"})


def test_run_in_light(shown) -> None:
    """The light theme."""
    assert shown(Shape(gpus=2), (100, 30), settings={"theme": "light"})


def test_too_small(shown) -> None:
    """One line."""
    assert shown(Shape(), (30, 8))


def test_home_without_runs(shown) -> None:
    """What to do first."""
    assert shown(None, (80, 24), ready=lambda app: not app.base_screen.busy)


def test_help(shown) -> None:
    """Keys and marks of the Run screen."""
    assert shown(Shape(), (80, 60), "question_mark", ready=lambda app: app.base_screen.NAME == "help")


def test_sensors(shown) -> None:
    """The run's and this machine's."""
    assert shown(Shape(gpus=1), (80, 24), "6", ready=lambda app: getattr(app.base_screen, "here", None))


def test_plan(shown) -> None:
    """The study's answer for 20 kWh, on the study's table alone."""
    ready = lambda app: getattr(app.base_screen, "plan", None)  # noqa: E731
    assert shown(None, (120, 40), screen="plan", ready=ready)


def test_plan_form(shown) -> None:
    """The form of the plan over its screen."""
    ready = lambda app: getattr(app.base_screen, "plan", None) and app.screen.query("Input")  # noqa: E731
    assert shown(None, (80, 24), "e", screen="plan", ready=ready)


@pytest.mark.parametrize("size", [(80, 44), (120, 44)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_compare(shown, own_home: Path, size) -> None:
    """Three runs side by side: one GPU, two, and none of the quality known."""
    for name, gpus, q in (("kd-1", 1, 0.71), ("kd-2", 2, 0.78), ("kd-3", 1, None)):
        make_run(own_home / "runs" / f"20260101-000000-{name}", Shape(gpus=gpus, hz=1.0, q=q))
    ready = lambda app: getattr(app.base_screen, "reports", None)  # noqa: E731
    assert shown(None, size, screen="compare", ready=ready)


def test_runs(shown, own_home: Path) -> None:
    """The list: a finished run, one that broke off, one that is damaged, and a mark for Compare."""
    make_run(own_home / "runs" / "20260101-000000-whole", Shape(q=0.71))
    make_run(own_home / "runs" / "20260101-000001-broken", Shape(until=100.0))
    (make_run(own_home / "runs" / "20260101-000002-bad") / "manifest.json").write_text("{")
    loaded = lambda app: not app.base_screen.busy and len(app.base_screen.rows) == 3  # noqa: E731
    assert shown(None, (100, 24), "m", loaded=loaded)


def test_log(shown) -> None:
    """The log of the selected stage with what was found in it."""
    text = "".join(f"step {n * 10:>5}  loss {3.0 / n:.3f}\n" for n in range(1, 200))
    keys = ("home", "n", "n", "5", "slash", *"1500", "enter")
    assert shown(Shape(log=text), (80, 24), *keys, ready=lambda app: app.base_screen._mark >= 0)
