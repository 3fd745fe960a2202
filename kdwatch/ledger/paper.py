"""`--protocol paper`: the paper's method on the recorded data (docs/protocol.md, "Paper mode").

GPU: the legacy power reading, as a poller of 0.5 s would have seen it, trapezoid rule, edge values held.
CPU: CodeCarbon's process model, E = TDP x CPU seconds of the stage / CPUs of the machine.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import number
from kdwatch.ledger.report import facility
from kdwatch.ledger.totals import GROUPS, known_sum
from kdwatch.ledger.units import KWH_J
from kdwatch.rundir.parse import Sample
from kdwatch.rundir.reader import RunReader
from kdwatch.rundir.writer import finite

PERIOD_S = 0.5
HELD_S = 5.0
"""A value older than this says nothing of the grid point."""

Series = tuple[list[float], list[float]]


def resampled_joules(times: list[float], watts: list[float], start: float, end: float) -> float | None:
    """Trapezoid over `start`, `start` + 0.5 s, ..., `end` of the reading in force at each point.

    None where a point has no reading within 5 s: the paper's poller would have had none.
    """
    if end <= start:
        return 0.0
    steps = math.floor((end - start) / PERIOD_S + 1e-9)
    grid = [start + k * PERIOD_S for k in range(steps + 1)]
    if end - grid[-1] > 1e-9:
        grid.append(end)
    values = [_in_force(times, watts, t) for t in grid]
    joules = 0.0
    for (t0, w0), (t1, w1) in zip(zip(grid, values, strict=True), zip(grid[1:], values[1:], strict=True), strict=False):
        if w0 is None or w1 is None:
            return None
        joules += 0.5 * (w0 + w1) * (t1 - t0)
    return joules


def _in_force(times: list[float], watts: list[float], t: float) -> float | None:
    if not times:
        return None
    at = max(0, bisect_right(times, t) - 1)
    return watts[at] if abs(times[at] - t) <= HELD_S else None


def legacy_series(reader: RunReader, devices: list[Mapping[str, Any]]) -> dict[str, Series]:
    """The legacy power field of each GPU by key: the averaged column, or the instantaneous one on boards whose
    legacy field is instantaneous."""
    instant = {d["key"] for d in devices if (d.get("details") or {}).get("legacy_power") == "instant"}
    series: dict[str, Series] = {d["key"]: ([], []) for d in devices}
    for sample in reader.iter_samples():
        found = series.get(sample.key)
        watts = _legacy(sample, sample.key in instant)
        if found is not None and watts is not None and watts > 0:
            found[0].append(sample.t)
            found[1].append(watts)
    return series


def _legacy(sample: Sample, instant: bool) -> float | None:
    return sample.power_w if instant else sample.average_w


def with_paper_protocol(
    report: dict[str, Any],
    path: Path,
    manifest: Mapping[str, Any],
    *,
    region: str | None = None,
    g_per_kwh: float | None = None,
    pue: float | None = None,
) -> dict[str, Any]:
    """The report with its energies by the paper's method; what was not recorded is null, with a warning."""
    reader = RunReader(path)
    gpus = [d for d in manifest.get("devices") or [] if isinstance(d, Mapping) and d.get("kind") in ("gpu", "other")]
    series = legacy_series(reader, gpus)
    by_id = {str(d.get("id") or d["key"]): str(d["key"]) for d in gpus}
    cpu = CpuModel(manifest)
    cpu_s = stage_cpu_seconds(reader)
    lacks: set[str] = set()
    for stage in report["stages"]:
        _restate(stage, series, by_id, cpu, cpu_s.get(stage["name"]), lacks)
    total = known_sum(s["energy_j"]["total"] for s in report["stages"] if s["status"] != "reused")
    report.update(
        protocol="paper",
        total_j=total,
        total_kwh=total / KWH_J if total is not None else None,
        unattributed_j=None,
        devices=_device_totals(report),
        sources={g: {"gpu": "integrated", "cpu": "estimated"}.get(g) if _any(report, g) else None for g in GROUPS},
        **facility(manifest, total, region=region, g_per_kwh=g_per_kwh, pue=pue),
    )
    report["warnings"] = [*_warnings(report), *({"code": "paper_protocol", "text": text} for text in sorted(lacks))]
    return finite(report)


