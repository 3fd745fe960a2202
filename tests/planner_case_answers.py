"""One function for each kind of planner case: what the public functions of `planners` answer to its input.

No expected number is in here. `ANSWERS[kind](case)` returns every fact that a case of the kind may ask for; facts whose
names hold a number (`next_upgrade_eps_0.02`) are made from the names that are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from kdwatch.rundir.errors import UsageProblem
from planners import PlanRequest, PlanResult, plan
from planners.breakeven import lifecycle_kwh, reuse_break_even, reuse_interval, serving_break_even
from planners.carbon import allowed_kwh_of_gpu_hours, emissions_kg, gpu_hours, grids
from planners.costmodel import power_law, straight_line
from planners.forecast import forecast, forecast_carbon_kg, forecast_run, guard, naive_final
from planners.frontier import Point, dominated_by, frontier, hypervolume, marginal_quality, next_upgrade
from planners.noise import Uncertain, chance, p_dominates, p_greater
from planners.observations import Observations
from planners.paper import reuse_range, token_denominator_millions
from planners.program import per_student_kwh, students_under_program_budget
from planners.quantities import energy_kwh, from_kwh, g_per_kwh_from_lb_per_mwh
from planners.ranking import tied
from planners.rowcheck import check_energy_and_quality, fill_total
from planners.schema import make_table, regime_of

Facts = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One case and the candidates that it may name."""

    input: dict[str, Any]
    asked: tuple[str, ...]
    fixture: dict[str, dict[str, Any]]

    def observations(self, ids: Iterable[str] | None = None, **columns: dict[str, float]) -> Observations:
        """Candidates by id (default: those of the input, else all) with further columns by id."""
        names = list(ids or self.input.get("candidates") or self.fixture)
        rows = [_row(name, self.fixture[name]) | {c: v.get(name) for c, v in columns.items()} for name in names]
        return Observations(make_table(rows))

    def plan(self, ids: Iterable[str] | None = None, **request: Any) -> PlanResult:
        """The plan for this case's candidates."""
        wanted = {"reuse_n": self.input.get("reuse_n", 1)} | request
        return plan(PlanRequest(**wanted), self.observations(ids))

    @cached_property
    def points(self) -> list[Point]:
        """The candidates on the plane at the case's reuse."""
        return [_point(c) for c in self.plan().candidates if c["quality"] is not None]

    def of_size(self, size_b: float) -> list[str]:
        """Names of the candidates of one size."""
        return [name for name, c in self.fixture.items() if c["size_b"] == size_b]


