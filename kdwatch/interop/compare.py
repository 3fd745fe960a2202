"""Runs side by side. Energies are compared over the same components only, of the same scope, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kdwatch.ledger.marks import is_estimated
from kdwatch.ledger.report import build_report
from kdwatch.ledger.totals import known_sum
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.reader import load_manifest

COMPONENTS = ("gpu", "cpu", "dram", "ram_estimated", "other")
Report = Mapping[str, Any]


def load(path: Path) -> dict[str, Any]:
    """The report with what comparing needs beside: whether an imported number includes a PUE."""
    report = build_report(path)
    manifest = load_manifest(path)
    report["_includes_pue"] = any(w["code"] == "includes_pue" for w in report["warnings"])
    report["_imported"] = bool(manifest.get("imported"))
    return report


def compare(reports: Sequence[Report], any_scope: bool = False) -> dict[str, Any]:
    """The object of `kdwatch compare --json`; the first run is what the others are compared with.

    Raises UsageProblem where the runs' energies have nothing in common that could be compared: another scope of the
    same component, or no component that all have. `any_scope` compares anyway and says so in `warnings`.
    """
    scopes = [component_scopes(report) for report in reports]
    common = [part for part in COMPONENTS if all(part in found for found in scopes)]
    problems = scope_problems(reports, scopes, common)
    if problems and not any_scope:
        raise UsageProblem(f"not comparable: {problems[0]}; --any-scope compares them all the same")
    return {
        "schema": 1,
        "runs": [_run(report, found, common) for report, found in zip(reports, scopes, strict=True)],
        "components": common,
        "left_out": {
            str(report["run_id"]): [part for part in found if part not in common]
            for report, found in zip(reports, scopes, strict=True)
        },
        "comparable": not problems,
        "stages": [_stage(found, common) for found in rows(reports)],
        "total": {
            **_values([_sum_total(report, common) for report in reports], [_bound(report) for report in reports]),
            "estimated": [_is_estimated(report["devices"], common) for report in reports],
        },
        "warnings": warnings(reports, scopes, common, problems),
    }


def component_scopes(report: Report) -> dict[str, set[str]]:
    """Scopes by component that has energy in the run's total."""
    found: dict[str, set[str]] = {}
    for device in report["devices"]:
        if device["total_j"] is not None and device["counted"]:
            found.setdefault(_component(device), set()).add(str(device["scope"]))
    return found


def scope_problems(reports: Sequence[Report], scopes: list[dict[str, set[str]]], common: list[str]) -> list[str]:
    """Reasons why the energies are different things."""
    problems = []
    if not common:
        parts = " and ".join(
            f"{report['run_id']} has {', '.join(found) or 'no energy'}"
            for report, found in zip(reports, scopes, strict=True)
        )
        problems.append(f"no component is in all runs ({parts})")
    for part in common:
        kinds = {frozenset(found[part]) for found in scopes}
        if len(kinds) > 1:
            shown = " and ".join("+".join(sorted(kind)) for kind in sorted(kinds, key=sorted))
            problems.append(f"{part} covers different scopes ({shown})")
    if len({bool(report.get("_includes_pue")) for report in reports}) > 1:
        problems.append("one run's energy includes a PUE and another's does not")
    return problems


def warnings(
    reports: Sequence[Report], scopes: list[dict[str, set[str]]], common: list[str], problems: list[str]
) -> list[dict[str, str]]:
    """What to know when reading the comparison."""
    found = [{"code": "mixed_scopes", "text": problem} for problem in problems]
    for report, have in zip(reports, scopes, strict=True):
        left = [part for part in have if part not in common]
        if left:
            text = f"{report['run_id']}: {', '.join(left)} left out, not all runs have it"
            found.append({"code": "component_left_out", "text": text})
    for part in common:
        sources = [_source(report, part) for report in reports]
        if len(set(sources)) > 1:
            text = f"{part} comes from different sources: {', '.join(sources)}"
            found.append({"code": "mixed_sources", "text": text})
    return found