class CpuModel:
    """TDP and CPU count as recorded; either may be unknown."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        hardware = manifest.get("hardware") or {}
        self.tdp_w = number(hardware.get("cpu_tdp_w"))
        self.cpus = number(hardware.get("cores"))
        for device in manifest.get("devices") or []:
            details = device.get("details") or {} if isinstance(device, Mapping) else {}
            self.tdp_w = self.tdp_w if self.tdp_w is not None else number(details.get("tdp_w"))
            self.cpus = number(details.get("cpus")) or self.cpus

    def joules(self, cpu_s: float | None) -> float | None:
        """Energy of CPU seconds; None where anything is unknown."""
        if cpu_s is None or self.tdp_w is None or not self.cpus:
            return None
        return self.tdp_w * cpu_s / self.cpus


def stage_cpu_seconds(reader: RunReader) -> dict[str, float]:
    """CPU seconds by stage as the recorder took them at the stage's end."""
    found: dict[str, float] = {}
    for event in reader.iter_events():
        seconds = number(event.get("cpu_s"))
        if event["type"] == "stage_ended" and seconds is not None and isinstance(event.get("stage"), str):
            found[event["stage"]] = found.get(event["stage"], 0.0) + seconds
    return found


def _restate(
    stage: dict[str, Any],
    series: Mapping[str, Series],
    by_id: Mapping[str, str],
    cpu: CpuModel,
    cpu_s: float | None,
    lacks: set[str],
) -> None:
    """Replace one stage's energies."""
    stage["bound_j"] = stage["net_energy_j"] = None
    if stage["start_s"] is None or stage["end_s"] is None:
        if stage["status"] != "reused":
            stage["energy_j"] = _groups(None, None, [])
        return
    devices = []
    for device in stage["devices"]:
        key = by_id.get(device["id"])
        if key is None:
            continue
        joules = resampled_joules(*series[key], stage["start_s"], stage["end_s"])
        if joules is None:
            lacks.add(
                f"{device['name']}: legacy power was not recorded throughout: no GPU energy by the paper's method"
            )
        seconds = stage["end_s"] - stage["start_s"]
        mean = joules / seconds if joules is not None and seconds > 0 else None
        device = {**device, "energy_j": joules, "mean_w": mean, "source": "integrated", "bound_j": None}
        devices.append({**device, "bound_terms_j": None, "net_energy_j": None, "flags": []})
    of_cpu = cpu.joules(cpu_s)
    if of_cpu is None:
        lacks.add("CPU time or TDP was not recorded: no CPU energy by the paper's method")
    known = [d["energy_j"] for d in devices]
    gpu = known_sum(known)
    missing = [*(["gpu"] if None in known else []), *(["cpu"] if of_cpu is None else [])]
    stage["devices"] = devices
    stage["energy_j"] = _groups(gpu, of_cpu, missing)
    total, tokens, seconds = stage["energy_j"]["total"], stage["tokens"], stage["duration_s"]
    stage["mean_w"] = total / seconds if total is not None and seconds else None
    stage["j_per_token"] = total / tokens if total is not None and tokens else None


def _groups(gpu: float | None, cpu: float | None, missing: list[str]) -> dict[str, Any]:
    total = known_sum([gpu, cpu])
    return {
        **dict.fromkeys(GROUPS),
        "gpu": gpu,
        "cpu": cpu,
        "total": total,
        "measured": gpu if gpu is not None else (0.0 if total is not None else None),
        "estimated": cpu if cpu is not None else (0.0 if total is not None else None),
        "missing": missing,
    }


def _warnings(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of the run; what is estimated is the CPU here, never RAM and whether or not the package was measured."""
    kept = [w for w in report["warnings"] if w["code"] != "estimated"]
    text = "cpu: energy from a model, not measured"
    return [*kept, {"code": "estimated", "text": text}] if _any(report, "cpu") else kept


def _any(report: Mapping[str, Any], group: str) -> bool:
    return any(s["energy_j"][group] is not None for s in report["stages"])


def _device_totals(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sums of the stages by device; the paper's method knows no unattributed energy."""
    found = []
    for device in report["devices"]:
        if device["kind"] not in ("gpu", "other"):
            continue
        parts = [d["energy_j"] for s in report["stages"] for d in s["devices"] if d["id"] == device["id"]]
        found.append(
            {**device, "total_j": known_sum(parts), "unattributed_j": None, "source": "integrated", "flags": []}
        )
    return found
