"""The directory of the pipeline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from kdwatch.recipes.smollm2.models import gguf_file, write_models
from kdwatch.recipes.smollm2.questions import questions

HERE = Path(__file__).parent
ROWS = 64
RECIPES = ("kd.yaml", "synthetic.yaml")


def write(folder: Path) -> Path:
    """Write models, data and recipes into `folder`; the recipe to run first. Models that are there stay.

    Raises UsageProblem where a package is missing.
    """
    gguf_file()
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for row in questions(ROWS)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in RECIPES:
        shutil.copyfile(HERE / name, folder / name)
    if not (folder / "student" / "tokenizer.json").exists():
        write_models(folder)
    return folder / RECIPES[0]
