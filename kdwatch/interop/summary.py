"""An imported log as one JSON object and as lines of text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kdwatch.interop.model import ImportedLog, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.series import SeriesStats


def stats_json(stats: SeriesStats) -> dict[str, Any]:
    """The numbers of one series, without its absolute times."""
    found = asdict(stats)
    del found["start"], found["end"]
    return found


def device_json(device: LoggedDevice) -> dict[str, Any]:
    """One device: what it is, its energy, and its series' numbers where it has one."""
    out: dict[str, Any] = {
        "key": device.key,
        "name": device.name,
        "kind": device.kind,
        "scope": device.scope,
        "source": "imported",
        "estimated": device.estimated,
    }
    out |= stats_json(device.stats) if device.stats else {"n_samples": 0}
    out["energy_j"] = device.energy_j
    out["duration_s"] = device.duration_s if device.duration_s is not None else out.get("duration_s")
    out["mean_w"] = device.mean_w if device.mean_w is not None else out.get("mean_w")
    out["peak_w"] = device.peak_w if device.peak_w is not None else out.get("peak_w")
    return out | device.details


def stage_json(stage: LoggedStage) -> dict[str, Any]:
    """One stage; `start` is on the file's time line."""
    return {
        "name": stage.name,
        "kind": stage.kind,
        "start": stage.start,
        "duration_s": stage.duration_s,
        "energy_j": stage.energy_j,
        "total_j": stage.total_j,
        "tokens": stage.tokens,
        "j_per_token": stage.total_j / stage.tokens if stage.tokens and stage.total_j is not None else None,
        "step": stage.step,
        "total_steps": stage.total_steps,
        "loss": stage.loss,
        **stage.details,
    }


def log_json(log: ImportedLog) -> dict[str, Any]:
    """What `kdwatch import --json` prints for a file that was read."""
    devices = [device_json(device) for device in log.devices]
    peaks = [d["peak_w"] for d in devices if d["peak_w"] is not None]
    gaps = [d.stats.gap_seconds for d in log.devices if d.stats]
    return {
        "file": str(log.path),
        "format": log.format,
        "encoding": log.encoding,
        "error": None,
        "rows": log.rows,
        "n_samples": log.n_samples,
        "n_gpus": log.n_gpus,
        "n_devices": len(log.devices),
        "time": log.time_kind,
        "duration_s": log.duration_s,
        "energy_j": {d["key"]: d["energy_j"] for d in devices},
        "total_energy_j": log.total_j,
        "mean_w": {d["key"]: d["mean_w"] for d in devices},
        "peak_w": {d["key"]: d["peak_w"] for d in devices},
        "max_w": max(peaks, default=None),
        "gap_seconds": max(gaps) if gaps and log.duration_s is not None else None,
        "n_gaps": max((d.stats.n_gaps for d in log.devices if d.stats), default=0) if gaps else None,
        "kwh": log.kwh,
        "kg_co2e": log.kg_co2e,
        "source": "imported",
        "devices": devices,
        "stages": [stage_json(stage) for stage in log.stages],
        "details": log.details,
        "warnings": [asdict(note) for note in log.notes],
    }


def problem_json(path: str, problem: Exception) -> dict[str, Any]:
    """What `kdwatch import --json` prints for a file that gives no energy: the error and what it does contain."""
    facts = dict(problem.facts) if isinstance(problem, LogProblem) else {}
    return {"file": path, "format": None, "error": str(problem), "n_samples": 0, "n_gpus": 0, "warnings": []} | facts
