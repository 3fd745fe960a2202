"""What the limits do to a scored table: which binds, how far off everything is, what the smallest relaxation is."""

from __future__ import annotations

from typing import Any

import polars as pl

from kdwatch.rundir.errors import UsageProblem
from planners.checks import difference
from planners.ranking import energy_column, rank
from planners.request import PlanRequest
from planners.rounding import Rounding, down, nearest, up
from planners.scoring import USED, limit_values
from planners.wording import energy

QUALITY = "min_quality"
UNITS = {"budget_kwh": "kWh", "co2e_kg": "kg CO2e", "cost": "", "gpu_hours": "GPU-hours"}
NAMES = {"budget_kwh": "budget", "co2e_kg": "CO2e limit", "cost": "cost limit", "gpu_hours": "GPU-hour limit"}


def active(request: PlanRequest) -> list[str]:
    """Names of the limits that are set, as in the JSON object's `limits`."""
    names = list(limit_values(request))
    return [*names, QUALITY] if request.min_quality is not None else names


def check_known(scored: pl.DataFrame, request: PlanRequest) -> None:
    """Raise UsageProblem for a limit on something that no candidate's use is known of."""
    hints = {
        "gpu_hours": "gpu-hours: no observation says how many it took; give mean-gpu-w, a GPU's mean power in W",
        "cost": "cost: GPU-hours of no observation are known; give mean-gpu-w, or leave gpu-hour-price out",
        "co2e_kg": "co2: the teacher's energy of no observation is known; leave teacher-region out",
    }
    for name in limit_values(request):
        if name in hints and scored[USED[name]].null_count() == scored.height > 0:
            raise UsageProblem(hints[name])


def kept_without(scored: pl.DataFrame, request: PlanRequest, dropped: set[str]) -> pl.DataFrame:
    """The scored table with `feasible` as it would be without the `dropped` limits."""
    keeps = [pl.col(f"over_{name}") == 0.0 for name in active(request) if name not in dropped]
    kept = pl.all_horizontal(keeps).fill_null(False) if keeps else pl.lit(True)
    return scored.with_columns(
        (kept & pl.col("per_student_kwh").is_not_null() & pl.col("quality").is_not_null()).alias("feasible")
    )


def binding(scored: pl.DataFrame, request: PlanRequest, chosen: str | None) -> str | None:
    """The limit that decides: the one without which the choice would be another.

    Where several would do it, or only all together, the one with the least relative room; None where no limit
    excludes anything preferred.
    """
    names = active(request)
    if chosen is None:
        return _most_violated(scored, names)
    deciding = [name for name in names if _first(kept_without(scored, request, {name}), request) != chosen]
    if not deciding and len(names) > 1 and _first(kept_without(scored, request, set(names)), request) != chosen:
        deciding = names
    row = scored.row(by_predicate=pl.col("id") == chosen, named=True)
    return min(deciding, key=lambda name: _room(row, request, name), default=None)


def _first(scored: pl.DataFrame, request: PlanRequest) -> str | None:
    ranked = rank(scored, request)
    return ranked["id"][0] if ranked.height else None


def _most_violated(scored: pl.DataFrame, names: list[str]) -> str | None:
    rated = scored.filter(pl.col("quality").is_not_null() & pl.col("violation").is_not_null())
    if rated.is_empty() or not names:
        return None
    closest = rated.sort("violation", "per_student_kwh").row(0, named=True)
    return max(names, key=lambda name: closest[f"over_{name}"] or 0.0)


def _room(row: dict[str, Any], request: PlanRequest, name: str) -> float:
    if name == QUALITY:
        return row["quality"] / request.min_quality - 1.0 if request.min_quality else float("inf")
    value = limit_values(request)[name]
    return 1.0 - row[USED[name]] / value if value else 0.0


