"""The plot's history: extremes survive, silence is a gap, memory stays flat."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.rundir.parse import Sample
from kdwatch.tui.history import FIXED_LEVELS, TOTAL, WHOLE_BUCKETS, History, Series
from kdwatch.tui.rollups import read_rollups

DEVICES = [{"key": "g0"}, {"key": "cpu0", "wrap_j": 1000.0}]


def filled(values: list[float], step: float = 0.1) -> Series:
    """A series of samples at equal steps."""
    series = Series()
    for k, value in enumerate(values):
        series.add(k * step, value)
    return series


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=400), st.integers(1, 160))
def test_no_peak_is_lost_between_columns(values: list[float], columns: int) -> None:
    """Over the whole run the columns' extremes are the samples' extremes, whatever the zoom."""
    series = filled(values)
    found = [c for c in series.columns(0.0, len(values) * 0.1, columns) if c is not None]
    assert max(c[1] for c in found) == max(values)
    assert min(c[0] for c in found) == min(values)


def test_a_spike_of_one_sample_survives_days() -> None:
    """One 900 W sample in three days at 1 Hz is still the peak of the whole-run view."""
    series = Series()
    for t in range(0, 259_200, 1):
        series.add(float(t), 900.0 if t == 100_000 else 300.0)
    columns = series.columns(0.0, 259_200.0, 160)
    assert max(c[1] for c in columns if c) == 900.0
    assert [i for i, c in enumerate(columns) if c and c[1] == 900.0] == [int(100_000 / 259_200 * 160)]


def test_silence_is_a_gap_and_a_slow_sensor_is_not() -> None:
    """10 s without readings at 10 Hz is empty; a 1 Hz sensor in 0.1 s columns is not."""
    series = Series()
    for k in range(1200):
        t = k * 0.1
        if not 40 <= t < 50:
            series.add(t, 100.0)
    columns = series.columns(0.0, 120.0, 120)
    assert all(c is None for c in columns[41:49]) and all(columns[:40]) and all(columns[51:])
    slow = filled([50.0] * 60, step=1.0)
    assert all(slow.columns(0.0, 59.0, 590))


def test_memory_is_flat_over_100_000_ticks() -> None:
    """Levels never hold more than their capacity and a quarter."""
    series = filled([1.0] * 100_000, step=1.0)
    for level, (_, capacity) in zip(series.levels, (*FIXED_LEVELS, (0, WHOLE_BUCKETS)), strict=True):
        assert len(level.index) <= capacity * 1.25 + 1
    held = sum(sys.getsizeof(column) for lv in series.levels for column in (lv.index, lv.low, lv.high, lv.total, lv.n))
    assert held < 300_000


def test_total_adds_devices_of_different_rhythm() -> None:
    """A GPU at 10 Hz and a CPU counter at 1 Hz: 300 W + 50 W, the latter from 50 J a second."""
    history = History(DEVICES)
    for k in range(100):
        t = k * 0.1
        history.sample(Sample(t, "g0", None, 300.0, None))
        if k % 10 == 0:
            history.sample(Sample(t, "cpu0", 20.0 + 50.0 * t, None, None))
    history.settle()
    view = history.view(TOTAL, 5.0, 9.0, 8, 9.9)
    assert [c for c in view.columns if c] and all(c == (350.0, 350.0) for c in view.columns if c)
    assert view.now_w == 350.0


def test_a_wrapping_counter_gives_no_negative_power() -> None:
    """990 J to 30 J in a second with a range of 1000 J is 40 W."""
    history = History(DEVICES)
    history.sample(Sample(0.0, "cpu0", 990.0, None, None))
    history.sample(Sample(1.0, "cpu0", 30.0, None, None))
    assert history.series["cpu0"].last_value == pytest.approx(40.0)


def test_total_is_a_gap_while_an_expected_device_is_silent_and_goes_on_when_it_is_lost() -> None:
    """A partial sum is not shown as the total; a sensor known as lost no longer counts."""
    history = History(DEVICES)
    for k in range(50):
        history.sample(Sample(k * 0.1, "g0", None, 300.0, None))
        history.sample(Sample(k * 0.1, "cpu0", None, 50.0, None))
    for k in range(50, 150):
        history.sample(Sample(k * 0.1, "g0", None, 300.0, None))
    history.settle()
    assert history.view(TOTAL, 8.0, 14.0, 10, 14.9).columns == (None,) * 10
    history.lost("cpu0")
    for k in range(150, 200):
        history.sample(Sample(k * 0.1, "g0", None, 300.0, None))
    history.settle()
    assert history.total.last_value == 300.0


def test_rollups_of_earlier_segments_come_before_samples() -> None:
    """Buckets up to the checkpoint, samples after it; the total adds the means."""
    history = History([{"key": "a"}, {"key": "b"}])

    def rolled(w: float) -> list[list[float]]:
        return [[i * 10.0, i * 10.0 + 9.9, w - 5, w, w + 5, 100] for i in range(60)]

    whole = {"a": rolled(100.0), "b": rolled(40.0)}
    segments = [{key: rows[n : n + 30] for key, rows in whole.items()} for n in (0, 30)]
    history.roll_up(segments, until=600.0)
    for k in range(100):
        history.sample(Sample(600.0 + k * 0.1, "a", None, 100.0, None))
        history.sample(Sample(600.0 + k * 0.1, "b", None, 40.0, None))
    history.settle()
    view = history.view(TOTAL, 0.0, 610.0, 61, 609.9)
    assert all(c is not None for c in view.columns[:-1])
    assert view.columns[30] == (130.0, 150.0) and view.now_w == 140.0


def test_rollups_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    """A torn line, a second line of a segment, short rows and cells that are no numbers: the rest is read."""
    good = [[i * 10.0, i * 10.0 + 9.9, 90.0, 100.0, 110.0, 100] for i in range(4)]
    lines = [
        json.dumps({"segment": 1, "devices": {"a": [*good, [1.0, 2.0]]}}),
        json.dumps({"segment": 1, "devices": {"a": [[0.0, 9.9, 0.0, 0.0, 9999.0, 1]]}}),
        json.dumps({"segment": 2, "devices": {"a": [[40.0, 49.9, "x", None, [], 1]]}}),
        json.dumps({"segment": 3, "devices": 7}),
        '{"segment": 4, "dev',
    ]
    (tmp_path / "rollups.jsonl").write_text("\n".join(lines))
    history = History([{"key": "a"}])
    history.roll_up(read_rollups(tmp_path), until=100.0)
    assert history.series["a"].peak == 110.0 and history.series["a"].last_value == 100.0
