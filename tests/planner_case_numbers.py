"""Planner cases that one formula answers: break-even, units, noise, forecasts, sizes. No expected number is in here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from planner_case_input import Case, Facts, number

from kdwatch.rundir.errors import UsageProblem
from planners import PlanRequest
from planners.breakeven import reuse_break_even, reuse_interval, serving_break_even
from planners.carbon import emissions_kg
from planners.costmodel import power_law, straight_line
from planners.forecast import forecast, forecast_carbon_kg, forecast_run, guard, naive_final
from planners.frontier import hypervolume
from planners.noise import Uncertain, chance, p_dominates, p_greater
from planners.paper import reuse_range
from planners.quantities import energy_kwh, from_kwh, g_per_kwh_from_lb_per_mwh
from planners.recommend import DEFAULT_CONFIDENCE
from planners.rowcheck import check_energy_and_quality
from planners.schema import regime_of


def _reuse(case: Case) -> Facts:
    i = case.input
    found = reuse_break_even(i["teacher_kwh"], i["student_baseline_kwh"], i["student_distill_kwh"])
    return {
        "status": found.verdict,
        "n_star": found.n_star,
        "first_n_not_worse": found.first_n_not_worse,
        "first_n_strictly_better": found.first_n_strictly_better,
    }


def _serving(case: Case) -> Facts:
    found = serving_break_even(case.input["extra_train_kwh"], case.input["j_ref"], case.input["j_student"])
    threshold = found.t_star_tokens if found.verdict == "reversed" else None
    return {"status": found.verdict, "t_star_tokens": found.t_star_tokens, "better_below_tokens": threshold}


def _convert(case: Case) -> Facts:
    if "lb_per_mwh" in case.input:
        return {"g_per_kwh": g_per_kwh_from_lb_per_mwh(case.input["lb_per_mwh"])}
    if "g_per_kwh" in case.input:
        return {"lb_per_mwh": case.input["g_per_kwh"] / g_per_kwh_from_lb_per_mwh(1.0)}
    units = {"kwh": "kWh", "wh": "Wh", "mj": "MJ", "j": "J"}
    (name, value), *_ = [(k, v) for k, v in case.input.items() if k in units]
    kwh = energy_kwh(f"{value!r} {units[name]}")
    facts: Facts = dict(from_kwh(kwh, case.input.get("tokens")))
    for asked in case.asked:
        if match := re.fullmatch(r"j_per_token_at_([\d.]+)M", asked):
            facts[asked] = from_kwh(kwh, float(match[1]) * 1e6)["j_per_token"]
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


def _hypervolume(case: Case) -> Facts:
    sense = case.input.get("sense", ["min", "max"])
    if sense not in (["min", "max"], ["max", "min"]):
        raise UsageProblem(f"sense: {sense} is unknown; energy is least, quality highest")
    order = 1 if sense == ["min", "max"] else -1
    points = [tuple(number(value) for value in pair[::order]) for pair in case.input["points"]]
    reference = tuple((case.input.get("reference") or [])[::order])
    return {"hypervolume": hypervolume(points, reference or None)}  # type: ignore[arg-type]


def _invalid(case: Case) -> Facts:
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
            PlanRequest(**{field: number(given)}).checked()  # type: ignore[arg-type]
            facts[name] = "accepted"
        except UsageProblem:
            facts[name] = "rejected"
    return facts


def _probability(case: Case) -> Facts:
    a, b = (_uncertain(case, case.input[side]) for side in ("a", "b"))
    facts: Facts = {
        "p_q_a_greater": p_greater(a.quality, a.quality_sd, b.quality, b.quality_sd),
        "p_q_b_greater": p_greater(b.quality, b.quality_sd, a.quality, a.quality_sd),
    }
    if math.isfinite(a.energy) and math.isfinite(b.energy):
        facts |= {"p_b_dominates_a": p_dominates(b, a), "p_a_dominates_b": p_dominates(a, b)}
    return facts


def _uncertain(case: Case, given: dict[str, Any]) -> Uncertain:
    """One side; what the input does not say is the candidate's own. An energy that nothing says is NaN."""
    name = given.get("name", "")
    known = case.plan([name], objective="min_energy").candidates[0] if name in case.fixture else {}
    energy = given.get("kwh", known.get("per_student_kwh"))
    quality = given.get("q", known.get("quality"))
    if quality is None:
        raise UsageProblem(f"{name}: neither the input nor the table says its quality")
    energy = math.nan if energy is None else energy
    return Uncertain(name, energy, quality, given.get("sd_kwh", 0.0), given.get("sd_q", 0.0))


