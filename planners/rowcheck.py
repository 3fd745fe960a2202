"""Whether one observation can be used at all, and why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planners.checks import same
from planners.schema import CORE_STAGES, SCHEMA, STAGE_COLUMNS

LARGEST_KWH = 1e12
"""A year's electricity of a large country: no run takes as much."""
_OTHERS = [
    name for name, kind in SCHEMA.items() if kind.is_numeric() and name not in (*STAGE_COLUMNS, "total_kwh", "quality")
]
_ABOVE_0 = {"student_params_b", "teacher_params_b", "teacher_batch", "max_new_tokens", "mean_gpu_w"}
"""Of the other numbers those that nothing can be 0 of."""


@dataclass(frozen=True)
class RowVerdict:
    """`reason` says why a row was rejected, `note` what is odd about an accepted one."""

    accepted: bool
    reason: str | None = None
    note: str | None = None


def check_energy_and_quality(energy_kwh: float | None, quality: float | None) -> RowVerdict:
    """A run's total energy must be a positive number; Q may be unknown, and may exceed 1."""
    if energy_kwh is None:
        return RowVerdict(False, "energy is unknown")
    if not math.isfinite(energy_kwh):
        return RowVerdict(False, "energy is not a finite number")
    if energy_kwh > LARGEST_KWH:
        return RowVerdict(False, f"energy is {energy_kwh:g} kWh, more than any run can take; is it in joules?")
    if energy_kwh <= 0:
        return RowVerdict(False, f"energy is {energy_kwh:g} kWh; a run needs more than 0")
    if quality is None:
        return RowVerdict(True)
    if not math.isfinite(quality) or quality < 0:
        return RowVerdict(False, f"quality {quality:g} is no score ratio")
    return RowVerdict(True, note="q above 1 is legal (student beats teacher)" if quality > 1 else None)


def check_row(row: Mapping[str, Any]) -> RowVerdict:
    """`check_energy_and_quality`; that no other number is negative or NaN; that stages do not contradict the total."""
    total = row.get("total_kwh")
    stages = {name: row.get(name) for name in STAGE_COLUMNS}
    for name, value in stages.items():
        if value is not None and (not math.isfinite(value) or value < 0):
            return RowVerdict(False, f"{name} is {value:g}")
    for name in _OTHERS:
        value = row.get(name)
        if value is not None and not (math.isfinite(value) and value >= 0 and (value > 0 or name not in _ABOVE_0)):
            least = "above 0" if name in _ABOVE_0 else "of at least 0"
            return RowVerdict(False, f"{name} is {value:g}; give a number {least}, or leave it empty")
    parts = [value for value in stages.values() if value is not None]
    verdict = check_energy_and_quality(total, row.get("quality"))
    if verdict.accepted and total is not None and sum(parts) > total * 1.01 and not same(sum(parts), total):
        return RowVerdict(False, f"stages sum to {sum(parts):g} kWh, more than the total of {total:g} kWh")
    return verdict


def fill_total(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its total as the sum of its stages where only those are known, marked `derived`.

    Plain SFT has no teacher: an empty cell of it is 0.
    """
    if row.get("regime") == "sft" and row.get("teacher_kwh") is None:
        row = row | {"teacher_kwh": 0.0}
    core = [row.get(name) for name in CORE_STAGES]
    if row.get("total_kwh") is None and None not in core:
        known = [row[name] for name in STAGE_COLUMNS if row.get(name) is not None]
        return row | {"total_kwh": round(sum(known), 12), "derived": True}
    return row
