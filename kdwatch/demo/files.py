"""The demo's directory: data, models and recipes side by side, so that a copy of it is a project to start from."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kdwatch.demo.tasks import STUDENT_TASKS, examples, noisy, write_jsonl

HERE = Path(__file__).parent
ASSETS = HERE / "assets"
RECIPES = ("sft", "kd", "synthetic")
"""In the order in which they run."""
MODELS = ("teacher", "base_xs", "base_s")
NOISE = 0.25
"""Share of training labels with one wrong character."""
DATA_SEED, TEST_SEED = 31, 77


@dataclass(frozen=True)
class Length:
    """How long the pipelines run."""

    rows: int
    """Of training."""
    test_rows: int
    """Held-out prompts of each task."""
    epochs: float


SHORT, LONG = Length(6000, 200, 5.3), Length(240_000, 12_000, 4)


def write_demo(folder: Path, student: str, length: Length = SHORT) -> list[Path]:
    """Write everything the recipes need, for the student `xs` or `s`; the recipes' paths in running order."""
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "train.jsonl", noisy(DATA_SEED, length.rows, NOISE))
    test = [row for task in STUDENT_TASKS for row in islice(examples(TEST_SEED, (task,), test=True), length.test_rows)]
    write_jsonl(folder / "test.jsonl", test)
    for model in MODELS:
        shutil.copytree(ASSETS / model, folder / model, dirs_exist_ok=True)
    for name in (*RECIPES, "grid"):
        text = (HERE / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
        if name != "grid":
            text = text.replace("base_s", f"base_{student}")
            text = text.replace(f"epochs: {SHORT.epochs}", f"epochs: {length.epochs}")
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return [folder / f"{name}.yaml" for name in RECIPES]
