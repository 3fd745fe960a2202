"""The demo's directory: data, models and recipes side by side, so that a copy of it is a project to start from."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

from kdwatch.demo.tasks import STUDENT_TASKS, examples, noisy, write_jsonl

HERE = Path(__file__).parent
ASSETS = HERE / "assets"
RECIPES = ("sft", "kd", "synthetic")
"""In the order in which they run."""
ROWS = 6000
NOISE = 0.25
"""Share of training labels with one wrong character."""
TEST_ROWS = 200
"""Held-out prompts of each task."""
DATA_SEED, TEST_SEED = 31, 77


def write_demo(folder: Path, student: str) -> list[Path]:
    """Write everything the recipes need, for the student `xs` or `s`; the recipes' paths in running order."""
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "train.jsonl", noisy(DATA_SEED, ROWS, NOISE))
    test = [row for task in STUDENT_TASKS for row in islice(examples(TEST_SEED, (task,), test=True), TEST_ROWS)]
    write_jsonl(folder / "test.jsonl", test)
    for source, target in (("teacher", "teacher"), (f"base_{student}", "student")):
        shutil.rmtree(folder / target, ignore_errors=True)
        shutil.copytree(ASSETS / source, folder / target)
    paths = []
    for name in RECIPES:
        path = folder / f"{name}.yaml"
        shutil.copyfile(HERE / "recipes" / path.name, path)
        paths.append(path)
    return paths
