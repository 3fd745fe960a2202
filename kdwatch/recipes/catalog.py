"""The recipes that come with kdwatch: listed, and written to a directory as plain files to run and change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem

STUDY = Path(__file__).parent / "olmo2"


@dataclass(frozen=True)
class Entry:
    """One thing to copy."""

    name: str
    summary: str
    write: Callable[[Path], Path]
    """Writes it into a directory; returns the recipe to begin with."""


def entries() -> list[Entry]:
    """All of them: the study's, then those that run on a laptop."""
    found = [
        Entry(f"olmo2/{path.stem}", _summary(path), partial(_copy_study, path.name))
        for path in sorted(STUDY.glob("*.yaml"))
    ]
    demo = "The demo as a project: data, models, three recipes, and a grid of 16 points (grid.yaml)."
    smol = "SmolLM2-135M to a third of its layers: a real pipeline in minutes on two cores (kd.yaml, synthetic.yaml)."
    return [*found, Entry("demo", demo, _write_demo), Entry("smollm2", smol, _write_smollm2)]


def entry(name: str) -> Entry:
    """The entry of a name. Raises UsageProblem with near ones."""
    found = {e.name: e for e in entries()}
    if name in found:
        return found[name]
    near = get_close_matches(name, list(found), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `kdwatch recipes`"
    raise UsageProblem(f"no recipe {name}: {hint}")


def _summary(path: Path) -> str:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    return first.lstrip("# ")


def _copy_study(name: str, folder: Path) -> Path:
    """Copy one recipe; a sweep comes with the recipes that it varies."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in (*_parts(STUDY / name), name):
        shutil.copyfile(STUDY / part, folder / part)
    return folder / name


def _parts(path: Path) -> list[str]:
    import yaml

    data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    return list(dict.fromkeys(grid["recipe"] for grid in data.get("sweep") or ()))


def _write_demo(folder: Path) -> Path:
    from kdwatch.demo.files import write_demo

    write_demo(folder, "s")
    return folder / "grid.yaml"


def _write_smollm2(folder: Path) -> Path:
    from kdwatch.recipes.smollm2.write import write

    return write(folder)
