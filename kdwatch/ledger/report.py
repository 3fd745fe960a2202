"""The object of `kdwatch report --json` (schema 1; docs/protocol.md, docs/run-directory.md)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import number
from kdwatch.ledger.grid import GridFactor, intensity
from kdwatch.ledger.load import load_ledger
from kdwatch.ledger.totals import GROUPS
from kdwatch.ledger.types import StageDevice, StageTotals, Totals
from kdwatch.ledger.units import KWH_J
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.reader import load_manifest
from kdwatch.rundir.text import clean
from kdwatch.rundir.writer import finite

SCHEMA = 1
PROTOCOLS = ("default", "paper")


def build_report(
    path: Path,
    protocol: str = "default",
    *,
    region: str | None = None,
    g_per_kwh: float | None = None,
    pue: float | None = None,
) -> dict[str, Any]:
    """The report of a run directory. `region`, `g_per_kwh` and `pue` override what the run recorded.

    Raises UsageProblem: no run, unknown protocol or region, PUE below 1.
    """
    if protocol not in PROTOCOLS:
        raise UsageProblem(f"unknown protocol '{protocol}': use one of {', '.join(PROTOCOLS)}")
    manifest = load_manifest(Path(path))
    totals = load_ledger(Path(path)).totals()
    report = report_of(manifest, totals, region=region, g_per_kwh=g_per_kwh, pue=pue)
    if protocol == "paper":
        from kdwatch.ledger.paper import with_paper_protocol

        report = with_paper_protocol(report, Path(path), manifest, region=region, g_per_kwh=g_per_kwh, pue=pue)
    return report


def report_of(
    manifest: Mapping[str, Any],
    totals: Totals,
    *,
    region: str | None = None,
    g_per_kwh: float | None = None,
    pue: float | None = None,
) -> dict[str, Any]:
    """The report's object from a snapshot of the ledger."""
    report = {
        "schema": SCHEMA,
        "run_id": manifest.get("run_id"),
        "name": manifest.get("name"),
        "regime": manifest.get("regime"),
        "status": totals.status,
        "started_at": started_at(manifest),
        "duration_s": totals.t,
        "protocol": "default",
        "stages": [_stage(s) for s in totals.stages],
        "devices": [
            {
                "id": d.id,
                "name": d.name,
                "kind": d.kind,
                "total_j": d.total_j,
                "unattributed_j": d.unattributed_j,
                "source": d.source,
                "coverage": d.coverage,
                "scope": d.scope,
                "flags": list(d.flags),
                "counted": d.counted,
            }
            for d in totals.devices
        ],
        "unattributed_j": totals.unattributed_j,
        "total_j": totals.total_j,
        "total_kwh": totals.total_j / KWH_J if totals.total_j is not None else None,
        "sources": sources(totals),
        "budget_j": totals.budget_j,
        **facility(manifest, totals.total_j, region=region, g_per_kwh=g_per_kwh, pue=pue),
        "quality": totals.quality,
        "teacher_reuse": totals.teacher_reuse,
        "warnings": [*(dict(w) for w in totals.warnings), *facility_warnings(manifest)],
    }
    return finite(report)


def started_at(manifest: Mapping[str, Any]) -> str | None:
    """Start of the run in UTC, ISO 8601."""
    wall = number((manifest.get("clock") or {}).get("wall_origin"))
    if wall is not None:
        try:
            return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (OverflowError, ValueError, OSError):
            pass
    created = manifest.get("created_at")
    return created if isinstance(created, str) and not manifest.get("imported") else None


def _stage(s: StageTotals) -> dict[str, Any]:
    return {
        "name": s.name,
        "kind": s.kind,
        "status": s.status,
        "exit_code": s.exit_code,
        "start_s": s.start_s,
        "end_s": s.end_s,
        "duration_s": s.duration_s,
        "phases_s": dict(s.phases_s),
        "reused_from": _reused_from(s),
        "tokens": s.tokens,
        "input_tokens": s.input_tokens,
        "tokens_per_s": s.tokens_per_s,
        "j_per_token": s.j_per_token,
        "step": s.step,
        "total_steps": s.total_steps,
        "loss": s.loss,
        "mean_w": s.mean_w,
        "energy_j": dict(s.energy_j),
        "net_energy_j": s.net_energy_j,
        "bound_j": s.bound_j,
        "shared_j": s.shared_j,
        "cpu_s": s.cpu_s,
        "cpu_process_j": s.cpu_process_j,
        "artifacts": [dict(a) for a in s.artifacts],
        "devices": [_device(d) for d in s.devices],
    }


