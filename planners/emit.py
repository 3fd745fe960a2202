"""The recommendation as a recipe that `kdwatch run` accepts.

A candidate that is a run of yours gives that run's own recipe. One of the study's, or a predicted one, gives the
regime's stages with the models that it stands for, or those that you name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean
from planners.predicted import hyperparameters_of
from planners.result import PlanResult, Recommendation
from planners.wording import energy

_STUDY_STUDENTS = {
    1.0: "allenai/OLMo-2-0425-1B",
    7.0: "allenai/OLMo-2-1124-7B",
    13.0: "allenai/OLMo-2-1124-13B",
}
STUDY_TEACHER = "allenai/OLMo-2-0325-32B-SFT"
STUDY_DATA = "hub:allenai/tulu-3-sft-mixture"
STUDY_TASKS = ["gsm8k", "ifeval", "mmlu"]


_GENERATION = {"teacher_batch": "batch_rows", "max_new_tokens": "max_new_tokens", "prompts": "prompts"}
"""Settings of the teacher's generation, and what its stage calls them."""
_ASKED_BY = {"prompts": "prompt_share"}
"""The what-if that changes a setting, where it has another name."""
_PATHS = ("data", "tokenizer", "teacher", "student", "exact_match")


@dataclass(frozen=True)
class Models:
    """What a recipe names beside the method: model directories or hub names, and the data."""

    student: str | None = None
    teacher: str | None = None
    data: str | None = None


def write_recipe(result: PlanResult, path: Path, models: Models | None = None) -> None:
    """Write the recommendation's recipe. Raises UsageProblem: nothing fits, models unknown, file unwritable."""
    text = recipe_text(result, models or Models())
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"--emit {path}: cannot be written ({error.strerror}); give another file") from None


def recipe_text(result: PlanResult, models: Models | None = None) -> str:
    """The recipe as YAML text, with the prediction in its comment."""
    best = result.recommendation
    if best is None:
        raise UsageProblem("--emit: nothing fits the limits, so there is no recipe to write; relax a limit first")
    recipe = _as_asked(_own_recipe(best), result) if best.run_dir else _template(best, models or Models())
    recipe = (
        {"name": _name(best.id), "regime": best.regime}
        | _limits(result)
        | {"stages": recipe["stages"]}
        | {
            key: value
            for key, value in recipe.items()
            if key not in ("name", "regime", "budget", "stages", "region", "pue")
        }
    )
    head = [f"# {line}" for line in _comment(result, best)]
    return "\n".join(head) + "\n" + yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=110)


def missing_paths(recipe: Path) -> tuple[Path, list[str]]:
    """Where the paths of a recipe start, and file names of its built-in stages that are not there; hub names are no
    files."""
    found = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    folder = recipe.absolute().parent / (found.get("workdir") or "")
    names = [
        str(value)
        for stage in found["stages"]
        for key, value in (stage.get("with") or {}).items()
        if key in _PATHS and value and not str(value).startswith("hub:")
    ]
    local = [name for name in dict.fromkeys(names) if "/" not in name or name.startswith((".", "/"))]
    return folder, [name for name in local if not (folder / name).exists()]


def _name(candidate: str) -> str:
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in candidate).strip("-._")
    return f"plan-{kept}"[:64]


def _limits(result: PlanResult) -> dict[str, Any]:
    """Budget, region and PUE of the plan, in the recipe's own keys. The run pays for the teacher in full."""
    found: dict[str, Any] = {}
    best, limits = result.recommendation, result.limits
    if result.allowed_kwh is not None and best is not None:
        whole = result.allowed_kwh + best.predicted.total_kwh - best.predicted.per_student_kwh
        found["budget"] = f"{whole:.6g}kWh"
    if limits["region"]:
        found["region"] = limits["region"]
    elif limits["intensity"]:
        found["intensity"] = float(limits["intensity"])
    if limits["pue"]:
        found["pue"] = float(limits["pue"])
    return found


def _comment(result: PlanResult, best: Recommendation) -> list[str]:
    p = best.predicted
    quality = "n/a" if p.quality is None else f"{p.quality:.3g}"
    lines = [
        f"Written by kdwatch plan: {best.id} ({best.basis}, from {best.source}).",
        f"Predicted: {energy(p.total_kwh)} ({energy(p.total_kwh_low)} to {energy(p.total_kwh_high)} at "
        f"{result.interval_level:.0%}), quality {quality}, scope {best.scope or 'unknown'}.",
    ]
    if not best.run_dir:
        lines.append("The teacher's own scores are made once and reused; their energy is not in the prediction.")
    share = result.limits["prompt_share"]
    if share is not None and best.regime == "synthetic_sft":
        lines.append(f"Planned for {share:.0%} of the prompts that were measured: check `prompts` of the generation.")
    if result.reuse_n > 1:
        lines.append(f"Planned at reuse N = {result.reuse_n}: {energy(p.per_student_kwh)} per student; run it N times.")
    return [clean(line, 300) for line in lines]


