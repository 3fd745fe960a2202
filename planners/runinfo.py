"""What a run's manifest and events say of the student, the teacher and the settings; anything missing stays unknown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from planners.modelsize import named_params_b, reported_params_b, stored_params_b

_COLUMNS = ("alpha", "temperature", "max_new_tokens", "prompts", "teacher_batch")
_LEFT_OUT = {"seed", "device", "dtype", "threads", "student", "teacher", "revision", "checkpoint_every_s"}

DATA_DIGITS = 8
"""Of the identity of data, to tell one from another."""

Stage = Mapping[str, Any]


def run_info(manifest: Mapping[str, Any], events: Iterable[Mapping[str, Any]], folder: Path | None) -> dict[str, Any]:
    """Columns of the table that the report does not hold.

    `folder`: the directory that relative model paths start from; None where it is unknown.
    """
    stages = recipe_stages(manifest)
    told = list(events)
    seen = [event for event in told if event.get("type") == "model"]
    settings = _settings(stages)
    info: dict[str, Any] = {
        "student_params_b": reported_params_b(seen, "student") or _named(stages, "student", folder),
        "teacher_params_b": reported_params_b(seen, "teacher") or _named(stages, "teacher", folder),
        "hardware": hardware_name(manifest),
        "data": _data(stages, told),
    }
    settings |= _swept(manifest, settings)
    info |= {name: _number(settings.pop(name, None)) for name in _COLUMNS}
    if settings:
        info["hyperparameters"] = json.dumps(settings, sort_keys=True)
    return info


def recipe_stages(manifest: Mapping[str, Any]) -> list[Stage]:
    """The stages of the manifest's recipe."""
    recipe = manifest.get("recipe")
    stages = recipe.get("stages") if isinstance(recipe, Mapping) else None
    return [stage for stage in stages if isinstance(stage, Mapping)] if isinstance(stages, list) else []


def probing_stages(manifest: Mapping[str, Any]) -> list[Stage]:
    """The stages that hold probes; a run that has one is no pipeline."""
    return [stage for stage in recipe_stages(manifest) if stage.get("uses") == "probe"]


def stage_settings(stage: Stage) -> Mapping[str, Any]:
    """Settings of a built-in stage, under either name that a recipe's dump may use."""
    values = stage.get("with") or stage.get("settings")
    return values if isinstance(values, Mapping) else {}


def _settings(stages: Iterable[Stage]) -> dict[str, Any]:
    """Plain settings of the student's stage, and those of the teacher's that shape its output."""
    found: dict[str, Any] = {}
    for stage in stages:
        uses, values = str(stage.get("uses") or ""), stage_settings(stage)
        if uses == "teacher.generate":
            names = {"max_new_tokens": "max_new_tokens", "prompts": "prompts", "batch_rows": "teacher_batch"}
            found |= {new: values[old] for old, new in names.items() if values.get(old) is not None}
        elif uses == "teacher.cache_logits":
            found |= {name: value for name, value in values.items() if name == "top_k"}
        elif uses == "student.train":
            plain = {k: v for k, v in values.items() if isinstance(v, int | float | str | bool) and k not in _LEFT_OUT}
            if plain.get("objective", "sft") == "sft":
                plain = {k: v for k, v in plain.items() if k not in ("alpha", "temperature", "tail", "max_new_tokens")}
            found |= plain | ({"early_stop": True} if values.get("early_stop") else {})
    return found


def _swept(manifest: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """What a sweep varied that the stages' settings do not show, such as a command's environment: its points are no
    repeats of each other. Seeds are left out: runs that differ in nothing else are repeats."""
    sweep = manifest.get("sweep")
    settings = sweep.get("settings") if isinstance(sweep, Mapping) else None
    found = {}
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        name = str(key).rsplit(".", 1)[-1]
        if isinstance(value, int | float | str | bool) and name.lower() not in _LEFT_OUT and name not in known:
            found[str(key)] = value
    return found


def _data(stages: Iterable[Stage], events: Iterable[Mapping[str, Any]]) -> str | None:
    """The beginning of the identity of the prepared data, made or reused; None where nothing was prepared."""
    prepared = {stage.get("name") for stage in stages if stage.get("uses") == "preprocess"}
    for event in events:
        source = event.get("reused_from") if event.get("type") == "stage_reused" else event
        name = source.get("artifact") if isinstance(source, Mapping) else None
        if event.get("stage") in prepared and event.get("type") in ("artifact", "stage_reused") and name:
            return str(name)[:DATA_DIGITS]
    return None


def _named(stages: Iterable[Stage], role: str, folder: Path | None) -> float | None:
    for stage in stages:
        name = stage_settings(stage).get(role)
        if isinstance(name, str) and name:
            stored = stored_params_b(folder / name) if folder is not None else None
            return stored or named_params_b(name)
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def hardware_name(manifest: Mapping[str, Any]) -> str | None:
    """What a run ran on: its GPUs (`2x NVIDIA H100`), else its CPU; None where the manifest does not say."""
    hardware = manifest.get("hardware")
    if not isinstance(hardware, Mapping):
        return None
    gpus = [str(gpu.get("name") if isinstance(gpu, Mapping) else gpu) for gpu in hardware.get("gpus") or []]
    if gpus:
        return ", ".join(f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus))
    return str(hardware["cpu"]) if hardware.get("cpu") else None