def _reused_from(s: StageTotals) -> dict[str, Any] | None:
    if s.reused_from is None:
        return None
    return {"run": None, "artifact": None, "energy_j": None, "estimated": None, **s.reused_from}


def _device(d: StageDevice) -> dict[str, Any]:
    bound = d.bound
    return {
        "id": d.id,
        "name": d.name,
        "kind": d.kind,
        "energy_j": d.energy_j,
        "net_energy_j": d.net_energy_j,
        "mean_w": d.mean_w,
        "peak_w": d.peak_w,
        "source": d.source,
        "coverage": d.coverage,
        "scope": d.scope,
        "flags": list(d.flags),
        "counted": d.counted,
        "bound_j": d.bound_j,
        "bound_terms_j": (
            {"edge": bound.edge_j, "gap": bound.gap_j, "systematic": bound.systematic_j} if bound else None
        ),
    }


def sources(totals: Totals) -> dict[str, str | None]:
    """Source by component: one word, or `mixed`; null where the component is unknown."""
    found: dict[str, set[str]] = {}
    for device in totals.devices:
        if device.total_j is not None and device.counted:
            found.setdefault(device.kind if device.kind in GROUPS else "other", set()).add(device.source)
    return {
        group: (next(iter(kinds)) if len(kinds) == 1 else "mixed") if (kinds := found.get(group)) else None
        for group in GROUPS
    }


def facility(
    manifest: Mapping[str, Any],
    total_j: float | None,
    *,
    region: str | None = None,
    g_per_kwh: float | None = None,
    pue: float | None = None,
) -> dict[str, Any]:
    """PUE, grid factor, facility energy and CO2: beside the energy, never in it.

    facility_kwh = total_kwh x PUE; co2e_kg = facility_kwh x g_per_kwh / 1000.
    """
    used_pue = _pue(pue) if pue is not None else _recorded_pue(manifest)
    factor = _factor(manifest, region, g_per_kwh)
    kwh = total_j / KWH_J * (used_pue or 1.0) if total_j is not None else None
    return {
        "pue": used_pue,
        "region": factor.region if factor else None,
        "grid_g_per_kwh": factor.g_per_kwh if factor else None,
        "grid_year": factor.year if factor else None,
        "grid_source": grid_source(factor) if factor else None,
        "grid_licence": (factor.licence or None) if factor else None,
        "facility_kwh": kwh,
        "co2e_kg": kwh * factor.g_per_kwh / 1000.0 if kwh is not None and factor else None,
    }


def facility_warnings(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the manifest says of site and grid but cannot be used."""
    found = []
    if manifest.get("pue") is not None and _recorded_pue(manifest) is None:
        found.append(
            {"code": "pue", "text": f"recorded PUE {clean(manifest['pue'], 30)} is below 1 or no number: not used"}
        )
    try:
        _recorded_factor(manifest)
    except UsageProblem as problem:
        found.append({"code": "region", "text": f"no CO2 number: {problem}"})
    return found


def _recorded_pue(manifest: Mapping[str, Any]) -> float | None:
    pue = number(manifest.get("pue"))
    return pue if pue is not None and pue >= 1.0 else None


def _pue(value: float) -> float:
    pue = number(value)
    if pue is None or pue < 1.0:
        raise UsageProblem(f"PUE {value}: it is total over IT energy, so 1 or more, such as 1.2")
    return pue


def _factor(manifest: Mapping[str, Any], region: str | None, g_per_kwh: float | None) -> GridFactor | None:
    if region is not None or g_per_kwh is not None:
        return intensity(region, g_per_kwh)
    try:
        return _recorded_factor(manifest)
    except UsageProblem:
        return None  # facility_warnings says so


def _recorded_factor(manifest: Mapping[str, Any]) -> GridFactor | None:
    region = manifest.get("region")
    return intensity(str(region) if region else None, number(manifest.get("intensity_g_per_kwh")))


def grid_source(factor: GridFactor) -> str:
    """One line: where the factor comes from."""
    if factor.region == "custom":
        return factor.source
    return f"{factor.source}, {factor.name} {factor.year}, {factor.scope}"
