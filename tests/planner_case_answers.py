"""One function for each kind of planner case: what the public functions of `planners` answer to its input.

No expected number is in here. `ANSWERS[kind](case)` returns every fact that a case of the kind may ask for; facts whose
names hold a number (`next_upgrade_eps_0.02`) are made from the names that are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl
from planner_case_input import Case, Facts, point, row

from planners import PlanRequest, PlanResult, plan
from planners.breakeven import lifecycle_kwh
from planners.carbon import allowed_kwh_of_gpu_hours, gpu_hours, grids
from planners.checks import finite
from planners.frontier import dominated_by, frontier, marginal_quality, next_upgrade
from planners.paper import token_denominator_millions
from planners.program import per_student_kwh, students_under_program_budget
from planners.ranking import rank, tied


def _chosen(result: PlanResult) -> Facts:
    """The recommendation, or what stands in for it."""
    facts: Facts = {
        "feasible": result.feasible,
        "recommended": None,
        "energy_kwh": None,
        "q": None,
        "slack_kwh": result.slack_kwh,
    }
    if result.recommendation is not None:
        p = result.recommendation.predicted
        facts |= {"recommended": result.recommendation.id, "energy_kwh": p.per_student_kwh, "q": p.quality}
    if result.cheapest is not None:
        facts |= {"cheapest": result.cheapest["id"], "cheapest_kwh": result.cheapest["per_student_kwh"]}
    facts |= {"shortfall_kwh": result.shortfall_kwh, "binding_limit": result.binding_limit, "unrated": result.unrated}
    facts |= {"tie": result.tie, "tie_break": result.tie_break} | _best_quality(result)
    codes = [note.code for note in result.warnings]
    return facts | {"warning": "gain_within_noise" if "gain_within_noise" in codes else None} | _relaxed(result)


def _best_quality(result: PlanResult) -> Facts:
    """The highest quality of any rated candidate, whatever the limits."""
    rated = [c for c in result.candidates if c["quality"] is not None]
    best = max(rated, key=lambda c: c["quality"], default={"id": None, "quality": None})
    return {"best_q": best["quality"], "best_candidate": best["id"]}


def _relaxed(result: PlanResult) -> Facts:
    facts: Facts = {}
    for step in result.relaxations:
        name = {"budget_kwh": "budget", "min_quality": "quality", "co2e_kg": "co2e"}.get(step["limit"], step["limit"])
        if "to" in step:
            unit = "_kwh" if name == "budget" else ""
            facts |= {f"relax_{name}_to{unit}": step["to"], f"relax_{name}_candidate": step["candidate"]}
    return facts


def _fixture(case: Case) -> Facts:
    candidates = case.input["candidates"]
    totals = {name: row(name, given).get("total_kwh") for name, given in candidates.items()}
    return {"totals_kwh": totals, "implied_token_denominator_millions": token_denominator_millions()}


def _max_quality(case: Case) -> Facts:
    budget, tolerance = case.input["budget_kwh"], case.input.get("quality_tolerance", 0)
    result = case.plan(budget_kwh=budget, quality_tolerance=tolerance, objective="max_quality")
    facts = _chosen(result)
    strict = case.plan(budget_kwh=budget, objective="max_quality")
    if facts["recommended"] and strict.recommendation:
        facts["saved_vs_strict_kwh"] = strict.recommendation.predicted.per_student_kwh - facts["energy_kwh"]
    facts["dominated"] = [name for name in case.fixture if name in dominated_by(case.points)]
    for name in case.asked:
        if match := re.fullmatch(r"next_upgrade_(strict|eps(?:_([\d.]+))?)(_needs_more_kwh)?", name):
            eps = 0.0 if match[1] == "strict" else float(match[2] or _asked_eps(case))
            facts[name] = _upgrade(case, facts, eps, bool(match[3]))
    return facts


def _asked_eps(case: Case) -> float:
    """The tolerance that a neighbouring key names: `next_upgrade_eps_0.02`."""
    found = [m[1] for name in case.asked if (m := re.fullmatch(r"next_upgrade_eps_([\d.]+)", name))]
    return float(found[0]) if found else float(case.input.get("quality_tolerance", 0))


def _upgrade(case: Case, facts: Facts, tolerance: float, needs: bool) -> Any:
    found = next_upgrade(frontier(case.points, tolerance), case.input["budget_kwh"], facts["q"])
    if found is None:
        return None
    return found.energy - case.input["budget_kwh"] if needs else found.id


def _min_energy(case: Case) -> Facts:
    return _chosen(case.plan(min_quality=case.input["target_q"], objective="min_energy"))


def _both(case: Case) -> Facts:
    return _chosen(case.plan(budget_kwh=case.input["budget_kwh"], min_quality=case.input["target_q"]))


def _per_student(case: Case) -> Facts:
    table = case.observations(case.input.get("candidates") or case.of_size(case.input["size_b"])).table
    whole = "full" in case.input.get("scope", "full")
    rows = [
        row | {"per_student_kwh": per_student_kwh(row, case.input["reuse_n"], whole=whole)} for row in table.to_dicts()
    ]
    known = pl.col("quality").is_not_null() & pl.col("per_student_kwh").is_not_null()
    request = PlanRequest(objective="min_energy")
    ranked = rank(pl.DataFrame(rows, infer_schema_length=None).with_columns(known.alias("feasible")), request)
    tie = tied(ranked, request)
    facts: Facts = {"kwh": {row["id"]: row["per_student_kwh"] for row in rows}}
    facts["recommended"] = ranked["id"][0] if ranked.height else None
    return facts | {"tie": tie[0] if tie else None, "tie_break": tie[1] if tie else None}


def _reuse_choice(case: Case) -> Facts:
    ids = case.input.get("candidates") or case.of_size(case.input["size_b"])
    n = case.input["reuse_n"]
    result = case.plan(ids, objective="min_energy")
    facts = _chosen(result) | {"kwh": _per_student(case)["kwh"]}
    if result.runner_up is not None:
        saving = result.runner_up["per_student_kwh"] - facts["energy_kwh"]
        facts |= {"saving_per_student_kwh": saving, "saving_total_kwh": saving * n}
    return facts | _quality_aware(case, facts["recommended"])


def _quality_aware(case: Case, recommended: str | None) -> Facts:
    """The candidate of any size that dominates the choice at a fixed size, and the rule that says why."""
    if recommended is None:
        return {}
    better = dominated_by([point(c) for c in case.plan(list(case.fixture)).candidates if c["quality"] is not None])
    name = better.get(recommended, [recommended])[0]
    floor = case.fixture[name]["q"]
    result = case.plan(list(case.fixture), objective="min_energy", min_quality=floor)
    reasons = result.recommendation.reasons if result.recommendation else ()
    why = [reason.text for reason in reasons if reason.rule == "size_dominates"]
    return {"quality_aware_recommended": name, "reason": why[-1] if why else None}


def _students(case: Case) -> Facts:
    names = case.input.get("candidates") or case.of_size(case.input["size_b"])
    rows = case.observations(names).table.to_dicts()
    budget = finite(float(case.input["program_budget_kwh"]), "program_budget_kwh", at_least=0)
    found = students_under_program_budget(rows, budget, case.input.get("teacher_paid_once", True))
    per_method = {entry["id"]: {"students": entry["students"], "kwh": entry["kwh"]} for entry in found}
    rated = {row["id"] for row in rows if row["quality"] is not None}
    best = next((entry["id"] for entry in found if entry["students"] and entry["id"] in rated), None)
    return {"per_method": per_method, "recommended": best}


def _lifecycle(case: Case) -> Facts:
    served, rates = case.input["serving_tokens"], case.input["j_per_token"]
    observations = case.observations(list(rates), j_per_served_token=rates)
    request = PlanRequest(
        serve_tokens=served,
        min_quality=case.input.get("target_q"),
        objective="min_energy",
        reuse_n=case.input.get("reuse_n"),
    )
    result = plan(request, observations)
    facts = _chosen(result)
    energy = {c["id"]: c["lifecycle_kwh"] for c in result.candidates}
    return facts | {"lifecycle_kwh": energy}


def _keep_teacher(case: Case) -> Facts:
    i = case.input
    name = i["candidate"]
    training = case.plan([name], objective="min_energy").candidates[0]["per_student_kwh"]
    teacher = lifecycle_kwh(0.0, i["teacher_j_per_token"], i["serving_tokens"])
    student = lifecycle_kwh(training, i["j_student"], i["serving_tokens"])
    best = name if student < teacher else "teacher"
    return {
        "teacher_only_kwh": teacher,
        "student_kwh": student,
        "recommended": best,
        "saving_kwh": abs(teacher - student),
    }


def _carbon(case: Case) -> Facts:
    i = case.input
    scope = "facility" if i.get("energy_scope", "it").lower().startswith("facility") else "it"
    settings = {
        "co2e_kg": i["budget_kgco2e"],
        "intensity": i.get("grid_g_per_kwh"),
        "region": i.get("region") if i.get("grid_g_per_kwh") is None else None,
        "pue": i.get("pue"),
        "energy_scope": scope,
    }
    result, grid = case.plan(**settings), grids(PlanRequest(**settings)).main
    facts = _chosen(result) | {"pue_applied": grid.pue}
    allowed = grid.allowed_kwh(i["budget_kgco2e"])
    facts |= {"allowed_it_kwh": allowed, "allowed_facility_kwh": allowed * grid.pue if allowed is not None else None}
    if result.recommendation is not None:
        p = result.recommendation.predicted
        facts |= {"it_kwh": p.per_student_kwh, "facility_kwh": p.facility_kwh, "kgco2e": p.co2e_kg}
    if result.cheapest is not None:
        facts["cheapest_kgco2e"] = result.cheapest["co2e_kg"]
    for step in result.relaxations:
        if step["limit"] == "co2e_kg":
            facts["shortfall_kgco2e"] = step["by"]
    notes = [note.text for note in result.warnings if note.code == "pue_in_energy"]
    return facts | {"note": notes[0].split(":")[0] if notes else None}


def _gpu_hours(case: Case) -> Facts:
    i = case.input
    result = case.plan(gpu_hours=i["budget_gpu_hours"], mean_gpu_w=i["mean_gpu_w"], gpus=i.get("gpus", 1))
    facts = _chosen(result) | {"allowed_kwh": allowed_kwh_of_gpu_hours(i["budget_gpu_hours"], i["mean_gpu_w"])}
    energy = facts["energy_kwh"]
    facts["gpu_hours"] = gpu_hours(energy, i["mean_gpu_w"]) if energy is not None else None
    if "cheapest_kwh" in facts:
        facts["cheapest_gpu_hours"] = gpu_hours(facts["cheapest_kwh"], i["mean_gpu_w"])
    facts["shortfall_gpu_hours"] = next((s["by"] for s in result.relaxations if s["limit"] == "gpu_hours"), None)
    facts["wall_hours"] = facts["gpu_hours"] / i.get("gpus", 1) if energy is not None else None
    return facts


def _stage_regions(case: Case) -> Facts:
    i = case.input
    result = case.plan(
        intensity=i["other_region_g"], teacher_intensity=i["teacher_region_g"], pue=i.get("pue"), objective="min_energy"
    )
    carbon = {c["id"]: c["co2e_kg"] for c in result.candidates}
    energy = {c["id"]: c["per_student_kwh"] for c in result.candidates}

    def least(values: dict[str, float | None]) -> str | None:
        return min(((value, name) for name, value in values.items() if value is not None), default=(None, None))[1]

    return {"kgco2e": carbon, "lowest_carbon": least(carbon), "lowest_energy": least(energy)}


def _frontier(case: Case) -> Facts:
    names = [point.id for point in frontier(case.points, case.input.get("eps_q", 0.0))]
    return {"frontier": names, "dominated_by": {name: sorted(by) for name, by in dominated_by(case.points).items()}}


def _marginal(case: Case) -> Facts:
    points = [point(c) for c in case.plan(case.input["frontier"]).candidates if c["quality"] is not None]
    return {"q_per_kwh": marginal_quality(points)}


def _missing(case: Case) -> Facts:
    result = case.plan(budget_kwh=case.input.get("budget_kwh"), min_quality=case.input.get("target_q"))
    known = {c["id"]: c["quality"] for c in result.candidates}
    return _chosen(result) | {"unrated_not_zero": all(known[name] is None for name in result.unrated)}


ANSWERS: dict[str, Callable[[Case], Facts]] = {
    "fixture": _fixture,
    "max_quality_under_energy_budget": _max_quality,
    "min_energy_for_quality": _min_energy,
    "both_constraints": _both,
    "per_student_energy": _per_student,
    "reuse_choice": _reuse_choice,
    "reuse_choice_13b": _reuse_choice,
    "max_students_under_program_budget": _students,
    "lifecycle_choice": _lifecycle,
    "lifecycle_choice_with_keep_teacher": _keep_teacher,
    "carbon_budget": _carbon,
    "gpu_hours_budget": _gpu_hours,
    "stage_regions": _stage_regions,
    "frontier": _frontier,
    "frontier_eps": _frontier,
    "marginal": _marginal,
    "missing_quality": _missing,
}
"""Kind of case: its function."""
