"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdwatch.ledger.marks import component_energies, is_estimated, marked, modelled
from kdwatch.ledger.units import format_duration, format_number
from kdwatch.rundir.text import clean


def cell(value: Any, limit: int = 60) -> str:
    """Text that stays one cell of a table and starts no markup."""
    text = clean(value, limit)
    for sign in "\\`*_{}[]<>#|!":
        text = text.replace(sign, f"\\{sign}")
    return text


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report."""
    lines = [f"# {cell(report['name'] or report['run_id'])}", ""]
    lines += [f"- {name}: {text}" for name, text in _facts(report)]
    lines += ["", "## Stages", "", *stage_table(report), "", "## Devices", "", *device_table(report)]
    if report["warnings"]:
        lines += ["", "## Warnings", ""]
        lines += [f"- {cell(w['code'])}: {cell(w['text'], 300)}" for w in report["warnings"]]
    return "\n".join([*lines, ""])


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "run", cell(report["run_id"], 100)
    yield "regime", cell(report["regime"])
    yield "status", cell(report["status"])
    yield "started", cell(report["started_at"] or "n/a")
    yield "time", format_duration(report["duration_s"])
    estimated = bool(modelled(report["devices"]))
    yield "energy", marked(report["total_j"], estimated) + _kwh(report["total_kwh"])
    yield "outside stages", marked(report["unattributed_j"], estimated)
    if report["co2e_kg"] is not None:
        source = cell(report["grid_source"], 120)
        yield "CO2e", f"{1000 * report['co2e_kg']:.4g} g at {report['grid_g_per_kwh']:g} g/kWh ({source})"
    if report.get("quality") and report["quality"]["q"] is not None:
        yield "quality Q", f"{report['quality']['q']:.3f}"


def _kwh(value: float | None) -> str:
    return "" if value is None else f" = {value:.4g} kWh"


def stage_table(report: Mapping[str, Any]) -> Iterator[str]:
    """Stages with their energies; `~` marks energy that is in part a model's."""
    yield "| stage | kind | status | time | energy | GPU | CPU | DRAM | tokens | J/token |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for stage in report["stages"]:
        cells = (
            cell(stage["name"]),
            cell(stage["kind"]),
            cell(stage["status"]),
            format_duration(stage["duration_s"]),
            *component_energies(stage),
            "n/a" if stage["tokens"] is None else str(stage["tokens"]),
            format_number(stage["j_per_token"]),
        )
        yield f"| {' | '.join(cells)} |"


def device_table(report: Mapping[str, Any]) -> Iterator[str]:
    """Devices with where their numbers come from."""
    yield "| device | kind | energy | outside stages | source | scope | coverage |"
    yield "|---|---|---:|---:|---|---|---:|"
    for device in report["devices"]:
        coverage = "n/a" if device["coverage"] is None else f"{device['coverage']:.0%}"
        cells = (
            cell(device["name"]) + ("" if device["counted"] else " (not in the total)"),
            cell(device["kind"]),
            marked(device["total_j"], is_estimated(device)),
            marked(device["unattributed_j"], is_estimated(device)),
            cell(device["source"]),
            cell(device["scope"]),
            coverage,
        )
        yield f"| {' | '.join(cells)} |"
