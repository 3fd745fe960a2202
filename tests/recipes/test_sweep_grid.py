"""Sweeps as they are read: points, names, declared temperatures, and errors with file, line and key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_helpers import KD

from kdwatch.pipeline.recipe import load_recipe
from kdwatch.pipeline.spawn import NAME
from kdwatch.pipeline.sweep import Sweep, load_sweep
from kdwatch.pipeline.sweep_names import point_name, unique_names
from kdwatch.pipeline.sweep_temperatures import declare_temperatures
from kdwatch.rundir.errors import UsageProblem

ReadSweep = Callable[[str], Sweep]


def settings_of(sweep: Sweep, stage: str) -> list[dict[str, Any]]:
    return [next(s.settings for s in p.recipe.stages if s.name == stage) for p in sweep.points]


def test_every_combination_is_a_point_named_after_what_varies(folder: Path, sweep_of: ReadSweep) -> None:
    sweep = sweep_of(KD + "sweep:\n  student.alpha: [0.3, 0.8]\n  student.epochs: [1, 2]\n  student.seed: [7]\n")
    assert [p.name for p in sweep.points] == [
        "kd-alpha0.3-epochs1", "kd-alpha0.3-epochs2", "kd-alpha0.8-epochs1", "kd-alpha0.8-epochs2",
    ]  # fmt: skip
    assert [(s["alpha"], s["epochs"], s["seed"]) for s in settings_of(sweep, "student")] == [
        (0.3, 1, 7), (0.3, 2, 7), (0.8, 1, 7), (0.8, 2, 7),
    ]  # fmt: skip
    assert all(p.recipe.sweep is None for p in sweep.points)
    assert sweep.points[0].settings == {"student.alpha": 0.3, "student.epochs": 1, "student.seed": 7}


def test_one_cache_declares_every_temperature_that_students_use(folder: Path, sweep_of: ReadSweep) -> None:
    sweep = sweep_of(KD + "sweep: {student.temperature: [4, 1, 2], student.alpha: [0.3, 0.5]}\n")
    assert [s["temperatures"] for s in settings_of(sweep, "cache")] == [[1.0, 2.0, 4.0]] * 6


def test_declared_temperatures_are_kept_and_a_cache_that_suffices_is_not_touched(
    folder: Path, sweep_of: ReadSweep
) -> None:
    declared = KD.replace("top_k: 4", "top_k: 4, temperatures: [8, 2, 1]")
    assert settings_of(sweep_of(declared + "sweep: {student.temperature: [2]}\n"), "cache")[0]["temperatures"] == [
        8, 2, 1,
    ]  # fmt: skip
    found = settings_of(sweep_of(declared + "sweep: {student.temperature: [4]}\n"), "cache")
    assert found[0]["temperatures"] == [1.0, 2.0, 4.0, 8.0]


def test_caches_of_other_settings_keep_their_own_temperatures(folder: Path, sweep_of: ReadSweep) -> None:
    sweep = sweep_of(
        KD
        + "sweep:\n  - {cache.top_k: [2], student.temperature: [1]}\n  - {cache.top_k: [4], student.temperature: [3]}\n"
    )
    assert [s["temperatures"] for s in settings_of(sweep, "cache")] == [[1.0], [3.0]]


def test_grids_over_other_recipes_with_keys_for_all(folder: Path, sweep_of: ReadSweep) -> None:
    (folder / "kd.yaml").write_text(KD)
    sweep = sweep_of(
        """\
        name: both
        region: FRA
        env: {A: 1}
        sweep:
          - {recipe: kd.yaml, student.alpha: [0.3, 0.5]}
          - recipe: kd.yaml
        """
    )
    assert sweep.name == "both"
    assert [p.name for p in sweep.points] == ["kd-alpha0.3", "kd-alpha0.5", "kd"]
    assert {p.recipe.region for p in sweep.points} == {"FRA"}
    assert all(p.recipe.env == {"A": "1"} and p.recipe.folder == folder for p in sweep.points)


def test_variables_for_all_join_those_of_the_recipes(folder: Path, sweep_of: ReadSweep) -> None:
    """As a stage's `env` over its recipe's: over that of its name, the others stay (docs/recipes.md)."""
    (folder / "kd.yaml").write_text("env: {A: 1, B: 2}\n" + KD)
    (point,) = sweep_of("env: {B: 3, C: 4}\nsweep: [{recipe: kd.yaml}]\n").points
    assert point.recipe.env == {"A": "1", "B": "3", "C": "4"}


def test_environment_of_a_command_varies(sweep_of: ReadSweep) -> None:
    sweep = sweep_of(
        """\
        stages:
          - {name: own.train, run: sleep 0, env: {B: x}}
        sweep: {own.train.env.SEED: [1, 2]}
        """
    )
    assert [p.recipe.stages[0].env for p in sweep.points] == [{"B": "x", "SEED": "1"}, {"B": "x", "SEED": "2"}]
    assert [p.name for p in sweep.points] == ["run-SEED1", "run-SEED2"]


def test_nested_settings_and_lists_are_values_too(folder: Path, sweep_of: ReadSweep) -> None:
    text = KD.replace("objective: kd", "objective: kd, early_stop: {epsilon: 0.1, patience: 1}")
    sweep = sweep_of(text + "sweep: {student.early_stop.patience: [1, 3], cache.temperatures: [[1], [1, 2]]}\n")
    assert [s["early_stop"] for s in settings_of(sweep, "student")][::2] == [
        {"epsilon": 0.1, "patience": 1}, {"epsilon": 0.1, "patience": 3},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sweep", "line", "words"),
    [
        ("sweep: {student.alpha: 0.5}", 15, "sweep.student.alpha: give a list of values"),
        ("sweep: {student.alpha: []}", 15, "give a list of values"),
        ("sweep: {student.alpha: [0.5, 1.5]}", 15, "student.alpha[1]: 1.5: Input should be less than or equal to 1"),
        ("sweep: {student.alfa: [0.5]}", 15, "did you mean alpha"),
        ("sweep: {student.alpha: [0.5, 0.5]}", 15, "stands twice"),
        ("sweep:\n  studnet.alpha: [0.5]", 16, "did you mean student?"),
        ("sweep:\n  student.alpha: [0.5]\n  student.: [1]", 17, "no name may be empty"),
        ("sweep: {student.env.A.B: [1]}", 15, "no dot"),
        ("sweep: {student.seed: [.inf]}", 15, "cannot be a setting"),
        ("sweep: {student.env.DAY: [2026-01-01]}", 15, "cannot be a setting"),
        ("sweep: 3", 15, "give a mapping"),
        ("sweep: [{}]", 15, "give a mapping"),
        ("sweep: [{recipe: other.yaml}]", 15, "this file has stages of its own"),
    ],
)
def test_errors_name_file_line_and_key(folder: Path, sweep_of: ReadSweep, sweep: str, line: int, words: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        sweep_of(KD + sweep + "\n")
    text = str(caught.value)
    assert text.startswith(f"{folder / 'grid.yaml'}:{line}: sweep") and words in text and "\n" not in text


def test_values_that_only_together_cannot_be_name_their_point(folder: Path, sweep_of: ReadSweep) -> None:
    with pytest.raises(UsageProblem, match=r"temperatures holds one.*at the point cache.top_k=2, cache.temperatures="):
        sweep_of(KD + "sweep: {cache.top_k: [2], cache.temperatures: [[1, 1]]}\n")
    with pytest.raises(UsageProblem, match=r"quantised belongs to method top_k.*at the point cache.method=sample"):
        sweep_of(KD + "sweep: {cache.method: [sample], cache.quantised: [true]}\n")


def test_errors_of_files_without_stages(folder: Path, sweep_of: ReadSweep) -> None:
    cases = {
        "sweep: {student.alpha: [1]}": "no stages to vary",
        "regime: kd\nsweep: [{recipe: kd.yaml}]": "regime: belongs into the recipes",
        "sweep: [{recipe: none.yaml}]": "no such file",
        "name: x": "sweep: is missing",
        "sweep: [{recipe: 3}]": "give the path of a recipe",
    }
    (folder / "kd.yaml").write_text(KD)
    for text, words in cases.items():
        with pytest.raises(UsageProblem, match=words):
            sweep_of(text + "\n")
    (folder / "grid2.yaml").write_text(KD + "sweep: {student.alpha: [0.5]}\n")
    with pytest.raises(UsageProblem, match="is no plain recipe"):
        sweep_of("sweep: [{recipe: grid2.yaml}]\n")


def test_run_refuses_a_sweep_and_names_the_command(folder: Path) -> None:
    (folder / "grid.yaml").write_text("sweep: [{recipe: kd.yaml}]\n")
    with pytest.raises(UsageProblem, match="kdwatch sweep"):
        load_recipe(folder / "grid.yaml")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("objective: kd", "objective: kd, temperature: 2", 13, "2 is not among the temperatures of cache"),
        (", logits: cache", "", 14, "objective kd needs the input logits"),
        ("objective: kd", "objective: sft", 14, "belongs to objective kd"),
    ],
)
def test_what_a_student_would_refuse_is_told_before_the_teacher_runs(
    folder: Path, old: str, new: str, line: int, words: str
) -> None:
    (folder / "r.yaml").write_text(KD.replace(old, new))
    with pytest.raises(UsageProblem) as caught:
        load_recipe(folder / "r.yaml")
    assert str(caught.value).startswith(f"{folder / 'r.yaml'}:{line}: stages[2].") and words in str(caught.value)


def test_too_many_points_are_a_slip(folder: Path) -> None:
    values = ", ".join(str(i) for i in range(101))
    (folder / "grid.yaml").write_text(KD + f"sweep: {{student.seed: [{values}], cache.seed: [{values}]}}\n")
    with pytest.raises(UsageProblem, match="10201 points"):
        load_sweep(folder / "grid.yaml")


TEMPERATURES = st.lists(st.sampled_from([0.5, 1, 1.0, 2, 4, 8]), min_size=1, max_size=4, unique_by=float)


@given(st.one_of(st.none(), TEMPERATURES), st.lists(TEMPERATURES, min_size=1, max_size=3))
def test_every_cache_of_a_sweep_declares_all_temperatures_used_on_its_like(
    declared: list[float] | None, grids: list[list[float]]
) -> None:
    def recipe(temperature: float) -> dict[str, Any]:
        settings = {"teacher": "t"} | ({} if declared is None else {"temperatures": list(declared)})
        return {
            "stages": [
                {"name": "c", "uses": "teacher.cache_logits", "with": settings},
                {"name": "s", "uses": "student.train", "with": {"temperature": temperature}, "inputs": {"logits": "c"}},
            ]
        }

    recipes = [recipe(t) for grid in grids for t in grid]
    declare_temperatures(recipes)
    found = {tuple(map(float, r["stages"][0]["with"]["temperatures"])) for r in recipes}
    assert len(found) == 1  # one cache for all
    used = {float(t) for grid in grids for t in grid}
    assert set(found.pop()) == used | {float(t) for t in declared or ()}


VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=80), st.none()
)


@given(st.dictionaries(st.text(min_size=1, max_size=30), VALUES, max_size=6))
def test_every_name_is_one_that_a_run_can_have(settings: dict[str, Any]) -> None:
    assert NAME.fullmatch(point_name("base", settings))


@given(st.lists(st.sampled_from(["a", "b", "x" * 64]), max_size=12))
def test_names_become_unique_and_stay_possible(names: list[str]) -> None:
    found = unique_names(names)
    assert len(set(found)) == len(names) and all(NAME.fullmatch(name) for name in found)


def test_long_names_end_with_a_hash_of_the_settings() -> None:
    one, two = (point_name("b" * 50, {"student.learning_rate": rate, "student.x": "y" * 9}) for rate in (1, 2))
    assert len(one) <= 64 and one != two
