"""The frontier against its definition, and the numbers drawn from it."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.frontier import (
    Point,
    dominated_by,
    frontier,
    frontier_table,
    hypervolume,
    knee,
    marginal_quality,
    next_upgrade,
)

coordinates = st.tuples(st.integers(1, 12).map(float), st.integers(0, 10).map(lambda q: q / 10))
clouds = st.lists(coordinates, max_size=25).map(lambda ps: [Point(f"p{i:02}", e, q) for i, (e, q) in enumerate(ps)])
STUDY = [
    Point("SFT-1B", 7.0, 0.69),
    Point("KD-1B", 16.9, 0.7),
    Point("SFT-7B", 19.5, 0.9),
    Point("SFT-13B", 34.6, 0.99),
]


def by_definition(points: list[Point], tolerance: float) -> set[tuple[float, float]]:
    """No point needs no more energy with no less quality, better in one; none cheaper comes within the tolerance."""

    def beaten(k: Point) -> bool:
        dominated = any(
            o.energy <= k.energy and o.quality >= k.quality and (o.energy, o.quality) != (k.energy, k.quality)
            for o in points
        )
        near = tolerance and any(o.energy < k.energy and o.quality >= k.quality - tolerance - 1e-9 for o in points)
        return bool(dominated or near)

    return {(k.energy, k.quality) for k in points if not beaten(k)}


@given(clouds, st.sampled_from([0.0, 0.1, 0.25]))
def test_list_and_table_agree_with_the_definition(points: list[Point], tolerance: float) -> None:
    expected = by_definition(points, tolerance)
    found = frontier(points, tolerance)
    assert {(p.energy, p.quality) for p in found} == expected
    assert len(found) == len(expected), "identical points give one frontier point"
    table = pl.DataFrame(
        {
            "id": [p.id for p in points],
            "per_student_kwh": [p.energy for p in points],
            "quality": [p.quality for p in points],
        },
        schema={"id": pl.String, "per_student_kwh": pl.Float64, "quality": pl.Float64},
    )
    assert [tuple(row) for row in frontier_table(table, tolerance=tolerance).rows()] == [tuple(p) for p in found]


@given(clouds)
def test_dominated_and_frontier_share_all_distinct_points(points: list[Point]) -> None:
    beaten = dominated_by(points)
    on = {(p.energy, p.quality) for p in frontier(points)}
    for point in points:
        assert (point.id in beaten) != ((point.energy, point.quality) in on)


@given(clouds, coordinates)
def test_hypervolume_never_falls_when_a_point_is_added(points: list[Point], extra: tuple[float, float]) -> None:
    reference = (10.0, 0.2)
    pairs = [(p.energy, p.quality) for p in points]
    before, after = hypervolume(pairs, reference), hypervolume([*pairs, extra], reference)
    assert before is not None and after is not None
    assert after >= before - 1e-12
    assert hypervolume([*pairs, *pairs], reference) == pytest.approx(before), "duplicates add nothing"


def test_hypervolume_of_the_study_and_without_a_reference() -> None:
    pairs = [(p.energy, p.quality) for p in STUDY]
    # (45-7)·0.09 + (45-16.9)·0.01 + (45-19.5)·0.20 + (45-34.6)·0.09
    assert hypervolume(pairs, (45, 0.6)) == pytest.approx(3.42 + 0.281 + 5.1 + 0.936)
    assert hypervolume(pairs, None) is None


def test_knee_is_the_highest_point_over_the_chord_and_shows_its_scaling() -> None:
    found = knee(STUDY)
    assert found is not None
    # ((0.90-0.69)/0.30 - (19.5-7)/27.6) / sqrt(2)
    assert (found.id, found.height) == ("SFT-7B", pytest.approx((0.7 - 12.5 / 27.6) / math.sqrt(2)))
    assert found.energy_range_kwh == (7.0, 34.6)
    assert knee(STUDY[:2]) is None, "two points have no knee"
    assert knee([Point("a", 1, 0.1), Point("b", 2, 0.15), Point("c", 3, 0.9)]) is None, "none above the chord"


def test_missing_nan_constant_and_single_points_have_defined_answers() -> None:
    table = pl.DataFrame(
        {"id": list("abcd"), "per_student_kwh": [1.0, None, 2.0, 3.0], "quality": [0.5, 0.9, math.nan, 0.4]}
    )
    assert frontier_table(table)["id"].to_list() == ["a"]
    assert frontier([Point("a", 1, 0.5)] * 3) == [Point("a", 1, 0.5)]
    assert frontier([]) == []
    assert frontier_table(table.clear()).is_empty()


def test_of_identical_candidates_the_first_name_stands() -> None:
    table = pl.DataFrame({"id": ["b", "a"], "per_student_kwh": [1.0, 1.0], "quality": [0.5, 0.5]})
    assert frontier_table(table)["id"].to_list() == ["a"]


def test_throughput_frontier_uses_another_column() -> None:
    table = pl.DataFrame(
        {"id": ["x", "y"], "j_per_token": [2.0, 1.0], "quality": [0.5, 0.6], "per_student_kwh": [1.0, 9.0]}
    )
    assert frontier_table(table, energy="j_per_token")["id"].to_list() == ["y"]


def test_marginal_quality_and_next_upgrade() -> None:
    assert marginal_quality([STUDY[0], STUDY[2], STUDY[3]]) == pytest.approx([0.21 / 12.5, 0.09 / 15.1])
    assert next_upgrade(STUDY, 10, 0.69) == STUDY[1]
    assert next_upgrade(STUDY, 50, 0.99) is None
