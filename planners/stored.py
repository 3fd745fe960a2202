"""The frontier's hypervolume reference, kept between plans: a value is only comparable from one and the same point."""

from __future__ import annotations

import json
import math
from pathlib import Path

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import home


def _path() -> Path:
    return home() / "planner.json"


def stored_reference() -> tuple[float, float] | None:
    """(kWh, Q) as last given; None where none was, or where the file is damaged."""
    try:
        energy, quality = json.loads(_path().read_text(encoding="utf-8"))["hypervolume_reference"]
        pair = float(energy), float(quality)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pair if all(math.isfinite(value) for value in pair) else None


def store_reference(reference: tuple[float, float]) -> None:
    """Keep a reference for later plans. Raises UsageProblem where the home cannot be written."""
    path = _path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(json.dumps({"hypervolume_reference": list(reference)}) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{path}: the reference cannot be kept ({error.strerror}); set KDWATCH_HOME") from None
