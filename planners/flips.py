"""What change of the budget or of the reuse would give another answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from planners.limits import NAMES, active, amount
from planners.request import PlanRequest
from planners.scoring import USED, limit_values
from planners.wording import energy

Row = dict[str, Any]


def flips(rows: Sequence[Row], request: PlanRequest, chosen: Row | None) -> list[dict[str, Any]]:
    """What change would give another answer: each limit up and down, and the reuse N."""
    found = []
    if chosen is not None:
        rated = [row for row in rows if row["quality"] is not None]
        for name in limit_values(request):
            found += _limit_flips(rated, request, chosen, name)
        if request.min_quality is not None:
            found += _floor_flips(rated, request, chosen)
    return found + reuse_flips(rows, request, chosen)


def _limit_flips(rated: list[Row], request: PlanRequest, chosen: Row, name: str) -> list[dict[str, Any]]:
    """The smallest increase of a limit that gives more quality, and below which value the choice no longer fits."""
    if request.goal != "max_quality":
        return []
    used, others = USED[name], [f"over_{other}" for other in active(request) if other != name]
    kept = [row for row in rated if row[used] is not None and all(row[over] == 0 for over in others)]
    better = [row for row in kept if row["quality"] > chosen["quality"] and row[f"over_{name}"]]
    lesser = [row for row in kept if row[used] < chosen[used] and row["quality"] < chosen["quality"]]
    found = []
    if better:
        up = min(better, key=lambda row: (row[used], -row["quality"]))
        found.append(_flip(name, up[used] * up["upper_factor"], request, up, "of"))
    if lesser:
        down = max(lesser, key=lambda row: (row["quality"], -row[used]))
        found.append(_flip(name, chosen[used] * chosen["upper_factor"], request, down, "below"))
    return found


def _flip(name: str, to: float, request: PlanRequest, row: Row, how: str) -> dict[str, Any]:
    text = f"a {NAMES[name]} {how} {amount(to, request, name)} gives {row['id']}, quality {row['quality']:.2f}"
    return {"change": name, "to": to, "by": to - limit_values(request)[name], "id": row["id"], "text": text}


def _floor_flips(rated: list[Row], request: PlanRequest, chosen: Row) -> list[dict[str, Any]]:
    """For the lowest energy: the next quality floor above the choice, and the floor that a cheaper one would meet."""
    if request.goal != "min_energy":
        return []
    others = [f"over_{other}" for other in limit_values(request)]
    kept = [row for row in rated if row["per_student_kwh"] is not None and all(row[over] == 0 for over in others)]
    above = [row for row in kept if row["quality"] > chosen["quality"]]
    below = [
        row for row in kept if row["quality"] < chosen["quality"] and row["per_student_kwh"] < chosen["per_student_kwh"]
    ]
    floor, found = float(request.min_quality or 0.0), []
    picks = []
    if above:
        picks.append((chosen["quality"], min(above, key=lambda row: row["per_student_kwh"]), "a quality floor above"))
    if below:
        cheaper = max(below, key=lambda row: row["quality"])
        picks.append((cheaper["quality"], cheaper, "a quality floor of"))
    for to, row, how in picks:
        text = f"{how} {to:.2f} gives {row['id']}, {energy(row['per_student_kwh'])} per student"
        found.append({"change": "min_quality", "to": to, "by": to - floor, "id": row["id"], "text": text})
    return found


def reuse_flips(rows: Sequence[Row], request: PlanRequest, chosen: Row | None) -> list[dict[str, Any]]:
    """The smallest N above the present one at which a distilled candidate fits, or needs less than the chosen."""
    if request.teacher_outputs == "cached" or request.program_budget_kwh is not None:
        return []
    found = []
    for row in (row for row in rows if row["quality"] is not None and (row["teacher_kwh"] or 0.0) > 0):
        if chosen is not None and row["id"] == chosen["id"]:
            continue
        target = _target_kwh(row, request, chosen)
        teacher = row["teacher_kwh"] + (request.teacher_training_kwh or 0.0)
        rest = row["total_kwh"] - row["teacher_kwh"]
        if target is None or target <= rest + 1e-9:
            continue
        n = max(1, math.ceil(round(teacher / (target - rest), 9)))
        if n > request.n:
            verb = (
                "fits the budget"
                if request.goal == "max_quality"
                else f"needs no more than {chosen['id'] if chosen else ''}"
            )
            found.append(
                {
                    "change": "reuse_n",
                    "to": n,
                    "by": n - request.n,
                    "id": row["id"],
                    "text": f"from N = {n} on {row['id']} {verb}: {energy(rest + teacher / n)}, "
                    f"quality {row['quality']:.2f}",
                }
            )
    return sorted(found, key=lambda flip: (flip["to"], flip["id"]))[:5]


def _target_kwh(row: Row, request: PlanRequest, chosen: Row | None) -> float | None:
    """Energy that the row must come down to in order to change the answer; None where it would not."""
    if request.min_quality is not None and row["quality"] < request.min_quality:
        return None
    if request.goal == "max_quality":
        if request.allowed_kwh is None or (chosen is not None and row["quality"] <= chosen["quality"]):
            return None
        return request.allowed_kwh
    return None if chosen is None else float(chosen["per_student_kwh"])
