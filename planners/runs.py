"""Observations from run directories, by way of the report that `kdwatch report --json` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from kdwatch.ledger.units import KWH_J
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import list_runs, resolve_run
from kdwatch.rundir.reader import RunReader
from planners.notes import Note
from planners.rowcheck import check_row, fill_total
from planners.runinfo import probing_stages, run_info
from planners.schema import candidate_id, make_table

FINISHED = ("completed", "imported")
_STAGE_OF_KIND = {
    "prerun": "prerun",
    "preprocess": "preprocess",
    "teacher": "teacher",
    "student": "student",
    "evaluate": "eval",
}


def read_one(source: str | Path) -> tuple[pl.DataFrame, list[Note]]:
    """One run by path, id, unique prefix or `last`. Raises UsageProblem where it cannot serve as an observation."""
    path = resolve_run(source)
    row, note = _observe(path)
    if row is None:
        why = note or "is a run of kdwatch probe, which --probes takes"
        raise UsageProblem(f"{source}: {why}; give a completed run of sft, kd or synthetic_sft")
    return make_table([row]), [Note("run_note", f"{path.name}: {note}")] if note else []


def read_all() -> tuple[pl.DataFrame, list[Note]]:
    """Every finished run of this home; others are named in the notes, never an error."""
    rows, notes = [], []
    for path in list_runs():
        try:
            row, note = _observe(path)
        except UsageProblem as problem:
            row, note = None, str(problem)
        if row is not None:
            rows.append(row)
        elif note:
            notes.append(Note("run_left_out", f"{path.name}: {note}"))
    return make_table(rows), notes


def _observe(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    from kdwatch.ledger.report import build_report

    manifest = _manifest(path)
    if probing_stages(manifest):
        return None, None
    report = build_report(path)
    if report["status"] not in FINISHED:
        return None, f"status is {report['status']}"
    if report["regime"] not in ("sft", "kd", "synthetic_sft"):
        return None, f"regime is {report['regime']}"
    info = run_info(manifest, RunReader(path).iter_events(), _folder(manifest))
    row = fill_total(from_report(report, info)) | {"run_dir": str(path.resolve())}
    verdict = check_row(row)
    return (row, verdict.note) if verdict.accepted else (None, verdict.reason)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _folder(manifest: Mapping[str, Any]) -> Path | None:
    """Where the recipe's relative paths start, if the manifest says so."""
    folder = manifest.get("folder")
    return Path(folder) if isinstance(folder, str) else None


def from_report(report: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table from the report contract's object and what `planners.runinfo` found.

    A reused stage counts with the energy that made it: the row is what the pipeline costs at reuse 1.
    """
    row: dict[str, Any] = dict(info)
    energy = stage_energy_kwh(report)
    row |= {f"{name}_kwh": value for name, value in energy.items()}
    if report["regime"] == "sft" and row.get("teacher_kwh") is None:
        row["teacher_kwh"] = 0.0
    row["total_kwh"] = _total_kwh(report, energy)
    quality = report.get("quality") or {}
    row |= {
        "regime": report["regime"],
        "quality": quality.get("q"),
        "duration_s": report.get("duration_s"),
        "scope": scope_of(report),
        "basis": "measured",
        "repeats": 1,
        "source": str(report.get("run_id") or "run"),
    }
    row |= _tokens(report)
    if row.get("tokens") and row["total_kwh"]:
        row["j_per_token"] = row["total_kwh"] * KWH_J / row["tokens"]
    row["id"] = candidate_id(report["regime"], row.get("student_params_b"))
    return row


def stage_energy_kwh(report: Mapping[str, Any]) -> dict[str, float | None]:
    """kWh by kind of stage; the teacher's own evaluation counts as evaluation, whatever the regime."""
    sums: dict[str, float | None] = {}
    for stage in report["stages"]:
        name = _STAGE_OF_KIND.get(stage["kind"])
        if name is None or stage["status"] in ("pending", "skipped"):
            continue
        joules = _stage_j(stage)
        if joules is None or (name in sums and sums[name] is None):
            sums[name] = None
        else:
            sums[name] = (sums.get(name) or 0.0) + joules / KWH_J
    return sums


def _stage_j(stage: Mapping[str, Any]) -> float | None:
    reused = stage.get("reused_from")
    if stage["status"] == "reused":
        return reused.get("energy_j") if reused else None
    return (stage.get("energy_j") or {}).get("total")


def _total_kwh(report: Mapping[str, Any], energy: Mapping[str, float | None]) -> float | None:
    """The run's stages, reused ones in full, with stages of kind `other`; without unattributed energy."""
    if not energy or None in energy.values():
        return None
    others = [
        _stage_j(stage) for stage in report["stages"] if stage["kind"] == "other" and stage["status"] != "pending"
    ]
    known = [value or 0.0 for value in energy.values()]
    return sum(known) + sum(value / KWH_J for value in others if value)


def _tokens(report: Mapping[str, Any]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for stage in report["stages"]:
        if stage["kind"] == "student" and stage.get("tokens"):
            found["tokens"] = (found.get("tokens") or 0) + stage["tokens"]
        if stage["kind"] == "teacher" and stage.get("tokens"):
            found["teacher_tokens"] = (found.get("teacher_tokens") or 0) + stage["tokens"]
            found["teacher_input_tokens"] = stage.get("input_tokens")
    return found


def scope_of(report: Mapping[str, Any]) -> str:
    """What the run's energy covers, one of `planners.schema.SCOPES`."""
    kinds: dict[str, set[str]] = {}
    for stage in report["stages"]:
        for device in stage.get("devices") or []:
            if device.get("counted", True):
                kinds.setdefault(device["kind"], set()).add(device.get("source") or "")
    has_gpu = "gpu" in kinds
    cpu_sources = kinds.get("cpu", set())
    if "other" in kinds and not has_gpu:
        return "other"
    if not cpu_sources:
        return "gpu" if has_gpu else "other"
    estimated = "_estimated" if "estimated" in cpu_sources else ""
    return ("gpu+cpu" if has_gpu else "cpu") + estimated
