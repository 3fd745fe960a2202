"""The shipped recipes: valid, with the study's settings, on the models' published configurations."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kdwatch.pipeline.recipe import Recipe, load_recipe
from kdwatch.pipeline.sweep import load_sweep
from kdwatch.recipes.catalog import STUDY, entries, entry
from kdwatch.recipes.published import published, published_models
from kdwatch.rundir.errors import UsageProblem

CONFIGS = Path(__file__).parents[1] / "data" / "olmo2_configs.csv"
"""As published, for 7B, 13B and 32B; the 1B's was not found when the table was made."""
METHODS = {"sft": "sft", "kd": "kd", "synthetic": "synthetic_sft"}
STUDENTS = {"1b": "allenai/OLMo-2-0425-1B", "7b": "allenai/OLMo-2-1124-7B", "13b": "allenai/OLMo-2-1124-13B"}
TEACHER = "allenai/OLMo-2-0325-32B-SFT"
NINE = [(method, size) for method in METHODS for size in STUDENTS]


def settings(recipe: Recipe, uses: str) -> dict[str, Any]:
    return next(stage.settings for stage in recipe.stages if stage.uses == uses)


def test_published_values_are_those_of_the_reference() -> None:
    with CONFIGS.open(newline="") as f:
        rows = list(csv.DictReader(f))
    assert {row["model"] for row in rows} == {"OLMo-2-1124-7B", "OLMo-2-1124-13B", "OLMo-2-0325-32B"}
    for row in rows:
        ours = published(f"allenai/{row['model']}")
        assert ours is not None and ours.source == "config.json"
        for name, value in row.items():
            if name in ("model", "role"):
                continue
            got = getattr(ours, name)
            assert (str(got).lower() if isinstance(got, bool) else got) == (
                value if isinstance(got, bool) else float(value)
            ), (row["model"], name)


def test_the_1b_row_says_that_it_is_from_the_training_configuration() -> None:
    one = published("allenai/OLMo-2-0425-1B")
    assert one is not None and "training configuration" in one.source
    assert one.parameters == pytest.approx(1.485e9, rel=1e-3)  # the number of parameters that is published for it


def test_parameter_counts_are_those_of_the_architecture() -> None:
    """Against transformers' own OLMo-2, built without memory."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for model in published_models():
        config = transformers.Olmo2Config(
            hidden_size=model.hidden_size,
            num_hidden_layers=2,
            intermediate_size=model.intermediate_size,
            num_attention_heads=model.num_attention_heads,
            num_key_value_heads=model.num_key_value_heads,
            vocab_size=model.vocab_size,
            tie_word_embeddings=model.tie_word_embeddings,
        )
        with torch.device("meta"):
            built = transformers.AutoModelForCausalLM.from_config(config)
        layers = built.model.layers
        layer = sum(p.numel() for p in layers[0].parameters())
        rest = sum(p.numel() for p in built.parameters()) - len(layers) * layer
        assert model.parameters == rest + model.num_hidden_layers * layer, model.model


@pytest.mark.parametrize("name", ["-SFT", "-DPO", "-Instruct", ""])
def test_later_training_stages_keep_the_configuration(name: str) -> None:
    found = published("allenai/OLMo-2-0325-32B" + name)
    assert found is not None and found.num_hidden_layers == 64
    assert published("allenai/OLMo-2-0325-32B-other") is None


@pytest.mark.parametrize(("method", "size"), NINE)
def test_each_configuration_names_the_studys_models(method: str, size: str) -> None:
    recipe = load_recipe(STUDY / f"{method}-{size}.yaml")
    assert recipe.regime == METHODS[method]
    assert settings(recipe, "student.train")["student"] == STUDENTS[size] and published(STUDENTS[size])
    teachers = {stage.settings["teacher"] for stage in recipe.stages if "teacher" in stage.settings}
    assert teachers == {TEACHER} and published(TEACHER)


@pytest.mark.parametrize("size", STUDENTS)
def test_generation_samples_the_nucleus(size: str) -> None:
    recipe = load_recipe(STUDY / f"synthetic-{size}.yaml")
    found = settings(recipe, "teacher.generate")
    assert found.get("do_sample", True) and 0 < found["top_p"] < 1 and settings(recipe, "preprocess")["limit"] == 7000


def test_the_sweeps_share_the_teachers_work() -> None:
    kd = load_sweep(STUDY / "sweep-kd.yaml")
    assert len({json.dumps(settings(p.recipe, "teacher.cache_logits"), sort_keys=True) for p in kd.points}) == 1
    assert sorted(p.name for p in load_sweep(STUDY / "sweep-all.yaml").points) == sorted(
        f"olmo2-{method}-{size}" for method, size in NINE
    )


def test_every_entry_has_a_summary_and_a_near_name_is_offered() -> None:
    names = [found.name for found in entries()]
    assert len(names) == 14 and len(set(names)) == 14 and all(20 < len(found.summary) < 120 for found in entries())
    with pytest.raises(UsageProblem, match="did you mean olmo2/kd-1b"):
        entry("olmo2/kd-1")


def kdwatch(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kdwatch", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_copied_sweep_comes_with_the_recipe_that_it_varies(tmp_path: Path) -> None:
    done = kdwatch("recipes", "olmo2/sweep-kd", tmp_path / "mine")
    assert done.returncode == 0 and Path(done.stdout.strip()) == tmp_path / "mine" / "sweep-kd.yaml"
    assert len(load_sweep(tmp_path / "mine" / "sweep-kd.yaml").points) == 27
    again = kdwatch("recipes", "olmo2/kd-1b", tmp_path / "mine")
    assert again.returncode == 2 and "is not empty" in again.stderr and again.stderr.count("\n") == 1


def test_the_demo_can_be_copied_with_its_grid(tmp_path: Path) -> None:
    first = entry("demo").write(tmp_path / "demo")
    sweep = load_sweep(first)
    assert len(sweep.points) >= 12
    assert {p.recipe.regime for p in sweep.points} == {"sft", "kd", "synthetic_sft"}
    assert len({settings(p.recipe, "student.train")["student"] for p in sweep.points}) == 2


def test_a_recipe_of_models_on_the_hub_has_a_dry_run_without_them() -> None:
    done = kdwatch("run", STUDY / "kd-1b.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "≤30.7M" in lines["preprocess"]  # 30000 rows x 1024 tokens
    assert "≤13.2 GB" in lines["teacher"]  # 429 bytes x 30.72 million positions
    assert "≤30.4M" in lines["student"] and "5.94 GB" in lines["student"]  # 1.485 billion weights of 4 bytes
    assert "16.90 kWh" in lines["study:"] and "prior" in lines["energy:"]
    assert lines["nothing"] == "nothing was run"
