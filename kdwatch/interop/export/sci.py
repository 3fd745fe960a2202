"""Rows for a Software Carbon Intensity score: SCI = (E x I + M) per R (ISO/IEC 21031), by life-cycle stage of a model.

E is energy in kWh with PUE, I the grid's g CO2e per kWh, M embodied emissions in g (not measured here: given or null),
R the functional unit: a token of the stage. The SCI for AI specification keeps the provider's stages (data, training,
evaluation) apart from the consumer's use of the model; a pipeline's stages are all the provider's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdwatch.interop.export.cells import csv_text
from kdwatch.ledger.units import KWH_J

PHASES = {
    "prerun": "inception",
    "preprocess": "data engineering",
    "teacher": "data engineering",
    "student": "training",
    "evaluate": "evaluation",
}
"""Our stage kinds in the words of the life cycle."""
COLUMNS = (
    "run", "stage", "boundary", "lifecycle_stage", "e_kwh", "i_g_per_kwh", "m_g", "o_g", "functional_unit", "r",
    "sci_g_per_r", "measured_share", "notes",
)  # fmt: skip


def sci_csv(report: Mapping[str, Any], embodied_g: float | None = None) -> str:
    """One row a stage. `embodied_g`: M of the whole run, shared out by time; None leaves M and the score without it."""
    total_s = sum(stage["duration_s"] or 0.0 for stage in report["stages"])
    rows = []
    for stage in report["stages"]:
        share = (stage["duration_s"] or 0.0) / total_s if total_s else 0.0
        rows.append(_row(report, stage, None if embodied_g is None else embodied_g * share))
    return csv_text(COLUMNS, rows)


def _row(report: Mapping[str, Any], stage: Mapping[str, Any], embodied_g: float | None) -> list[Any]:
    energy = stage["energy_j"]
    kwh = None if energy["total"] is None else energy["total"] / KWH_J * (report.get("pue") or 1.0)
    factor = report.get("grid_g_per_kwh")
    operational = None if kwh is None or factor is None else kwh * factor
    tokens = stage["tokens"]
    score = None if operational is None or not tokens else (operational + (embodied_g or 0.0)) / tokens
    measured = energy["measured"] / energy["total"] if energy["total"] and energy["measured"] is not None else None
    notes = [] if embodied_g is not None else ["M unknown: the score is operational only"]
    notes += [f"missing: {', '.join(energy['missing'])}"] if energy["missing"] else []
    return [
        report["run_id"],
        stage["name"],
        "provider",
        PHASES.get(stage["kind"], "other"),
        kwh,
        factor,
        embodied_g,
        operational,
        "token",
        tokens,
        score,
        measured,
        "; ".join(notes),
    ]
