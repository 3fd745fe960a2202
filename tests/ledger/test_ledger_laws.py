"""Laws that hold for any run: conservation, no negatives, cutting into batches changes nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import naive
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_inputs import gpu, manifest, model, package

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.device import HORIZON_S
from kdwatch.ledger.types import Totals

DEVICES = [gpu("g0"), gpu("g1", source="integrated"), package("cpu0"), model("ram", "ram_estimated")]
STAGES = [{"name": "a", "gpus": [0]}, {"name": "b", "gpus": [1]}, {"name": "c"}]

level = st.one_of(st.none(), st.floats(0, 3e5), st.sampled_from([0.0, 262143.0, 1.8e13, -5.0, math.nan]))
watts = st.one_of(st.none(), st.floats(0, 800), st.sampled_from([0.0, 9e9, -1.0]))
step = st.one_of(st.floats(0.0005, 0.4), st.sampled_from([0.1, 0.1, 0.1, 1.0, 30.0]))


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """A story in order of time: readings of any device, sane or not, and stages that come and go."""
    t, story = 0.0, []
    counters = {d["key"]: draw(st.floats(0, 2e5)) for d in DEVICES}
    for _ in range(draw(st.integers(1, 60))):
        t = round(t + draw(step), 6)
        what = draw(st.integers(0, 9))
        if what == 0:
            story.append(("event", {"t": t, "type": "stage_started", "stage": draw(st.sampled_from("abc"))}))
        elif what == 1:
            story.append(
                ("event", {"t": t, "type": "stage_ended", "stage": draw(st.sampled_from("abc")), "exit_code": 0})
            )
        else:
            key = draw(st.sampled_from([d["key"] for d in DEVICES]))
            counters[key] += draw(st.floats(0, 60))
            wild = draw(st.integers(0, 7)) == 0
            counter = draw(level) if wild else round(counters[key], 3)
            if counter is not None and math.isnan(counter):
                counter = None
            story.append(("sample", (t, key, counter, draw(watts), draw(watts))))
    return story


def tell(ledger: Ledger, story: list[tuple[str, Any]]) -> Ledger:
    for kind, what in story:
        if kind == "event":
            ledger.event(what)
        else:
            ledger.sample(*what)
    return ledger


def fresh() -> Ledger:
    return Ledger(manifest(DEVICES, STAGES))


def check_conserved(totals: Totals) -> None:
    """Stages + unattributed = total, per device and for the run, to 1e-9 relative (design, "Nothing is dropped")."""
    for device in totals.devices:
        parts = [d.energy_j for s in totals.stages for d in s.devices if d.key == device.key and d.energy_j is not None]
        if device.total_j is None:
            assert not any(parts)
            continue
        assert device.total_j >= 0 and device.unattributed_j is not None and device.unattributed_j >= 0
        assert all(p >= 0 for p in parts)
        assert math.isclose(math.fsum([*parts, device.unattributed_j]), device.total_j, rel_tol=1e-9, abs_tol=1e-9)
    if totals.total_j is not None:
        known = [s.energy_j["total"] for s in totals.stages if s.energy_j["total"] is not None]
        assert math.isclose(
            math.fsum([*known, totals.unattributed_j or 0.0]), totals.total_j, rel_tol=1e-9, abs_tol=1e-9
        )


@settings(max_examples=150, deadline=None)
@given(runs())
def test_stages_and_unattributed_are_the_total(story: list[tuple[str, Any]]) -> None:
    check_conserved(tell(fresh(), story).totals())


@settings(max_examples=100, deadline=None)
@given(runs(), st.lists(st.integers(0, 60), max_size=4))
def test_saving_and_restoring_anywhere_changes_nothing(story: list[tuple[str, Any]], cuts: list[int]) -> None:
    whole = tell(fresh(), story).totals()
    ledger, done = fresh(), 0
    for cut in sorted({min(c, len(story)) for c in cuts}):
        tell(ledger, story[done:cut])
        ledger = Ledger.from_state(ledger.manifest, json.loads(json.dumps(ledger.state(), allow_nan=False)))
        done = cut
    assert tell(ledger, story[done:]).totals() == whole


@pytest.mark.fault(51)
def test_looking_each_50_ms_leaves_a_stages_energy() -> None:
    """Fault 51: 100 W for 3 s, looked at like a live view does; a push of others takes away what it showed."""
    watched, pushed = Ledger(manifest([gpu()], ["s"])), naive.OneBaseline()
    watched.event({"t": 0.0, "type": "stage_started", "stage": "s"})
    pushed.start(0.0)
    for k in range(61):
        watched.sample(k * 0.05, "g0", 100.0 * k * 0.05, 100.0, None)
        watched.totals()
        if k < 55:
            pushed.push(100.0 * k * 0.05)
    watched.event({"t": 3.0, "type": "stage_ended", "stage": "s", "exit_code": 0})
    assert watched.totals().stages[0].energy_j["gpu"] == pytest.approx(300.0, rel=0.01)
    assert pushed.stop(300.0) < 50.0


@settings(max_examples=60, deadline=None)
@given(runs())
def test_looking_changes_nothing(story: list[tuple[str, Any]]) -> None:
    """Fault 51: a reader that looks every few samples must not move a baseline."""
    watched = fresh()
    for entry in story:
        tell(watched, [entry])
        check_conserved(watched.totals())
    assert watched.totals() == tell(fresh(), story).totals()


@settings(max_examples=60, deadline=None)
@given(runs(), st.floats(0, 0.9 * HORIZON_S))
def test_events_may_come_after_the_samples_of_their_time(story: list[tuple[str, Any]], late: float) -> None:
    """A recorder learns of a stage's end a moment later than it was: up to the horizon makes no difference."""
    arrivals = [(what["t"] + late, what["t"], kind, what) if kind == "event" else (what[0], what[0], kind, what)
                for kind, what in story]  # fmt: skip
    delayed = [(kind, what) for _, _, kind, what in sorted(arrivals, key=lambda a: a[:2])]
    on_time, after = tell(fresh(), story).totals(), tell(fresh(), delayed).totals()
    for a, b in zip(on_time.stages, after.stages, strict=True):
        assert b.energy_j["total"] == pytest.approx(a.energy_j["total"], rel=1e-9, abs=1e-9)
    assert after.total_j == pytest.approx(on_time.total_j, rel=1e-9, abs=1e-9)


