"""The recipes that ship: each is valid, and says of the study's models what their published configurations say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import kdwatch
from kdwatch.demo.files import write_demo
from kdwatch.pipeline.recipe import load_recipe
from kdwatch.pipeline.sweep import load_sweep
from kdwatch.recipes.published import published

ROOT = Path(kdwatch.__file__).parent
OLMO = ROOT / "recipes" / "olmo2"
SWEEPS = sorted(OLMO.glob("sweep-*.yaml"))
NINE = sorted(set(OLMO.glob("*.yaml")) - set(SWEEPS))
STUDENTS = {"1b": "allenai/OLMo-2-0425-1B", "7b": "allenai/OLMo-2-1124-7B", "13b": "allenai/OLMo-2-1124-13B"}


def test_there_are_the_studys_nine_configurations() -> None:
    assert [p.stem for p in NINE] == sorted(f"{r}-{s}" for r in ("sft", "kd", "synthetic") for s in STUDENTS)


@pytest.mark.parametrize("path", NINE, ids=lambda p: p.stem)
def test_study_recipe_is_valid_and_has_the_studys_settings(path: Path) -> None:
    """reference/README.md: 1024 tokens, bf16, Adafactor, cosine, 100 warm-up steps, tolerance 2e-3; traps 1, 2 and 7:
    four rows an update, one stopping rule, one optimizer in all regimes."""
    recipe = load_recipe(path)
    stages = {s.name: s for s in recipe.stages}
    student = stages["student"].settings
    assert student["student"] == STUDENTS[path.stem.split("-")[1]]
    assert student["batch_rows"] * student["accumulate"] == 4
    assert student["optimizer"] == "adafactor" and student["dtype"] == "bfloat16"
    assert (student["schedule"], student["warmup_steps"]) == ("cosine", 100)
    assert student["early_stop"]["epsilon"] == 0.002 and student["early_stop"]["patience"] == 3
    assert stages["preprocess"].settings["max_length"] == 1024
    assert ("teacher" in stages) == (recipe.regime != "sft")
    if recipe.regime == "kd":
        assert (student["alpha"], student["temperature"]) == (0.5, 1)
        assert stages["teacher"].settings["top_k"] == 100 and stages["teacher"].settings["temperatures"] == [1, 2, 4]


def test_sweeps_are_the_studys_grids() -> None:
    """T in {1, 2, 4} x alpha in {0.3, 0.5, 0.8}; max_new_tokens in {256, 512, 1024} x {3500, 7000} prompts."""
    points = {p.stem: load_sweep(p).points for p in SWEEPS}
    assert len(points["sweep-kd"]) == 3 * 9 and len(points["sweep-synthetic"]) == 3 * 6
    caches = {tuple(p.recipe.stages[2].settings["temperatures"]) for p in points["sweep-kd"]}
    assert caches == {(1, 2, 4)}


def test_published_shapes_give_the_models_sizes() -> None:
    """Billions of parameters by the published shapes against the names."""
    for hub, size in {**{h: s for s, h in STUDENTS.items()}, "allenai/OLMo-2-0325-32B": "32b"}.items():
        model = published(hub)
        assert model is not None and model.vocab_size == 100_352 and model.real_vocab_size == 100_278
        assert model.parameters / 1e9 == pytest.approx(float(size[:-1]), rel=0.5)
    with (ROOT / "recipes" / "models.csv").open(newline="") as f:
        assert len(list(csv.DictReader(f))) == 4


@pytest.mark.parametrize("student", ["xs", "s"])
def test_demo_recipes_are_valid_and_have_the_stages_their_regime_needs(tmp_path: Path, student: str) -> None:
    recipes = [load_recipe(p) for p in write_demo(tmp_path, student)]
    assert [r.regime for r in recipes] == ["sft", "kd", "synthetic_sft"]
    uses = [[s.uses for s in r.stages] for r in recipes]
    assert not any(u and u.startswith("teacher.") and u != "teacher.evaluate" for u in uses[0])
    assert "teacher.cache_logits" in uses[1] and "teacher.generate" in uses[2]
    assert all(f"base_{student}" in (tmp_path / f"{n}.yaml").read_text() for n in ("sft", "kd", "synthetic"))


def test_demo_grid_has_three_regimes_two_sizes_and_two_hyperparameters(tmp_path: Path) -> None:
    write_demo(tmp_path, "s")
    points = load_sweep(tmp_path / "grid.yaml").points
    assert len(points) >= 12
    assert {p.recipe.regime for p in points} == {"sft", "kd", "synthetic_sft"}
    assert {p.settings["student.student"] for p in points} == {"base_xs", "base_s"}


def test_shipped_weights_stay_small() -> None:
    """≤ 5 MB of safetensors in all."""
    assert sum(p.stat().st_size for p in ROOT.rglob("*.safetensors")) <= 5e6