def _chance(case: Case) -> Facts:
    i = case.input
    runs = next((int(i[name]) for name in ("n", "runs", "repeats", "n_runs", "n_repeats") if name in i), None)
    sd_known = i.get("sd_known", True)
    if not sd_known and (runs is None or runs < 2):
        raise UsageProblem("a standard deviation that is estimated needs the number of runs, 2 or more")
    level, mean = i.get("confidence", DEFAULT_CONFIDENCE), i["mean_kwh"]
    sd = i["sd_kwh"] if "sd_kwh" in i else i["cv"] * mean
    found = chance(mean, sd, i["budget_kwh"], level, sd_known=sd_known, n=runs)
    return {"p_within": found.p_within, "safe": found.safe, "budget_needed_kwh": found.budget_needed_kwh}


def _n_star_interval(case: Case) -> Facts:
    i = case.input
    energies = (i["teacher_kwh"], i["student_baseline_kwh"], i["student_distill_kwh"])
    level = i.get("confidence", DEFAULT_CONFIDENCE)
    found, point = reuse_interval(*energies, i["cv_each"], level), reuse_break_even(*energies)
    return {
        "status": point.verdict,
        "n_star": point.n_star,
        "interval": [found.low, found.high],
        "bounded": found.bounded,
        "p_never": found.p_never,
        "low": found.low,
        "high": found.high,
    }


def _steps(case: Case) -> list[tuple[float, float]]:
    """Cumulative (step, kWh) points; those that hold no number are left out."""
    pairs = [(number(step), number(energy)) for step, energy in case.input["steps_kwh"]]
    return [(s, e) for s, e in pairs if s is not None and e is not None and math.isfinite(s) and math.isfinite(e)]


def _forecast(case: Case) -> Facts:
    points, total = _steps(case), case.input["total_steps"]
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
    points, total = _steps(case), case.input["total_steps"]
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
    pue = i.get("pue", 1.0)
    done = i["done"].get("kgco2e")
    if done is None:
        done = emissions_kg([(i["done"]["kwh"], i["done"]["grid_g_per_kwh"])], pue)
    total = forecast_carbon_kg(done, i["remaining_kwh"], i["remaining_grid_g_per_kwh"], pue)
    left = emissions_kg([(i["remaining_kwh"], i["remaining_grid_g_per_kwh"])], pue)
    return {"total_kgco2e": total, "remaining_kgco2e": left}


def _size(case: Case) -> Facts:
    i = case.input
    known, size = [(p, e) for p, e in i["known"]], i["predict_b"]
    if len({p for p, _ in known}) < 2:
        raise UsageProblem("one size gives no slope; measure a second one")
    student, pre = straight_line(known, size), i.get("pre", 0.0) + i.get("teacher", 0.0)
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

    teacher = i.get("teacher_kwh")
    if teacher is None:
        teacher = next(c["teacher"] for c in case.fixture.values() if regime_of(c["method"]) == regime)
    found = reuse_break_even(teacher, student("sft"), student(regime))
    published = reuse_range(regime or "", i["size_b"])
    return {
        "n_star_linear": found.n_star,
        "paper_range": list(published) if published else None,
        "status": found.verdict,
    }


ANSWERS: dict[str, Callable[[Case], Facts]] = {
    "break_even_reuse": _reuse,
    "inference_break_even": _serving,
    "unit_conversion": _convert,
    "unit_parse": _parse,
    "hypervolume": _hypervolume,
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
