"""What a run's manifest says of the student, the teacher and the settings; anything missing stays unknown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

_SETTINGS = ("alpha", "temperature", "max_new_tokens", "prompts", "teacher_batch")
_LEFT_OUT = {"seed", "device", "dtype", "model", "student", "teacher"}


def run_info(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the table that only the manifest knows, and `teacher_stages` (the teacher's own evaluation)."""
    stages = _recipe_stages(manifest)
    info: dict[str, Any] = {
        "student_params_b": _params_b(report, manifest, "student"),
        "teacher_params_b": _params_b(report, manifest, "teacher"),
        "hardware": _hardware(manifest),
        "teacher_stages": frozenset(
            str(stage.get("name")) for stage in stages if str(stage.get("uses")) == "teacher.evaluate"
        ),
    }
    settings = _settings(stages)
    info |= {name: _number(settings.pop(name, None)) for name in _SETTINGS}
    if settings:
        info["hyperparameters"] = json.dumps(settings, sort_keys=True)
    return info


def _recipe_stages(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    recipe = manifest.get("recipe")
    stages = recipe.get("stages") if isinstance(recipe, Mapping) else None
    return [stage for stage in stages if isinstance(stage, Mapping)] if isinstance(stages, list) else []


def _settings(stages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Plain settings of the teacher's and the student's stage; the student's win where both have one."""
    found: dict[str, Any] = {}
    for prefix in ("teacher", "student"):
        for stage in stages:
            values = stage.get("with") or stage.get("settings") or {}
            if not str(stage.get("uses") or stage.get("kind") or "").startswith(prefix) or not isinstance(
                values, Mapping
            ):
                continue
            plain = {k: v for k, v in values.items() if isinstance(v, int | float | str | bool) and k not in _LEFT_OUT}
            if prefix == "teacher" and "batch" in plain:
                plain["teacher_batch"] = plain.pop("batch")
            found |= plain
    return found


def _params_b(report: Mapping[str, Any], manifest: Mapping[str, Any], role: str) -> float | None:
    for place in (report, manifest):
        value = _number(place.get(f"{role}_params_b"))
        if value is not None and value > 0:
            return value
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _hardware(manifest: Mapping[str, Any]) -> str | None:
    hardware = manifest.get("hardware")
    if not isinstance(hardware, Mapping):
        return None
    gpus = [str(gpu.get("name") if isinstance(gpu, Mapping) else gpu) for gpu in hardware.get("gpus") or []]
    if gpus:
        return ", ".join(f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus))
    return str(hardware["cpu"]) if hardware.get("cpu") else None
