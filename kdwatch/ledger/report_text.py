"""The report as text for a terminal of 80 columns. Everything from the run passes `clean`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from kdwatch.ledger.marks import is_estimated, marked
from kdwatch.ledger.stage_bars import stage_bars
from kdwatch.ledger.units import KWH_J, format_duration, format_energy, format_number, three_digits
from kdwatch.rundir.text import clean

WIDTH = 80
BAR_CELLS = 48
"""Longest bar of a stage."""


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The whole text, line by line."""
    yield from _head(report)
    yield ""
    yield from _stages(report)
    yield from _bars(report)
    yield ""
    if report["devices"]:
        yield from _devices(report)
        yield ""
    yield from _sums(report)
    yield from _quality(report)
    yield from _reuse(report)
    if report["warnings"]:
        yield ""
        yield "Warnings"
        for warning in report["warnings"]:
            yield from _wrapped(f"{clean(warning['code'], 24)}: {clean(warning['text'], 300)}", "  ")


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent if len(indent) > 2 else indent + "  ")


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    name = clean(report.get("name") or "", 40)
    parts = [clean(report.get("run_id"), 60), name, clean(report.get("regime") or "", 20), clean(report["status"], 20)]
    yield from _wrapped("  ".join(p for p in parts if p), "")
    yield f"started {clean(report.get('started_at') or 'n/a', 30)}, {format_duration(report['duration_s'])}"
    if report.get("protocol") == "paper":
        yield "protocol: the paper's (docs/protocol.md)"


def _stages(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'STAGE':<18} {'STATUS':<11} {'TIME':>7} {'MEAN W':>7} {'ENERGY':>9} {'SHARE':>6} {'TOK/S':>7} {'J/TOK':>7}"
    total = report["total_j"]
    for stage in report["stages"]:
        energy = stage["energy_j"]
        share = f"{energy['total'] / total:.0%}" if total and energy["total"] is not None else "n/a"
        yield (
            f"{clean(stage['name'], 18):<18} {clean(stage['status'], 11):<11} {format_duration(stage['duration_s']):>7}"
            f" {_watts(stage['mean_w']):>7} {marked(energy['total'], energy['estimated']):>9} {share:>6}"
            f" {format_number(stage['tokens_per_s']):>7} {_per_token(stage['j_per_token']):>7}"
        )
        yield from _stage_notes(stage, report)