@pytest.mark.fault(3)
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.02, 2.0), st.floats(0.5, 900.0)), min_size=3, max_size=80),
    st.floats(0, 262143.0),
    st.data(),
)
def test_wraps_are_right_to_the_joule(walk: list[tuple[float, float]], first: float, data: st.DataObject) -> None:
    """Fault 3: under any walk of a wrapping counter, stages are exact at readings and never negative."""
    wrap = 262143.328850
    ledger = Ledger(manifest([package()], ["s"]))
    t, true = 1.0, [0.0]
    times = [t]
    for dt, power in walk:
        t += dt
        times.append(t)
        true.append(true[-1] + power * dt)
    i = data.draw(st.integers(0, len(times) - 2))
    j = data.draw(st.integers(i + 1, len(times) - 1))
    for k, at in enumerate(times):
        if k == i:
            ledger.event({"t": at, "type": "stage_started", "stage": "s"})
        if k == j:
            ledger.event({"t": at, "type": "stage_ended", "stage": "s", "exit_code": 0})
        ledger.sample(at, "cpu0", (first + true[k]) % wrap, None, None)
    totals = ledger.totals()
    assert totals.total_j == pytest.approx(true[-1], abs=0.5)
    assert totals.stages[0].energy_j["cpu"] == pytest.approx(true[j] - true[i], abs=0.5)
    wraps = (first + true[-1]) // wrap > first // wrap
    assert (min(naive.steps([(first + used) % wrap for used in true])) < 0) is wraps


@pytest.mark.fault(3)
def test_energy_rises_at_each_reading_over_a_wrap() -> None:
    """Fault 3: 250 W over a wrap at 2.4 s; the row of that second is no debit."""
    wrap, ledger, rows = 262143.328850, Ledger(manifest([package()], ["s"])), []
    values = [(wrap - 600.0 + 250.0 * t) % wrap for t in range(6)]
    ledger.event({"t": 0.0, "type": "stage_started", "stage": "s"})
    for t, joules in enumerate(values):
        ledger.sample(float(t), "cpu0", joules, None, None)
        rows.append(ledger.totals().total_j)
    assert naive.steps(rows) == pytest.approx([250.0] * 5)
    assert min(naive.steps(values)) < 0