def cheapest(scored: pl.DataFrame, request: PlanRequest) -> dict[str, Any] | None:
    """The rated candidate of least energy that keeps the quality limit; if none does, of all rated ones."""
    rated = scored.filter(pl.col("quality").is_not_null() & pl.col("per_student_kwh").is_not_null())
    if request.min_quality is not None:
        rated = _or_all(rated.filter(pl.col("over_min_quality") == 0.0), rated)
    if rated.is_empty():
        return None
    return rated.sort(["per_student_kwh", "quality", "id"], descending=[False, True, False]).row(0, named=True)


def _or_all(some: pl.DataFrame, everything: pl.DataFrame) -> pl.DataFrame:
    return everything if some.is_empty() else some


def shortfall_kwh(row: dict[str, Any] | None) -> float | None:
    """Energy that the candidate needs beyond the tightest energy-like limit; None where it needs none."""
    if row is None or row["tightest_kwh"] is None:
        return None
    missing = row["per_student_kwh"] * row["upper_factor"] - row["tightest_kwh"]
    return missing if missing > 1e-12 else None


def slack_kwh(row: dict[str, Any]) -> float | None:
    """Energy left under the tightest energy-like limit, 0 where only rounding is left; None without such a limit."""
    return None if row["tightest_kwh"] is None else difference(row["tightest_kwh"], row["per_student_kwh"])


def relaxations(scored: pl.DataFrame, request: PlanRequest) -> list[dict[str, Any]]:
    """For each limit the smallest relaxation that, alone, makes some candidate feasible.

    Where no single one suffices, the smallest joint relaxation by total relative violation stands alone, as `together`.
    """
    found = []
    for name in active(request):
        known = pl.col("quality" if name == QUALITY else USED[name]).is_not_null()
        rest = kept_without(scored, request, {name}).filter(pl.col("feasible") & known)
        if rest.height:
            found.append(_relaxation(rest, request, name))
    if found:
        return found
    rated = scored.filter(pl.col("quality").is_not_null() & pl.col("violation").is_not_null())
    if rated.is_empty():
        return []
    closest = rated.sort(["violation", "per_student_kwh", "id"]).row(0, named=True)
    steps = [_step(closest, request, name) for name in active(request) if closest[f"over_{name}"]]
    return [{"limit": "together", "candidate": closest["id"], "limits": steps}] if steps else []


def _relaxation(rest: pl.DataFrame, request: PlanRequest, name: str) -> dict[str, Any]:
    if name == QUALITY:
        order = rest.sort(["quality", energy_column(request), "id"], descending=[True, False, False], nulls_last=True)
    else:
        order = rest.sort([USED[name], "quality", "id"], descending=[False, True, False], nulls_last=True)
    return _step(order.row(0, named=True), request, name)


def _step(row: dict[str, Any], request: PlanRequest, name: str) -> dict[str, Any]:
    if name == QUALITY:
        now, needed = float(request.min_quality or 0.0), row["quality"]
    else:
        now, needed = limit_values(request)[name], row[USED[name]] * row["upper_factor"]
    step = {"limit": name, "from": now, "to": needed, "by": abs(needed - now), "candidate": row["id"]}
    if name == QUALITY:
        step["text"] = f"the quality floor from {now:.4g} to {down(needed, 4):.4g}"
    else:
        old, new = amount(now, request, name), amount(needed, request, name, up)
        step["text"] = f"the {NAMES[name]} from {old} to {new}"
    if name == "budget_kwh" and request.program_budget_kwh is not None:
        step["program_to"] = needed * request.n
    return step


def amount(value: float, request: PlanRequest, name: str, rounding: Rounding = nearest) -> str:
    """A limited quantity with its unit; of a programme's budget for all its students too."""
    if name != "budget_kwh":
        return f"{rounding(value, 4):.4g} {UNITS[name] or request.currency}"
    text = energy(value, rounding)
    if request.program_budget_kwh is None:
        return text
    return f"{text} per student ({energy(value * request.n, rounding)} for {request.n})"
