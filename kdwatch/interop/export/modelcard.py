"""The Hugging Face model card's `co2_eq_emissions` block (grams), and the energy behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from kdwatch.interop.export.markdown import stage_table
from kdwatch.ledger.marks import marked, modelled
from kdwatch.rundir.errors import UsageProblem

TRAINING_TYPES = {
    "sft": "fine-tuning",
    "kd": "fine-tuning (knowledge distillation)",
    "synthetic_sft": "fine-tuning (synthetic data)",
}


def model_card(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """A README.md part: metadata between `---` lines, then a section. `emissions` is in grams of CO2e.

    Raises UsageProblem where no region or intensity gives the emissions.
    """
    if report["co2e_kg"] is None:
        raise UsageProblem("no CO2 number for the model card: give --region FRA or --intensity G_PER_KWH")
    block: dict[str, Any] = {
        "emissions": round(1000 * report["co2e_kg"], 3),
        "source": _source(report),
        "training_type": TRAINING_TYPES.get(str(report["regime"]), "fine-tuning"),
    }
    if report.get("region") and report["region"] != "custom":
        block["geographical_location"] = report["region"]
    if hardware := _hardware(report, manifest):
        block["hardware_used"] = hardware
    head = yaml.safe_dump({"co2_eq_emissions": block}, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n{_section(report)}"


def _source(report: Mapping[str, Any]) -> str:
    kinds = {d["source"] for d in report["devices"] if d["total_j"] is not None and d["counted"]}
    how = "measured" if kinds & {"counter", "integrated"} else "imported" if "imported" in kinds else "estimated"
    beside = ", in part estimated" if how != "estimated" and "estimated" in kinds else ""
    return f"kdwatch ({how}{beside}); {report['grid_source']}"


def _hardware(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> str | None:
    names = [str(device["name"]) for device in report["devices"] if device["kind"] == "gpu"]
    shown = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    cpu = (manifest.get("hardware") or {}).get("cpu")
    return ", ".join([*shown, *([str(cpu)] if cpu else [])]) or None


def _section(report: Mapping[str, Any]) -> str:
    lines = [
        "## Environmental impact",
        "",
        f"Energy: {marked(report['total_j'], bool(modelled(report['devices'])))} at the machine"
        + (f", PUE {report['pue']:g}" if report.get("pue") else "")
        + f"; {1000 * report['co2e_kg']:.4g} g CO2e at {report['grid_g_per_kwh']:g} g/kWh ({report['grid_source']}).",
        "",
        *stage_table(report),
    ]
    if reuse := report.get("teacher_reuse"):
        lines += [
            "",
            f"The teacher's output was used {reuse['reuse_count']} times; the energy above does not share it out.",
        ]
    return "\n".join([*lines, ""])
