"""One stage of the study's harness: the JSON's numbers, checked against each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from kdwatch.interop.model import ImportedLog, LoggedDevice, LoggedStage
from kdwatch.interop.values import integer_or_none, number_or_none, positive_or_none

KWH_J = 3.6e6
KIND_WORDS = (
    ("preprocess", ("preprocess", "tokeniz", "tokenis", "prepare")),
    ("evaluate", ("eval", "benchmark", "mmlu", "gsm8k", "ifeval", "alpaca", "mt_bench", "mtbench")),
    ("teacher", ("logit_cach", "logit-cach", "cache_logit", "logprob", "teacher", "generat", "synthesi")),
    ("student", ("sft", "kd", "distil", "train", "student", "finetun", "synthetic")),
)


def stage_kind(name: str) -> str:
    """The kind of stage that a name speaks of; `other` where it says nothing."""
    text = name.lower()
    for kind, words in KIND_WORDS:
        if any(word in text if len(word) > 3 else re.search(rf"(^|[^a-z]){word}([^a-z]|$)", text) for word in words):
            return kind
    return "other"


def stage_of(data: Mapping[str, Any]) -> LoggedStage:
    """A stage from a harness stage JSON, from a summary's entry or from a row of stage_metrics.csv.

    Energies in joules; a CPU energy or token count of 0 means that nothing was measured and becomes None.
    """
    name = str(data.get("stage_id") or data.get("stage_name") or "stage")
    start, end = number_or_none(data.get("start_time")), number_or_none(data.get("end_time"))
    field = number_or_none(data.get("duration_seconds"))
    duration = end - start if start is not None and end is not None and end >= start else field
    energy: dict[str, float | None] = {"gpu": _not_negative(data.get("gpu_energy_joules"))}
    cpu = positive_or_none(data.get("cpu_energy_joules"))
    if cpu is not None:
        energy["cpu"] = cpu
    tokens = integer_or_none(data.get("tokens_processed"))
    stage = LoggedStage(name, stage_kind(name), start, duration, energy, tokens=tokens or None)
    stage.step = integer_or_none(data.get("snapshot_step"))
    stage.details = _reported(data, field) | _checks(data, tokens) | _samples(data, duration)
    return stage


def _not_negative(value: object) -> float | None:
    number = number_or_none(value)
    return None if number is None or number < 0 else number


def _reported(data: Mapping[str, Any], duration: float | None) -> dict[str, Any]:
    names = {
        "energy_j_reported": "gpu_energy_joules",
        "cpu_energy_j_reported": "cpu_energy_joules",
        "total_energy_j_reported": "total_energy_joules",
        "total_energy_kwh_reported": "total_energy_kwh",
        "avg_w_reported": "gpu_avg_power_watts",
        "peak_w_reported": "gpu_peak_power_watts",
        "joules_per_token_reported": "joules_per_token",
        "nvml_poll_interval_ms": "nvml_poll_interval_ms",
    }
    out: dict[str, Any] = {key: number_or_none(data.get(name)) for key, name in names.items()}
    return out | {
        "duration_seconds_field": duration,
        "tokens_reported": integer_or_none(data.get("tokens_processed")),
        "snapshot": _truth(data.get("snapshot", data.get("is_snapshot"))),
    }


def _truth(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "1")


def _checks(data: Mapping[str, Any], tokens: int | None) -> dict[str, Any]:
    gpu, cpu = number_or_none(data.get("gpu_energy_joules")), number_or_none(data.get("cpu_energy_joules"))
    total = number_or_none(data.get("total_energy_joules"))
    field = next(
        (f for f in ("total_codecarbon_energy_kwh", "codecarbon_energy_kwh") if data.get(f) not in (None, "")), None
    )
    of_codecarbon = positive_or_none(data.get("codecarbon_cpu_energy_kwh"))
    same_cpu = None
    if cpu and of_codecarbon:
        same_cpu = math.isclose(cpu, of_codecarbon * KWH_J, rel_tol=1e-6)
    return {
        "joules_per_token_recomputed": total / tokens if tokens and total is not None else None,
        "codecarbon_kwh": number_or_none(data.get(field)) if field else None,
        "codecarbon_kwh_field": field,
        "codecarbon_kg_co2e": number_or_none(data.get("codecarbon_emissions_kg")),
        "codecarbon_ram_kwh": number_or_none(data.get("codecarbon_ram_energy_kwh")),
        "total_equals_gpu_plus_cpu": None
        if total is None or gpu is None
        else math.isclose(total, gpu + (cpu or 0), rel_tol=1e-9),
        "cpu_equals_codecarbon_cpu": same_cpu,
    }


def power_samples(data: Mapping[str, Any]) -> list[float]:
    """The watts of `gpu_power_samples` that are numbers."""
    found = data.get("gpu_power_samples")
    values = [number_or_none(value) for value in found] if isinstance(found, list) else []
    return [value for value in values if value is not None and value >= 0]


def _samples(data: Mapping[str, Any], duration: float | None) -> dict[str, Any]:
    samples = power_samples(data)
    if not samples:
        return {"n_samples": 0}
    mean = math.fsum(samples) / len(samples)
    poll = number_or_none(data.get("nvml_poll_interval_ms"))
    return {
        "n_samples": len(samples),
        "mean_w_samples": mean,
        "max_w_samples": max(samples),
        "energy_j_mean_times_duration": mean * duration if duration is not None else None,
        "energy_j_samples_times_nominal_interval": mean * len(samples) * poll / 1000 if poll else None,
        "effective_interval_s": duration / len(samples) if duration is not None else None,
    }


def add_devices(log: ImportedLog) -> None:
    """Devices, totals and notes from the stages of a log."""
    for key, kind, scope in (("gpu", "gpu", "gpu"), ("cpu", "cpu", "package")):
        values = [v for stage in log.stages if (v := stage.energy_j.get(key)) is not None]
        if not values and key == "cpu":
            log.note("cpu_not_measured", "cpu_energy_joules is 0: not measured, left out of the total")
            continue
        seconds = math.fsum(s.duration_s or 0.0 for s in log.stages if s.energy_j.get(key) is not None)
        energy = math.fsum(values) if values else None
        peaks = [p for s in log.stages if (p := s.details.get("peak_w_reported")) is not None]
        log.devices.append(
            LoggedDevice(
                key,
                kind,
                scope,
                "all GPUs of the stage" if key == "gpu" else None,
                energy_j=energy,
                duration_s=seconds,
                mean_w=energy / seconds if energy is not None and seconds else None,
                peak_w=max(peaks, default=None) if key == "gpu" else None,
                estimated=key == "cpu",
            )
        )
    known = [total for stage in log.stages if (total := stage.total_j) is not None]
    log.total_j = math.fsum(known) if known else None
    log.duration_s = math.fsum(s.duration_s or 0.0 for s in log.stages) if log.stages else None
    log.untimed_samples = sum(s.details.get("n_samples", 0) for s in log.stages)
    kwh = [v for s in log.stages if (v := s.details.get("total_energy_kwh_reported")) is not None]
    log.kwh = math.fsum(kwh) if kwh else None
    kg = [v for s in log.stages if (v := positive_or_none(s.details.get("codecarbon_kg_co2e"))) is not None]
    log.kg_co2e = math.fsum(kg) if kg else None
    log.time_kind = "epoch" if all(s.start is not None and s.start > 1e9 for s in log.stages) else None
    _notes(log)


def _notes(log: ImportedLog) -> None:
    stages = log.stages
    if any(s.details.get("tokens_reported") == 0 for s in stages):
        log.note("tokens_unknown", "tokens_processed is 0: unknown, not none; energy per token is null")
    if any(s.details.get("cpu_equals_codecarbon_cpu") for s in stages):
        log.note("estimated", "cpu_energy_joules equals CodeCarbon's estimate: not a reading of a counter")
    elif any("cpu" in s.energy_j for s in stages):
        log.note(
            "estimated", "the file does not say whether cpu_energy_joules is RAPL or an estimate: taken as an estimate"
        )
    if any(s.details.get("codecarbon_ram_kwh") for s in stages):
        log.note("ram_left_out", "total_energy_joules leaves RAM out")
    for stage in stages:
        interval, poll = stage.details.get("effective_interval_s"), stage.details.get("nvml_poll_interval_ms")
        if interval and poll and stage.details["n_samples"] > 10 and abs(interval / (poll / 1000) - 1) > 0.02:
            log.note(
                "poll_drift",
                f"{stage.name}: the poll of {poll:g} ms took {1000 * interval:.0f} ms: never count samples x interval",
            )
        if stage.details.get("snapshot"):
            log.note("snapshot", f"{stage.name}: a snapshot at step {stage.step}, the stage's final file is not here")
        if stage.details.get("total_equals_gpu_plus_cpu") is False:
            log.note("total_differs", f"{stage.name}: total_energy_joules is not gpu + cpu")