def _own_recipe(best: Recommendation) -> dict[str, Any]:
    """The recipe of the run that the candidate was measured in; its paths start where they did."""
    path = Path(best.run_dir or "") / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        recipe = manifest["recipe"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageProblem(f"--emit: {path} holds no recipe; plan from another run") from None
    if not isinstance(recipe, dict) or not recipe.get("stages"):
        raise UsageProblem(f"--emit: {path} holds no recipe (was it imported?); plan from a run of a recipe")
    kept = {key: value for key, value in recipe.items() if not _unset(value) and key != "sweep"}
    there = {"workdir": folder} if isinstance(folder := manifest.get("folder"), str) else {}
    return kept | there | {"stages": [_own_stage(stage) for stage in recipe["stages"]]}


def _as_asked(recipe: dict[str, Any], result: PlanResult) -> dict[str, Any]:
    """The recipe with the what-ifs of the plan in its generation; the run's own settings where none is asked."""
    settings = result.recommendation.hyperparameters if result.recommendation else {}
    changed = {
        key: int(settings[name])
        for name, key in _GENERATION.items()
        if result.limits[_ASKED_BY.get(name, name)] is not None and settings.get(name) is not None
    }
    stages = [
        stage | {"with": stage.get("with", {}) | changed}
        if changed and stage.get("uses") == "teacher.generate"
        else stage
        for stage in recipe["stages"]
    ]
    return recipe | {"stages": stages}


def _own_stage(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A stage in the keys of a recipe file, without what was left out."""
    renamed = {("with" if key == "settings" else key): value for key, value in stage.items()}
    return {key: value for key, value in renamed.items() if not _unset(value)}


def _unset(value: Any) -> bool:
    return value is None or value == {} or value == []


def _template(best: Recommendation, models: Models) -> dict[str, Any]:
    named = _models(best, models)
    settings = hyperparameters_of(best)
    stages: list[dict[str, Any]] = [{"name": "prerun", "uses": "prerun"}, _preprocess(best, named)]
    data = "preprocess"
    if best.regime == "kd":
        logits = {"teacher": named["teacher"], "top_k": int(settings.get("top_k", 100)), "dtype": "bfloat16"}
        logits["temperatures"] = [float(settings.get("temperature", 1.0))]
        stages.append(_stage("teacher", "teacher.cache_logits", logits, data=data))
    if best.regime == "synthetic_sft":
        stages.append(_stage("teacher", "teacher.generate", _generation(named, settings), data=data))
        data = "teacher"
    stages.append(_student(best, named, settings, data))
    stages.append(_stage("teacher-scores", "teacher.evaluate", {"teacher": named["teacher"], **_scores()}))
    stages.append(_stage("evaluate", "evaluate", _scores(), student="student", teacher_scores="teacher-scores"))
    return {"stages": stages}


def _models(best: Recommendation, models: Models) -> dict[str, str]:
    of_study = best.source in ("paper", "cost model") and "H100" in (best.hardware or "")
    student = models.student or (_STUDY_STUDENTS.get(best.student_params_b or 0.0) if of_study else None)
    teacher = models.teacher or (STUDY_TEACHER if of_study else None)
    data = models.data or (STUDY_DATA if of_study else None)
    options = (("--student-model", student), ("--teacher-model", teacher), ("--data", data))
    missing = [option for option, value in options if not value]
    if missing or not (student and teacher and data):
        raise UsageProblem(f"--emit: {best.id} names no model or data of its own; give {', '.join(missing)}")
    return {"student": _place(student), "teacher": _place(teacher), "data": _place(data)}


def _place(name: str) -> str:
    """The absolute path of what is there from here; hub names, and what is not there, stay as they are."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name


def _stage(name: str, uses: str, settings: dict[str, Any], **inputs: str) -> dict[str, Any]:
    stage: dict[str, Any] = {"name": name, "uses": uses, "with": settings}
    return stage | ({"inputs": inputs} if inputs else {})


def _preprocess(best: Recommendation, named: Mapping[str, str]) -> dict[str, Any]:
    settings = {"data": named["data"], "tokenizer": named["student"], "max_length": 1024, "validation": 0.01}
    if best.regime == "kd":
        settings["teacher"] = named["teacher"]
    return _stage("preprocess", "preprocess", settings)


def _generation(named: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"teacher": named["teacher"], "dtype": "bfloat16"}
    known = {"max_new_tokens": 512} | {name: settings[name] for name in _GENERATION if settings.get(name)}
    return found | {_GENERATION[name]: int(value) for name, value in known.items()}


def _student(best: Recommendation, named: Mapping[str, str], settings: Mapping[str, Any], data: str) -> dict[str, Any]:
    """Training as the study did it: Adafactor, cosine with 100 warm-up steps, bf16, early stopping at 2e-3."""
    train: dict[str, Any] = {
        "student": named["student"],
        "objective": "kd" if best.regime == "kd" else "sft",
        "dtype": "bfloat16",
        "optimizer": "adafactor",
        "warmup_steps": 100,
    }
    inputs = {"data": data}
    if best.regime == "kd":
        train |= {"alpha": float(settings.get("alpha", 0.5)), "temperature": float(settings.get("temperature", 1.0))}
        inputs["logits"] = "teacher"
    train["early_stop"] = {"epsilon": 0.002, "patience": 3}
    inputs["validation"] = "preprocess"
    return _stage("student", "student.train", train, **inputs)


def _scores() -> dict[str, Any]:
    return {"lm_eval": {"tasks": list(STUDY_TASKS)}, "dtype": "bfloat16"}
