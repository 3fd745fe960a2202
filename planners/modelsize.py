"""How large the models of a run are: as the stage reported, else from the weights' header, else from the name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LARGEST_HEADER = 100_000_000
"""Bytes of a safetensors header that are read at most."""
_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([bBmM])(?![A-Za-z0-9])")


def reported_params_b(events: Iterable[Mapping[str, Any]], role: str) -> float | None:
    """Billions of parameters from the last `model` event of this role (`student`, `teacher`)."""
    found = None
    for event in events:
        count = event.get("params")
        if event.get("type") == "model" and event.get("role") == role and _positive(count):
            found = float(count) / 1e9  # type: ignore[arg-type]
    return found


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def stored_params_b(model: Path) -> float | None:
    """Billions of parameters of a model directory, from the headers of its safetensors files."""
    try:
        counts = [_header_params(file) for file in sorted(model.glob("*.safetensors"))]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return sum(counts) / 1e9 if counts and sum(counts) > 0 else None


def _header_params(file: Path) -> int:
    with file.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if length > LARGEST_HEADER:
            raise ValueError("no safetensors header")
        header = json.loads(f.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def named_params_b(name: str) -> float | None:
    """Billions of parameters that a model's name gives: `OLMo-2-1124-7B` is 7, `SmolLM2-135M` is 0.135."""
    found = _IN_NAME.findall(name.rsplit("/", 1)[-1])
    if not found:
        return None
    number, unit = found[-1]
    return float(number) * (1.0 if unit in "bB" else 1e-3)
