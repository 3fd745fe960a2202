"""Any JSON in a manifest or an event: the screens' frames come, or the run is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tui_runs import Shape, make_run

from kdwatch.rundir.errors import UsageProblem
from kdwatch.settings import load
from kdwatch.tui import plain
from kdwatch.tui.feed import RunFeed
from kdwatch.tui.raster import ASCII
from kdwatch.tui.replay import ReplayFeed

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20)
NESTED = st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3))
"""Any JSON."""

KINDS = st.sampled_from(
    ["stage_started", "stage_ended", "stage_reused", "progress", "phase", "quality", "sensor", "warning", "artifact",
     "control", "teacher_reuse", "baseline", "clock", "run_ended", "stage_skipped"]
)  # fmt: skip
FIELDS = st.sampled_from(
    [
        "stage",
        "kind",
        "status",
        "step",
        "total_steps",
        "tokens",
        "loss",
        "name",
        "device",
        "what",
        "text",
        "q",
        "action",
        "benchmarks",
        "reused_from",
        "idle_w",
        "exit_code",
        "budget_j",
        "code",
        "wall",
        "boottime",
        "reuse_count",
        "pid",
    ]
)
MANIFEST_KEYS = st.sampled_from(
    [
        "name",
        "run_id",
        "stages",
        "devices",
        "sensors",
        "clock",
        "recorder",
        "budget_j",
        "pue",
        "region",
        "recipe",
        "regime",
        "created_at",
        "intensity_g_per_kwh",
    ]
)
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, cut off in its third stage."""
    return make_run(tmp_path_factory.mktemp("damaged") / "run", Shape(until=40.0, hz=1.0))


def look(path: Path) -> None:
    """Live, in replay and as text."""
    RunFeed(path).frame()
    feed = ReplayFeed(path, start=35.0)
    text = plain.render(feed, feed.frame(), load(), 80, ASCII)
    assert "total" in text and "\x1b" not in text


@given(key=MANIFEST_KEYS, value=NESTED)
@QUICK
def test_any_value_in_the_manifest(base: Path, key: str, value: Any) -> None:
    """Each key with anything in it."""
    good = (base / "manifest.json").read_text()
    try:
        (base / "manifest.json").write_text(json.dumps({**json.loads(good), key: value}))
        try:
            look(base)
        except UsageProblem as problem:
            assert "\n" not in str(problem)
    finally:
        (base / "manifest.json").write_text(good)


@given(
    kind=KINDS, fields=st.dictionaries(FIELDS, NESTED, max_size=4), stage=st.sampled_from(["prerun", "student", None])
)
@QUICK
def test_any_value_in_an_event(base: Path, kind: str, fields: dict[str, Any], stage: str | None) -> None:
    """Each kind of event with anything in its fields."""
    good = (base / "events.jsonl").read_text()
    try:
        event = {"stage": stage, **fields, "t": 30.0, "type": kind}
        (base / "events.jsonl").write_text(good + json.dumps(event) + "\n")
        look(base)
    finally:
        (base / "events.jsonl").write_text(good)