def _row(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return fill_total(
        {
            "id": name,
            "regime": regime_of(given["method"]),
            "student_params_b": given["size_b"],
            "preprocess_kwh": given.get("pre"),
            "teacher_kwh": given.get("teacher"),
            "student_kwh": given.get("student"),
            "eval_kwh": given.get("eval"),
            "total_kwh": given.get("total"),
            "quality": given.get("q"),
            "basis": "measured",
        }
    )


def _point(candidate: dict[str, Any]) -> Point:
    return Point(candidate["id"], candidate["per_student_kwh"], candidate["quality"])


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
    codes = [note.code for note in result.warnings]
    return facts | {"warning": "gain_within_noise" if "gain_within_noise" in codes else None} | _relaxed(result)


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
    totals = {name: _row(name, given).get("total_kwh") for name, given in candidates.items()}
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


def _reuse(case: Case) -> Facts:
    i = case.input
    found = reuse_break_even(i["teacher_kwh"], i["student_baseline_kwh"], i["student_distill_kwh"])
    return {
        "status": found.verdict,
        "n_star": found.n_star,
        "first_n_not_worse": found.first_n_not_worse,
        "first_n_strictly_better": found.first_n_strictly_better,
    }


def _per_student(case: Case) -> Facts:
    table = case.observations(case.input.get("candidates") or case.of_size(case.input["size_b"])).table
    whole = "full" in case.input.get("scope", "full")
    rows = [
        row | {"per_student_kwh": per_student_kwh(row, case.input["reuse_n"], whole=whole)} for row in table.to_dicts()
    ]
    ranked = pl.DataFrame(rows, infer_schema_length=None).filter(
        pl.col("quality").is_not_null() & pl.col("per_student_kwh").is_not_null()
    )
    ranked = ranked.sort([pl.col("per_student_kwh").round_sig_figs(11), "quality"], descending=[False, True])
    tie = tied(ranked, PlanRequest(objective="min_energy"))
    facts: Facts = {"kwh": {row["id"]: row["per_student_kwh"] for row in rows}, "recommended": ranked["id"][0]}
    return facts | {"tie": tie[0] if tie else None, "tie_break": tie[1] if tie else None}


def _reuse_choice(case: Case) -> Facts:
    ids = case.input.get("candidates") or case.of_size(case.input["size_b"])
    n = case.input["reuse_n"]
    result = case.plan(ids, objective="min_energy")
    kwh = {c["id"]: c["per_student_kwh"] for c in result.candidates}
    facts = _chosen(result) | {"kwh": kwh}
    if result.runner_up is not None:
        saving = result.runner_up["per_student_kwh"] - facts["energy_kwh"]
        facts |= {"saving_per_student_kwh": saving, "saving_total_kwh": saving * n}
    return facts | _quality_aware(case, facts["recommended"])


def _quality_aware(case: Case, recommended: str) -> Facts:
    """The candidate of any size that dominates the choice at a fixed size, and the rule that says why."""
    better = dominated_by([_point(c) for c in case.plan(list(case.fixture)).candidates if c["quality"] is not None])
    name = better.get(recommended, [recommended])[0]
    floor = case.fixture[name]["q"]
    result = case.plan(list(case.fixture), objective="min_energy", min_quality=floor)
    reasons = result.recommendation.reasons if result.recommendation else ()
    why = [reason.text for reason in reasons if reason.rule == "size_dominates"]
    return {"quality_aware_recommended": name, "reason": why[-1] if why else None}


def _students(case: Case) -> Facts:
    names = case.input.get("candidates") or case.of_size(case.input["size_b"])
    rows = [row for row in case.observations(names).table.to_dicts() if row["quality"] is not None]
    found = students_under_program_budget(
        rows, case.input["program_budget_kwh"], case.input.get("teacher_paid_once", True)
    )
    per_method = {entry["id"]: {"students": entry["students"], "kwh": entry["kwh"]} for entry in found}
    return {"per_method": per_method, "recommended": found[0]["id"] if found[0]["students"] else None}


def _serving(case: Case) -> Facts:
    found = serving_break_even(case.input["extra_train_kwh"], case.input["j_ref"], case.input["j_student"])
    threshold = found.t_star_tokens if found.verdict == "reversed" else None
    return {"status": found.verdict, "t_star_tokens": found.t_star_tokens, "better_below_tokens": threshold}


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
        "intensity": i["grid_g_per_kwh"],
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
    facts["wall_hours"] = facts["gpu_hours"] / i.get("gpus", 1) if energy is not None else None
    return facts


def _convert(case: Case) -> Facts:
    if "lb_per_mwh" in case.input:
        return {"g_per_kwh": g_per_kwh_from_lb_per_mwh(case.input["lb_per_mwh"])}
    units = {"kwh": "kWh", "wh": "Wh", "mj": "MJ", "j": "J"}
    (name, value), *_ = [(k, v) for k, v in case.input.items() if k in units]
    kwh = energy_kwh(f"{value!r} {units[name]}")
    facts: Facts = dict(from_kwh(kwh, case.input.get("tokens")))
    for asked in case.asked:
        if match := re.fullmatch(r"j_per_token_at_(\d+)M", asked):
            facts[asked] = from_kwh(kwh, int(match[1]) * 1e6)["j_per_token"]
    return facts


def _parse(case: Case) -> Facts:
    values: list[float | None] = []
    errors: list[int] = []
    code: str | None = None
    for index, text in enumerate(case.input["text"]):
        try:
            values.append(energy_kwh(text))
        except UsageProblem as problem:
            values.append(None)
            errors.append(index)
            code = code or getattr(problem, "code", "invalid")
    return {"kwh": values, "error_index": errors, "error": code}


def _stage_regions(case: Case) -> Facts:
    i = case.input
    result = case.plan(
        intensity=i["other_region_g"], teacher_intensity=i["teacher_region_g"], pue=i.get("pue"), objective="min_energy"
    )
    carbon = {c["id"]: c["co2e_kg"] for c in result.candidates}
    energy = {c["id"]: c["per_student_kwh"] for c in result.candidates}
    return {
        "kgco2e": carbon,
        "lowest_carbon": min(carbon, key=carbon.__getitem__),
        "lowest_energy": min(energy, key=energy.__getitem__),
    }


def _frontier(case: Case) -> Facts:
    names = [point.id for point in frontier(case.points, case.input.get("eps_q", 0.0))]
    return {"frontier": names, "dominated_by": {name: sorted(by) for name, by in dominated_by(case.points).items()}}


def _hypervolume(case: Case) -> Facts:
    reference = case.input.get("reference")
    points = [(e, q) for e, q in case.input["points"]]
    return {"hypervolume": hypervolume(points, tuple(reference) if reference else None)}


def _marginal(case: Case) -> Facts:
    points = [_point(c) for c in case.plan(case.input["frontier"]).candidates]
    return {"q_per_kwh": marginal_quality(points)}


def _missing(case: Case) -> Facts:
    result = case.plan(budget_kwh=case.input.get("budget_kwh"), min_quality=case.input.get("target_q"))
    known = {c["id"]: c["quality"] for c in result.candidates}
    return _chosen(result) | {"unrated_not_zero": all(known[name] is None for name in result.unrated)}


def _invalid(case: Case) -> Facts:
    def number(value: Any) -> float | None:
        return None if value is None else float(value)

    verdicts = [
        check_energy_and_quality(number(r.get("energy_kwh")), number(r.get("q"))) for r in case.input.get("runs", [])
    ]
    notes = [v.note for v in verdicts if v.note]
    facts: Facts = {
        "rejected": [index for index, v in enumerate(verdicts) if not v.accepted],
        "accepted": [index for index, v in enumerate(verdicts) if v.accepted],
        "accepted_with_note": [index for index, v in enumerate(verdicts) if v.accepted and v.note],
        "note": notes[0] if notes else None,
    }
    for name, field in (("budget", "budget_kwh"), ("target_q", "min_quality"), ("reuse_n", "reuse_n")):
        given = case.input.get(field, case.input.get(name))
        try:
            PlanRequest(**{field: given if given is None else float(given)}).checked()  # type: ignore[arg-type]
            facts[name] = "accepted"
        except UsageProblem:
            facts[name] = "rejected"
    return facts


def _probability(case: Case) -> Facts:
    def uncertain(given: dict[str, Any]) -> Uncertain:
        energy = given.get("kwh")
        if energy is None:
            energy = case.plan([given["name"]], objective="min_energy").candidates[0]["per_student_kwh"]
        return Uncertain(given["name"], energy, given["q"], given.get("sd_kwh", 0.0), given["sd_q"])

    a, b = uncertain(case.input["a"]), uncertain(case.input["b"])
    return {
        "p_q_a_greater": p_greater(a.quality, a.quality_sd, b.quality, b.quality_sd),
        "p_q_b_greater": p_greater(b.quality, b.quality_sd, a.quality, a.quality_sd),
        "p_b_dominates_a": p_dominates(b, a),
        "p_a_dominates_b": p_dominates(a, b),
    }


def _chance(case: Case) -> Facts:
    i = case.input
    runs = next((int(i[name]) for name in ("n", "runs", "repeats", "n_runs") if name in i), None)
    found = chance(
        i["mean_kwh"], i["sd_kwh"], i["budget_kwh"], i["confidence"], sd_known=i.get("sd_known", True), n=runs
    )
    return {"p_within": found.p_within, "safe": found.safe, "budget_needed_kwh": found.budget_needed_kwh}


def _n_star_interval(case: Case) -> Facts:
    i = case.input
    energies = (i["teacher_kwh"], i["student_baseline_kwh"], i["student_distill_kwh"])
    found, point = reuse_interval(*energies, i["cv_each"], i["confidence"]), reuse_break_even(*energies)
    return {
        "n_star": point.n_star,
        "interval": [found.low, found.high],
        "bounded": found.bounded,
        "p_never": found.p_never,
        "low": found.low,
        "high": found.high,
    }


def _forecast(case: Case) -> Facts:
    points, total = [(s, e) for s, e in case.input["steps_kwh"]], case.input["total_steps"]
    found = forecast(points, total)
    facts: Facts = {
        "status": found.status,
        "final_kwh": found.final,
        "naive_cumulative_kwh": naive_final(points, total),
    }
    if found.final is not None and "true_final_kwh" in case.input:
        facts["abs_error_max_rel"] = abs(found.final / case.input["true_final_kwh"] - 1.0)
    return facts


def _guard(case: Case) -> Facts:
    points, total = [(s, e) for s, e in case.input["steps_kwh"]], case.input["total_steps"]
    run = forecast_run(0.0, {"stage": forecast(points, total)}, {})
    decision, naive = guard(run, case.input["budget_kwh"], stop=True), naive_final(points, total)
    return {
        "trip": decision.action == "stop",
        "warn": decision.action != "none",
        "p_over": decision.p_over,
        "forecast_kwh": run.final,
        "naive_would_trip": naive is not None and naive > case.input["budget_kwh"],
        "naive_kwh": naive,
    }


def _forecast_carbon(case: Case) -> Facts:
    i = case.input
    total = forecast_carbon_kg(
        i["done"]["kgco2e"], i["remaining_kwh"], i["remaining_grid_g_per_kwh"], i.get("pue", 1.0)
    )
    left = emissions_kg([(i["remaining_kwh"], i["remaining_grid_g_per_kwh"])], i.get("pue", 1.0))
    return {"total_kgco2e": total, "remaining_kgco2e": left}


def _size(case: Case) -> Facts:
    i = case.input
    known, size = [(p, e) for p, e in i["known"]], i["predict_b"]
    student, pre = straight_line(known, size), i.get("pre", 0.0)
    evaluation = straight_line(_evaluations(case, [p for p, _ in known]), size) if i.get("eval_interp") else 0.0
    total = pre + student + evaluation
    facts: Facts = {"student_kwh": student, "eval_kwh": evaluation, "total_kwh": total}
    facts |= {"power_law_kwh": power_law(known, size), "power_law_total_kwh": pre + power_law(known, size) + evaluation}
    if "measured_total_kwh" in i:
        facts["error_vs_measured_pct"] = (total / i["measured_total_kwh"] - 1.0) * 100.0
    return facts


def _evaluations(case: Case, sizes: list[float]) -> list[tuple[float, float]]:
    """Evaluation energy at the smallest and largest size given: the fixture's smallest and largest SFT student's."""
    known = sorted(
        (c["size_b"], c["eval"])
        for c in case.fixture.values()
        if regime_of(c["method"]) == "sft" and c["eval"] is not None
    )
    return [(min(sizes), known[0][1]), (max(sizes), known[-1][1])]


def _size_n_star(case: Case) -> Facts:
    i = case.input
    regime = regime_of(i["method"])

    def student(method: str | None) -> float:
        known = [
            (c["size_b"], c["student"])
            for c in case.fixture.values()
            if regime_of(c["method"]) == method and c["student"] is not None
        ]
        return straight_line(known, i["size_b"])

    found = reuse_break_even(i["teacher_kwh"], student("sft"), student(regime))
    published = reuse_range(regime or "", i["size_b"])
    return {
        "n_star_linear": found.n_star,
        "paper_range": list(published) if published else None,
        "status": found.verdict,
    }


ANSWERS: dict[str, Callable[[Case], Facts]] = {
    "fixture": _fixture,
    "max_quality_under_energy_budget": _max_quality,
    "min_energy_for_quality": _min_energy,
    "both_constraints": _both,
    "break_even_reuse": _reuse,
    "per_student_energy": _per_student,
    "reuse_choice": _reuse_choice,
    "reuse_choice_13b": _reuse_choice,
    "max_students_under_program_budget": _students,
    "inference_break_even": _serving,
    "lifecycle_choice": _lifecycle,
    "lifecycle_choice_with_keep_teacher": _keep_teacher,
    "carbon_budget": _carbon,
    "gpu_hours_budget": _gpu_hours,
    "unit_conversion": _convert,
    "unit_parse": _parse,
    "stage_regions": _stage_regions,
    "frontier": _frontier,
    "frontier_eps": _frontier,
    "hypervolume": _hypervolume,
    "marginal": _marginal,
    "missing_quality": _missing,
    "invalid": _invalid,
    "probability": _probability,
    "chance_constraint": _chance,
    "n_star_interval": _n_star_interval,
    "forecast": _forecast,
    "budget_guard": _guard,
    "forecast_carbon_variable_grid": _forecast_carbon,
    "forecast_single_point": _forecast,
    "size_interpolation": _size,
    "size_interpolation_n_star": _size_n_star,
}
"""Kind of case: its function."""