def _source(report: Report, part: str) -> str:
    return str((report.get("sources") or {}).get(part) or "n/a")


def _is_estimated(devices: Sequence[Mapping[str, Any]], common: list[str]) -> bool:
    """Whether a part of the compared energy is a model's."""
    return any(is_estimated(d) for d in devices if d["counted"] and _component(d) in common)


def _component(device: Mapping[str, Any]) -> str:
    return device["kind"] if device["kind"] in COMPONENTS else "other"


def _run(report: Report, scopes: dict[str, set[str]], common: list[str]) -> dict[str, Any]:
    return {
        "run_id": report["run_id"],
        "name": report["name"],
        "regime": report["regime"],
        "status": report["status"],
        "duration_s": report["duration_s"],
        "total_j": report["total_j"],
        "compared_j": _sum_total(report, common),
        "scopes": {part: sorted(found) for part, found in scopes.items()},
        "sources": report["sources"],
        "quality": (report.get("quality") or {}).get("q"),
    }


def _sum(energy: Mapping[str, Any], common: list[str]) -> float | None:
    return known_sum(energy[part] for part in common)


def _sum_total(report: Report, common: list[str]) -> float | None:
    return known_sum(d["total_j"] for d in report["devices"] if d["counted"] and _component(d) in common)


def _bound(report: Report) -> float | None:
    return known_sum(stage["bound_j"] for stage in report["stages"])


def rows(reports: Sequence[Report]) -> list[list[Mapping[str, Any] | None]]:
    """Stages that belong together: of one name, or the only ones of their kind in each run."""
    found: list[list[Mapping[str, Any] | None]] = []
    names = list(dict.fromkeys(stage["name"] for report in reports for stage in report["stages"]))
    for name in names:
        row = [next((s for s in report["stages"] if s["name"] == name), None) for report in reports]
        alone = [_only_of_kind(report, next(s["kind"] for s in row if s)) for report in reports]
        if None in row and None not in alone and any(stage in row for stage in alone):
            row = alone
        if row not in found:
            found.append(row)
    return found


def _only_of_kind(report: Report, kind: str) -> Mapping[str, Any] | None:
    stages = [stage for stage in report["stages"] if stage["kind"] == kind]
    unknown = ("other", "custom")  # imported by earlier versions
    return stages[0] if len(stages) == 1 and kind not in unknown else None


def _stage(found: list[Mapping[str, Any] | None], common: list[str]) -> dict[str, Any]:
    energies = [None if stage is None else _sum(stage["energy_j"], common) for stage in found]
    bounds = [None if stage is None else stage["bound_j"] for stage in found]
    return {
        "name": next(stage["name"] for stage in found if stage is not None),
        "names": [None if stage is None else stage["name"] for stage in found],
        "kind": next(stage["kind"] for stage in found if stage is not None),
        **_values(energies, bounds),
        "estimated": [None if stage is None else _is_estimated(stage["devices"], common) for stage in found],
        "status": [None if stage is None else stage["status"] for stage in found],
        "duration_s": [None if stage is None else stage["duration_s"] for stage in found],
        "tokens": [None if stage is None else stage["tokens"] for stage in found],
        "j_per_token": [_per_token(energy, stage) for energy, stage in zip(energies, found, strict=True)],
    }


def _per_token(energy: float | None, stage: Mapping[str, Any] | None) -> float | None:
    return energy / stage["tokens"] if energy is not None and stage and stage["tokens"] else None


def _values(energies: list[float | None], bounds: list[float | None]) -> dict[str, Any]:
    """Energies with the difference from the first, and whether it exceeds both error bounds together."""
    first, first_bound = energies[0], bounds[0]
    differences = [None if e is None or first is None else e - first for e in energies]
    ratios = [None if e is None or not first else e / first for e in energies]
    clear = [
        None if d is None or b is None or first_bound is None else abs(d) > b + first_bound
        for d, b in zip(differences, bounds, strict=True)
    ]
    return {"energy_j": energies, "difference_j": differences, "ratio": ratios, "beyond_bounds": clear}