def _stage_notes(stage: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[str]:
    reused = stage.get("reused_from")
    if reused:
        made = _made(reused.get("energy_j"), reused, report)
        artifact = clean(reused.get("artifact") or "n/a", 12)
        yield f"  reused: artifact {artifact} of run {clean(reused.get('run') or 'n/a', 32)}, {made} when made"
    if stage["exit_code"] not in (None, 0):
        yield f"  exit code {stage['exit_code']}"
    if stage["energy_j"]["missing"] and stage["energy_j"]["total"] is not None:
        yield f"  not known: {', '.join(clean(m, 20) for m in stage['energy_j']['missing'])}"
    facts = [f"±{format_energy(stage['bound_j'])}"] if stage["bound_j"] is not None else []
    if stage["net_energy_j"] is not None:
        facts.append(f"{format_energy(stage['net_energy_j'])} above idle")
    facts += [f"{clean(k, 20)} {format_duration(v)}" for k, v in stage["phases_s"].items()]
    if facts:
        yield from _wrapped(", ".join(facts), "  ")


def _bars(report: Mapping[str, Any]) -> Iterator[str]:
    """Energy of the stages that used some, as bars, where there are two to compare."""
    used = [stage for stage in report["stages"] if stage["energy_j"]["total"]]
    if len(used) < 2:
        return
    yield ""
    bars = stage_bars([stage["energy_j"]["total"] for stage in used], BAR_CELLS)
    for stage, drawn in zip(used, bars, strict=True):
        energy = stage["energy_j"]
        yield f"{clean(stage['name'], 18):<18} {drawn} {marked(energy['total'], energy['estimated'])}"


def _has_estimates(report: Mapping[str, Any]) -> bool:
    """Whether a part of the total is a model's."""
    counted = (d for d in report["devices"] if d.get("counted", True) and d["total_j"] is not None)
    return any(map(is_estimated, counted))


def _made(joules: float | None, origin: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Energy of an output that was made before; marked as this run is where its own record does not say."""
    estimated = origin.get("estimated")
    return marked(joules, _has_estimates(report) if estimated is None else estimated)


def _watts(value: float | None) -> str:
    return "n/a" if value is None else three_digits(value)


def _per_token(value: float | None) -> str:
    if value is None:
        return "n/a"
    return three_digits(value) if value >= 0.001 else f"{value:.1e}"


def _devices(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'DEVICE':<31} {'ENERGY':>10} {'UNATTRIB.':>10} {'SOURCE':<10} {'SCOPE':<9} COVER"
    for device in report["devices"]:
        shown, outside = (marked(device[name], is_estimated(device)) for name in ("total_j", "unattributed_j"))
        cover = f"{device['coverage']:.0%}" if device["coverage"] is not None else "n/a"
        name = clean(device["name"], 31)
        yield (
            f"{name:<31} {shown:>10} {outside:>10} {clean(device['source'], 10):<10}"
            f" {clean(device['scope'], 9):<9} {cover:>5}"
        )
        if not device.get("counted", True):
            yield "  beside the rest, not in the total"


def _sums(report: Mapping[str, Any]) -> Iterator[str]:
    total = report["total_j"]
    kwh = f" = {three_digits(total / KWH_J)} kWh" if total is not None else ""
    estimated = _has_estimates(report)
    yield f"unattributed  {marked(report['unattributed_j'], estimated)}"
    yield f"total         {marked(total, estimated)}{kwh}" + ("   (~ contains estimates)" if estimated else "")
    if report["budget_j"] is not None:
        used = f", {total / report['budget_j']:.0%} used" if total is not None and report["budget_j"] else ""
        yield f"budget        {format_energy(report['budget_j'])}{used}"
    if report["pue"] is not None:
        yield f"facility      {_kwh(report['facility_kwh'])} with PUE {report['pue']:g}"
    if report["grid_g_per_kwh"] is not None:
        co2 = report["co2e_kg"]
        shown = "n/a" if co2 is None else f"{three_digits(co2 * 1000)} g" if co2 < 1 else f"{three_digits(co2)} kg"
        yield f"CO2e          {shown} at {report['grid_g_per_kwh']:g} g/kWh"
        yield from _wrapped(clean(report["grid_source"], 200), " " * 14)


def _kwh(value: float | None) -> str:
    return "n/a" if value is None else f"{three_digits(value)} kWh"


def _quality(report: Mapping[str, Any]) -> Iterator[str]:
    quality = report["quality"]
    if not quality:
        return
    q = quality.get("q")
    yield f"quality Q     {'n/a' if q is None else f'{q:.3f}'}"
    for name, scores in quality.get("benchmarks", {}).items():
        student, teacher = (scores.get(k) for k in ("student", "teacher"))
        yield f"  {clean(name, 24):<24} student {_score(student)}, teacher {_score(teacher)}"


def _score(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _reuse(report: Mapping[str, Any]) -> Iterator[str]:
    reuse = report["teacher_reuse"]
    if reuse:
        share = _made(reuse["teacher_j_share"], reuse, report)
        count = reuse["reuse_count"] if reuse["reuse_count"] is not None else "n/a"
        uses = f"{count} use{'' if count == 1 else 's'}"
        whole = _made(reuse["teacher_j"], reuse, report)
        made = f"{whole} over {uses} of artifact {clean(reuse['artifact'], 12)}"
        yield from wrap(f"teacher       E_teacher/N = {share}: {made}", WIDTH, subsequent_indent=" " * 14)
