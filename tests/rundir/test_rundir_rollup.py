"""Power history: merging keeps extremes, mean and count; damaged lines are left out."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kdwatch.rundir import sealing
from kdwatch.rundir.parse import Sample, full_columns
from kdwatch.rundir.rollup import BucketRoller, PowerOf, decode, encode, merge

rows = st.lists(
    st.tuples(st.floats(0, 1e6), st.floats(0, 20), st.floats(0, 900), st.floats(0, 900), st.integers(1, 200)),
    max_size=60,
).map(lambda found: [[t, t + d, min(a, b), (a + b) / 2, max(a, b), n] for t, d, a, b, n in found])


@given(rows, st.integers(1, 40))
@example([[0.0, 0.0, 0.0, 0.0, 0.0, 1], [0.0, 0.0, 0.0, 0.0, 0.0, 1]], 1)
def test_merging_loses_nothing(found: list[list[float]], max_points: int) -> None:
    merged = merge(found, max_points)
    assert len(merged) <= max(max_points, 0) or len(found) <= max_points
    assert sum(b.count for b in merged) == sum(r[5] for r in found)
    assert math.isclose(sum(b.sum_w for b in merged), sum(r[3] * r[5] for r in found), abs_tol=1e-6, rel_tol=1e-9)
    assert [b.start_s for b in merged] == sorted(b.start_s for b in merged)
    if found:
        assert min(b.low_w for b in merged) == min(r[2] for r in found)
        assert max(b.high_w for b in merged) == max(r[4] for r in found)
        assert all(b.low_w <= b.mean_w + 1e-9 and b.mean_w <= b.high_w + 1e-9 for b in merged)


def test_a_line_comes_back() -> None:
    line = encode(7, {"g0": [[0.0, 9.9, 100.0, 150.126, 200.0, 100]], "g1": []})
    assert decode(line) == (7, {"g0": [[0.0, 9.9, 100.0, 150.13, 200.0, 100]], "g1": []})


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"{}", b'{"segment": 1}', b'{"segment": 1, "devices": {"g0": [[1, 2]]}}',
     b'{"segment": 1, "devices": {"g0": [[1, 2, 3, 4, "x", 1]]}}',
     b'{"segment": 1, "devices": {"g0": [[1, 2, 3, 4, NaN, 1]]}}',
     b'{"segment": "x", "devices": {}}', b'{"segment": 1, "devices": {"g0": [[1, 2, 3, 4, 5, null]]}}', b"[" * 9999],
)  # fmt: skip
def test_damaged_lines_are_left_out(line: bytes) -> None:
    assert decode(line) is None


def test_power_from_a_counter_alone_is_its_difference_unwrapped() -> None:
    """RAPL: 90 J of range, 40 W; no power before the second reading; a step back that is no wrap gives none."""
    power = PowerOf(wrap_j=90.0)
    values = [
        power.power(Sample(t, "c", j, None, None)) for t, j in ((0.0, 10.0), (1.0, 50.0), (2.0, 0.0), (3.0, 40.0))
    ]
    assert values == [None, 40.0, 40.0, 40.0]
    plain = PowerOf()
    assert [plain.power(Sample(t, "c", j, None, None)) for t, j in ((0.0, 10.0), (1.0, 5.0), (2.0, 25.0))] == [
        None, None, 20.0,
    ]  # fmt: skip


def test_samples_go_into_buckets_of_ten_seconds() -> None:
    roller = BucketRoller({"g0": PowerOf()})
    for k in range(200):
        roller.add(Sample(k / 10, "g0", None, 100.0 + k, None))
    roller.add(Sample(1.0, "unknown", None, 5.0, None))
    assert roller.buckets() == {"g0": [[0.0, 9.9, 100.0, 149.5, 199.0, 100], [10.0, 19.9, 200.0, 249.5, 299.0, 100]]}


def test_segments_are_rolled_up_by_columns_as_by_rows(monkeypatch) -> None:
    header = "t_s,g0_w,g0_j,g1_w,g1_j"
    rows = [f"{0.1 * k:.6f},{100 + k % 7}.5,{k}.0,{50 + k % 3}.25,{k}.5" for k in range(1000)]
    rows[300] = "30.000000,,300.0,7.0,300.5"
    rows[500:500] = [header, "49.95,1.0"]
    found = []
    for at_once in (100, 10**9):
        monkeypatch.setattr(sealing, "ROWS_AT_ONCE", at_once)
        roller = BucketRoller({"g0": PowerOf(), "g1": PowerOf()})
        sealing._roll(roller, [header, *rows])
        found.append(roller.buckets())
    assert found[0] == found[1]
    assert [sum(row[5] for row in found[0][key]) for key in ("g0", "g1")] == [999, 1000]
    assert full_columns(header, rows[:100]) is not None and full_columns(header, rows) is None
