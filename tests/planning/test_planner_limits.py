"""Limits on the study's table: what is chosen, what binds, what is left or missing. Numbers follow from the table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdwatch.cli.plan_text import plan_lines
from kdwatch.rundir.errors import UsageProblem
from planners import PlanRequest, PlanResult, plan
from planners.observations import Observations, load
from planners.paper import table as paper_table
from planners.wording import energy

CONTRACT = {
    "schema", "feasible", "objective", "limits", "binding_limit", "slack_kwh", "reuse_n", "serve_tokens",
    "interval_level",
    "warnings", "recommendation", "tie", "runner_up", "rejected", "unrated", "cheapest", "shortfall_kwh", "relaxations",
    "frontier", "break_even",
}  # fmt: skip
PREDICTED = {
    "total_kwh", "total_kwh_low", "total_kwh_high", "per_student_kwh", "quality", "quality_low", "quality_high",
    "j_per_token", "stages_kwh", "p_within",
}  # fmt: skip
STUDY = load(["paper"])


def ask(**request: Any) -> PlanResult:
    return plan(PlanRequest(**request), STUDY)


def chosen(result: PlanResult) -> str | None:
    return result.recommendation.id if result.recommendation else None


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ({"budget_kwh": 20}, "SFT-7B"),
        ({"budget_kwh": 19.5}, "SFT-7B"),
        ({"budget_kwh": 19.49}, "KD-1B"),
        ({"budget_kwh": 7}, "SFT-1B"),
        ({"budget_kwh": 7, "reuse_n": 10}, "KD-1B"),
        ({"budget_kwh": 17, "quality_tolerance": 0.02}, "SFT-1B"),
        ({"budget_kwh": 20, "confidence": 0.9}, "KD-1B"),
        ({"min_quality": 0.8}, "SFT-7B"),
        ({}, "SFT-1B"),
        ({"budget_kwh": 50, "objective": "min_energy"}, "SFT-1B"),
        ({"gpu_hours": 50, "mean_gpu_w": 400}, "SFT-7B"),
        ({"co2e_kg": 5, "intensity": 56.039, "pue": 1.2}, "SFT-13B"),
        ({"co2e_kg": 5, "intensity": 661.926, "pue": 1.5}, None),
        ({"co2e_kg": 5, "intensity": 661.926, "pue": 1.5, "energy_scope": "facility"}, "SFT-1B"),
        ({"program_budget_kwh": 140, "students": 20}, "KD-1B"),
        ({"budget_kwh": 6, "teacher_outputs": "cached"}, "KD-1B"),
        ({"budget_kwh": 17, "teacher": "train", "teacher_training_kwh": 100}, "SFT-1B"),
        # 19.5 kWh x 0.30 = 5.85, and 19.5 / 0.4 kW = 48.75 h x 2 = 97.5
        ({"cost": 104, "energy_price": 0.3, "gpu_hour_price": 2, "mean_gpu_w": 400}, "SFT-7B"),
        ({"cost": 103, "energy_price": 0.3, "gpu_hour_price": 2, "mean_gpu_w": 400}, "KD-1B"),
    ],
)
def test_choice(request_: dict[str, Any], name: str | None) -> None:
    assert chosen(ask(**request_)) == name


def test_every_key_of_the_contract_is_there_and_is_plain_json() -> None:
    for request in ({"budget_kwh": 20}, {"budget_kwh": 0}, {"min_quality": 2.0}, {"budget_kwh": 30, "predict": True}):
        made = ask(**request).to_json()
        assert made.keys() >= CONTRACT
        json.dumps(made, allow_nan=False)
        if made["recommendation"]:
            assert made["recommendation"].keys() >= {
                "id",
                "regime",
                "student_params_b",
                "hyperparameters",
                "predicted",
                "basis",
                "reasons",
            }
            assert made["recommendation"]["predicted"].keys() >= PREDICTED
            assert all(reason.keys() >= {"rule", "text", "values"} for reason in made["recommendation"]["reasons"])
        assert all(entry.keys() >= {"id", "per_student_kwh", "quality", "membership"} for entry in made["frontier"])
        assert all(
            entry.keys() >= {"id", "n_star", "n_verdict", "t_star_tokens", "t_verdict"} for entry in made["break_even"]
        )


def test_twenty_kwh() -> None:
    result = ask(budget_kwh=20)
    assert result.slack_kwh == pytest.approx(0.5)
    assert result.binding_limit == "budget_kwh"
    assert result.unrated == ["Syn-1B"]
    assert result.runner_up is not None and result.runner_up["id"] == "KD-1B"
    assert {entry["id"] for entry in result.rejected} == set(paper_table()["id"]) - {"SFT-7B"}
    assert result.choice_at_confidence is not None and result.choice_at_confidence["id"] == "KD-1B"
    # an assumed spread of 3 %: P(Z <= 0.5 / 0.585)
    assert result.recommendation is not None
    assert result.recommendation.predicted.p_within == pytest.approx(0.8036, abs=1e-3)


@pytest.mark.parametrize(("budget", "short"), [(5, 2.0), (0, 7.0)])
def test_too_little_names_the_cheapest_and_the_shortfall(budget: float, short: float) -> None:
    result = ask(budget_kwh=budget)
    assert not result.feasible and result.recommendation is None
    assert result.cheapest is not None and result.cheapest["id"] == "SFT-1B"
    assert result.cheapest["per_student_kwh"] == pytest.approx(7.0)
    assert result.shortfall_kwh == pytest.approx(short)
    assert result.relaxations == [
        {
            "limit": "budget_kwh",
            "from": budget,
            "to": pytest.approx(7.0),
            "by": pytest.approx(short),
            "candidate": "SFT-1B",
            "text": f"the budget from {energy(budget)} to 7.00 kWh",
        }
    ]


def test_two_limits_are_relaxed_one_at_a_time_or_else_together() -> None:
    alone = {step["limit"]: step for step in ask(budget_kwh=15, min_quality=0.8).relaxations}
    assert alone["budget_kwh"]["to"] == pytest.approx(19.5)
    assert alone["min_quality"]["to"] == pytest.approx(0.69)
    together = ask(budget_kwh=5, co2e_kg=0.1, intensity=100).relaxations
    assert [step["limit"] for step in together] == ["together"]
    assert {step["limit"] for step in together[0]["limits"]} == {"budget_kwh", "co2e_kg"}


def test_quality_out_of_reach_has_no_energy_shortfall() -> None:
    result = ask(min_quality=1.0)
    assert not result.feasible and result.shortfall_kwh is None and result.binding_limit == "min_quality"
    assert result.relaxations[0]["to"] == pytest.approx(0.99)
    assert result.relaxations[0]["candidate"] == "SFT-13B"


def test_the_binding_limit_is_the_one_that_decides() -> None:
    assert ask(budget_kwh=50).binding_limit is None, "everything fits: nothing binds"
    assert ask(budget_kwh=50, co2e_kg=2, intensity=100).binding_limit == "co2e_kg"
    assert ask(budget_kwh=20, co2e_kg=50, intensity=100).binding_limit == "budget_kwh"


def test_gain_within_noise_is_said_only_where_it_is_so() -> None:
    assert "gain_within_noise" in [note.code for note in ask(budget_kwh=17).warnings]
    assert "gain_within_noise" not in [note.code for note in ask(budget_kwh=20).warnings]


def test_ties_go_by_quality_then_stages_then_name(observe) -> None:
    assert ask(reuse_n=10, objective="min_energy").tie == ["KD-1B", "SFT-1B"]
    assert ask(reuse_n=10, objective="min_energy").tie_break == "higher_q -> KD-1B"
    assert ask(reuse_n=10, objective="min_energy").runner_up["why"] == "as cheap as KD-1B, behind it by tie-break"
    assert ask(reuse_n=10, budget_kwh=7).slack_kwh == 0.0
    same = observe(
        {"id": "b", "regime": "kd", "total_kwh": 5.0, "quality": 0.8, "teacher_kwh": 1.0},
        {"id": "c", "total_kwh": 5.0, "quality": 0.8},
        {"id": "d", "total_kwh": 5.0, "quality": 0.8},
    )
    result = plan(PlanRequest(budget_kwh=6), same)
    assert (chosen(result), result.tie, result.tie_break) == ("c", ["b", "c", "d"], "name -> c")
    assert result.runner_up is not None
    assert result.runner_up["why"] == "as good and as cheap as c, behind it by tie-break"


def test_an_unknown_serving_energy_is_not_called_none(observe) -> None:
    rows = observe({"id": "a", "total_kwh": 5.0, "quality": 0.8, "j_per_served_token": 0.1},
                   {"id": "b", "total_kwh": 6.0, "quality": 0.8})  # fmt: skip
    result = plan(PlanRequest(budget_kwh=9, serve_tokens=1e8), rows)
    assert chosen(result) == "a" and result.runner_up is not None
    assert result.runner_up["why"] == "of the same quality as a, and its serving energy is unknown"


def test_regions_by_stage_can_turn_the_ranking_round() -> None:
    carbon = {c["id"]: c["co2e_kg"] for c in ask(intensity=661.926, teacher_intensity=56.039).candidates}
    assert carbon["KD-1B"] == pytest.approx((5.9 * 661.926 + 11 * 56.039) / 1000)
    assert carbon["KD-1B"] < carbon["SFT-1B"]


def test_teacher_in_another_region_needs_the_teacher_s_energy(observe) -> None:
    unknown = observe({"id": "x", "regime": "kd", "total_kwh": 5.0, "teacher_kwh": None, "quality": 0.8})
    with pytest.raises(UsageProblem, match="teacher-region"):
        plan(PlanRequest(co2e_kg=100, intensity=50, teacher_intensity=60), unknown)
    assert chosen(plan(PlanRequest(co2e_kg=100, intensity=50), unknown)) == "x"
    result = plan(PlanRequest(budget_kwh=100, reuse_n=2), unknown)
    assert "unknown" in result.rejected[0]["why"]


def test_serving_ranks_by_lifecycle() -> None:
    result = ask(serve_tokens=1e9, min_quality=0.8)
    energy = {c["id"]: c["lifecycle_kwh"] for c in result.candidates}
    # 0.028 + 7.299·(0.0051 + 0.39/32) = 0.1542 J per token
    assert energy["SFT-7B"] == pytest.approx(19.5 + 1e9 * 0.15418 / 3.6e6, rel=1e-3)
    assert chosen(result) == "SFT-7B"
    against = {e.id: e for e in ask(serve_tokens=1e9, serve_reference="SFT-13B").break_even}
    assert against["SFT-7B"].t_verdict == "immediate"
    assert against["KD-13B"].t_verdict == "never"


def test_scopes_are_kept_apart_and_named(observe) -> None:
    mixed = observe(
        {"id": "whole", "total_kwh": 8.0, "quality": 0.7, "scope": "gpu+cpu"},
        {"id": "gpu-only", "total_kwh": 5.0, "quality": 0.9, "scope": "gpu"},
    )
    result = plan(PlanRequest(budget_kwh=10), mixed)
    assert chosen(result) == "whole"
    assert [entry["id"] for entry in result.rejected] == ["gpu-only"] and "not comparable" in result.rejected[0]["why"]
    assert "mixed_scope" in [note.code for note in result.warnings]
    assert chosen(plan(PlanRequest(budget_kwh=10, scope="gpu"), mixed)) == "gpu-only"
    anyway = plan(PlanRequest(budget_kwh=10, scope="any"), mixed)
    assert chosen(anyway) == "gpu-only" and "mixed_scope" in [note.code for note in anyway.warnings]
    with pytest.raises(UsageProblem, match="no observation has scope"):
        plan(PlanRequest(scope="cpu"), mixed)


def test_nothing_can_be_relaxed_where_no_energy_is_known(observe) -> None:
    """Without the teacher's share the energy at N = 20 is unknown: no relaxation makes it known."""
    unknown = observe({"id": "x", "regime": "kd", "total_kwh": 5.0, "teacher_kwh": None, "quality": 0.8})
    for request in (PlanRequest(reuse_n=20), PlanRequest(reuse_n=20, budget_kwh=1)):
        result = plan(request, unknown)
        assert (result.feasible, result.relaxations, result.cheapest, result.binding_limit) == (False, [], None, None)
        assert "unknown" in result.rejected[0]["why"]


@pytest.mark.parametrize("cost", [0, 3])
def test_what_costs_nothing_is_within_every_cost(cost: float) -> None:
    """At a price of 0 every candidate keeps the limit, and no energy meets it: nothing is left to name."""
    result = ask(cost=cost, energy_price=0)
    assert (chosen(result), result.slack_kwh, result.allowed_kwh) == ("SFT-13B", None, None)
    assert "nan" not in (text := "\n".join(plan_lines(result))) and "inf" not in text.replace("inference", "")
    assert ask(cost=cost, energy_price=0, budget_kwh=20).slack_kwh == pytest.approx(0.5)


@pytest.mark.parametrize("total", [5.0, 4.98])
def test_a_pipeline_that_is_all_teacher_costs_nothing_once_the_output_is_cached(observe, total: float) -> None:
    """5 - 5 kWh is 0, and rounded cells (4.98 of 5) do not make it less: it keeps every limit, with any confidence."""
    rows = observe({"id": "x", "regime": "kd", "total_kwh": total, "teacher_kwh": 5.0, "quality": 0.8},
                   {"id": "s", "total_kwh": 3.0, "quality": 0.7})  # fmt: skip
    for confidence in (None, 0.9):
        request = PlanRequest(gpu_hours=20, mean_gpu_w=400, teacher_outputs="cached", confidence=confidence)
        result = plan(request, rows)
        assert chosen(result) == "x" and result.recommendation is not None
        assert result.recommendation.predicted.per_student_kwh == 0.0
        json.dumps(result.to_json(), allow_nan=False)
        assert "nan" not in "\n".join(plan_lines(result)).lower().split()


def test_settings_of_a_what_if_are_not_called_measured(observe) -> None:
    """The study does not say how long its answers were; a table that does is told apart from what is asked."""
    synthetic = {"id": "s", "regime": "synthetic_sft", "total_kwh": 9.0, "teacher_kwh": 4.0, "quality": 0.8}
    measured = observe(synthetic | {"max_new_tokens": 512.0, "prompts": 7000.0, "alpha": 0.3})
    best = plan(PlanRequest(max_new_tokens=256, prompt_share=0.5), measured).recommendation
    assert best is not None and best.basis == "extrapolated"
    assert best.hyperparameters == {
        "alpha": 0.3, "max_new_tokens": 256.0, "prompts": 3500.0, "source": "measured and what-if"
    }  # fmt: skip
    best = plan(PlanRequest(max_new_tokens=256), observe(synthetic)).recommendation
    assert best is not None and best.hyperparameters["source"] == "rules and what-if"
    assert best.hyperparameters["max_new_tokens"] == 256.0
    assert plan(PlanRequest(), measured).recommendation.hyperparameters["source"] == "measured"  # type: ignore[union-attr]


def test_nothing_rated_is_an_answer_with_a_warning(observe) -> None:
    result = plan(PlanRequest(budget_kwh=10), observe({"id": "x", "total_kwh": 1.0}))
    assert not result.feasible and result.unrated == ["x"] and result.cheapest is None
    assert "no_rated_candidate" in [note.code for note in result.warnings]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"budget_kwh": math.nan}, "budget"),
        ({"budget_kwh": -1}, "at least 0"),
        ({"min_quality": math.inf}, "min-quality"),
        ({"reuse_n": 0}, "reuse"),
        ({"reuse_n": 2.5}, "whole number"),
        ({"pue": 0.9}, "pue"),
        ({"intensity": 0}, "intensity"),
        ({"confidence": 1.5}, "confidence"),
        ({"confidence": 0.1, "budget_kwh": 19}, "confidence: 0.1 cannot be used; give a number of at least 0.5"),
        ({"objective": "best"}, "max_quality"),
        ({"budget_kwh": 1, "program_budget_kwh": 1, "students": 2}, "give one"),
        ({"program_budget_kwh": 1}, "needs students"),
        ({"students": 3, "reuse_n": 4}, "contradict"),
        ({"region": "FRA", "intensity": 5}, "give one"),
        ({"co2e_kg": 5}, "region or intensity"),
        ({"cost": 5}, "energy-price"),
        ({"teacher": "train"}, "teacher-training"),
        ({"teacher": "train", "teacher_training_kwh": 5, "teacher_outputs": "cached"}, "contradict"),
        ({"region": "FRX"}, "FRA"),
        ({"serve_reference": "nobody"}, "no candidate"),
        ({"teacher_region": "FRA"}, "other stages"),
        ({"gpu_hours": 5}, "mean-gpu-w"),
        ({"cost": 5, "gpu_hour_price": 2}, "mean-gpu-w"),
        ({"sizes": (7.0,)}, "predict"),
    ],
)
def test_bad_and_contradictory_requests_are_one_clear_line(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageProblem, match=words) as problem:
        ask(**request_)
    assert "\n" not in str(problem.value)


budgets = st.floats(0, 60).map(lambda b: round(b, 2))


@settings(max_examples=60, deadline=None)
@given(budgets, st.integers(1, 40), st.sampled_from([0.0, 0.02, 0.1]), st.sampled_from([None, 0.7, 0.95]))
def test_a_choice_keeps_its_limits_and_nothing_feasible_is_better(
    budget: float, n: int, tolerance: float, floor: float | None
) -> None:
    result = ask(budget_kwh=budget, reuse_n=n, quality_tolerance=tolerance, min_quality=floor)
    rated = [c for c in result.candidates if c["quality"] is not None]
    fits = [c for c in rated if c["per_student_kwh"] <= budget + 1e-9 and c["quality"] >= (floor or 0) - 1e-9]
    assert result.feasible == bool(fits)
    if result.recommendation is None:
        assert result.cheapest is not None
        assert (result.shortfall_kwh or 0) > 0 or floor is not None
        return
    best = max(c["quality"] for c in fits)
    p = result.recommendation.predicted
    assert p.per_student_kwh <= budget + 1e-9 and p.quality is not None and p.quality >= best - tolerance - 1e-9
    assert all(
        c["per_student_kwh"] >= p.per_student_kwh - 1e-9 for c in fits if c["quality"] >= best - tolerance - 1e-9
    )
    assert result.slack_kwh == pytest.approx(budget - p.per_student_kwh, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(budgets, budgets)
def test_more_budget_never_means_less_quality(a: float, b: float) -> None:
    low, high = (ask(budget_kwh=value) for value in sorted((a, b)))
    if low.recommendation is not None:
        assert high.recommendation is not None
        assert (high.recommendation.predicted.quality or 0) >= (low.recommendation.predicted.quality or 0)


def test_repeats_replace_the_assumed_spread(observe) -> None:
    runs = [{"id": "r", "total_kwh": e, "quality": q} for e, q in ((10.0, 0.80), (11.0, 0.82), (12.0, 0.84))]
    p = plan(PlanRequest(budget_kwh=20), observe(*runs)).recommendation.predicted  # type: ignore[union-attr]
    # mean 11, s 1, n 3: 11 ± 2.92·sqrt(4/3)
    assert (p.total_kwh, p.spread) == (pytest.approx(11.0), "repeats")
    assert p.total_kwh_high == pytest.approx(11 + 2.91999 * math.sqrt(4 / 3), abs=1e-3)
    assert p.quality == pytest.approx(0.82)


def test_own_repeats_say_nothing_of_the_study_s_spread() -> None:
    plain = {"regime": "sft", "quality": 0.5, "scope": "gpu+cpu_estimated", "teacher_kwh": 0.0}
    own = [plain | {"id": f"{i}", "total_kwh": e}
           for i, pair in enumerate(((10, 20), (30, 60))) for e in pair]  # fmt: skip
    from planners.schema import make_table

    both = Observations(make_table([*own, *STUDY.table.iter_rows(named=True)]))
    assert plan(PlanRequest(budget_kwh=20), both).recommendation.predicted.spread == "assumed"  # type: ignore[union-attr]


def test_unknown_cells_of_the_study_stay_unknown() -> None:
    rows = {row["id"]: row for row in paper_table().iter_rows(named=True)}
    seven = rows["SFT-7B"]
    assert [seven[name] for name in ("preprocess_kwh", "student_kwh", "eval_kwh")] == [None, None, None]
    assert (
        rows["Syn-1B"]["quality"] is None
        and rows["Syn-1B"]["derived"]
        and rows["Syn-1B"]["total_kwh"] == pytest.approx(16.65)
    )
    assert not any(row["derived"] for name, row in rows.items() if name != "Syn-1B")
    result = ask(budget_kwh=20)
    assert result.recommendation is not None and result.recommendation.predicted.stages_kwh["student"] is None


def test_predicted_sizes_are_marked_and_wide() -> None:
    result = ask(budget_kwh=40, predict=True)
    made = {c["id"]: c for c in result.candidates if c["source"] == "cost model"}
    assert made.keys() == {"KD-7B", "Syn-7B"}
    assert all(c["basis"] == "interpolated" for c in made.values())
    assert made["KD-7B"]["per_student_kwh"] == pytest.approx(29.70, abs=0.005)
    assert made["Syn-7B"]["quality"] is None, "one measured quality carries no prediction"
    kd = next(e for e in result.break_even if e.id == "KD-7B")
    assert kd.n_star == pytest.approx(5.238, abs=0.01) and kd.basis == "interpolated"
    assert "predicted" in [note.code for note in result.warnings]
    seven = next(row for row in STUDY.table.iter_rows(named=True) if row["id"] == "SFT-7B")
    assert seven["student_kwh"] is None


def test_what_nobody_ran_is_told_with_its_intervals_only() -> None:
    """KD and synthetic SFT at 7B are no cells of the study: every number of theirs comes as a prediction."""
    result = ask(budget_kwh=29.8, min_quality=0.75, predict=True)
    made = {c["id"]: c for c in result.candidates}
    for name in ("KD-7B", "Syn-7B"):
        assert made[name]["per_student_kwh_low"] < made[name]["per_student_kwh"] < made[name]["per_student_kwh_high"]
    assert made["KD-7B"]["quality_low"] < made["KD-7B"]["quality"] < made["KD-7B"]["quality_high"]
    assert made["Syn-7B"]["quality_low"] is None and made["Syn-7B"]["quality_high"] is None
    low, high = made["KD-7B"]["per_student_kwh_low"], made["KD-7B"]["per_student_kwh_high"]
    told = f"predicted 29.70 kWh ({low:.2f} kWh to {high:.2f} kWh at 90%), Q 0.79 ("
    why = {entry["id"]: entry["why"] for entry in result.rejected}
    assert result.runner_up is not None and result.runner_up["why"].startswith(told) and why["KD-7B"].startswith(told)
    assert why["Syn-7B"].startswith("predicted 28.67 kWh (") and not why["KD-1B"].startswith("predicted")
    reasons = {r.rule: r.text for r in ask(budget_kwh=20, predict=True).recommendation.reasons}  # type: ignore[union-attr]
    assert "KD-1B 16.90 kWh" in reasons["one_off_sft"], "a rule of the study speaks of what was measured"


def test_what_if_batch_is_an_extrapolation() -> None:
    before = {c["id"]: c for c in ask(budget_kwh=50).candidates}
    after = {c["id"]: c for c in ask(budget_kwh=50, teacher_batch=16).candidates}
    # the decode law from batch 4 to 16 for a 32B teacher: 0.971 / 3.311
    assert after["Syn-13B"]["per_student_kwh"] == pytest.approx(40.70 - 10.6 * (1 - 0.2933), abs=0.02)
    assert after["Syn-13B"]["basis"] == "extrapolated" and before["Syn-13B"]["basis"] == "measured"
    assert after["KD-13B"]["per_student_kwh"] == before["KD-13B"]["per_student_kwh"], "cached logits are a forward pass"


def test_replacing_one_field_gives_another_plan_quickly() -> None:
    base = PlanRequest(budget_kwh=20)
    assert [chosen(plan(replace(base, reuse_n=n), STUDY)) for n in (1, 20)] == ["SFT-7B", "SFT-7B"]
    assert chosen(plan(replace(base, budget_kwh=8, reuse_n=20), STUDY)) == "KD-1B"


def test_the_frontier_of_energy_per_token_is_beside_that_per_student() -> None:
    found = {p["id"]: p["j_per_token"] for p in ask(budget_kwh=20).frontier_j_per_token}
    assert found == {"SFT-1B": 0.84, "KD-1B": 2.03, "SFT-7B": 2.34, "SFT-13B": 4.15}
    shared = {p["id"]: p["j_per_token"] for p in ask(budget_kwh=20, reuse_n=20).frontier_j_per_token}
    assert shared["KD-1B"] == pytest.approx(2.03 * 6.45 / 16.9)


def test_an_old_grid_factor_is_said() -> None:
    from datetime import UTC, datetime

    from kdwatch.ledger.grid import intensity

    year = intensity("FRA").year  # type: ignore[union-attr]
    codes = [note.code for note in ask(budget_kwh=20, region="FRA").warnings]
    assert ("grid_factor_old" in codes) == (datetime.now(UTC).year - year > 2)  # type: ignore[operator]
    assert "grid_factor_old" not in [note.code for note in ask(budget_kwh=20, intensity=56).warnings]


def test_a_method_measured_nowhere_comes_from_compute_with_a_wide_interval(observe) -> None:
    sft = [
        {"id": f"SFT-{size:g}B", "student_params_b": size, "preprocess_kwh": 0.4, "student_kwh": 2.0 * size,
         "eval_kwh": 0.3, "quality": 0.7, "hardware": "1x NVIDIA H100", "teacher_params_b": 32.0}
        for size in (1.0, 13.0)
    ]  # fmt: skip
    result = plan(PlanRequest(budget_kwh=50, predict=True, tokens=3e7), observe(*sft))
    made = {c["id"]: c for c in result.candidates if c["source"] == "compute prior"}
    assert made.keys() == {"KD-1B", "KD-13B", "Syn-1B", "Syn-13B"}
    assert all(c["basis"] == "extrapolated" and c["quality"] is None for c in made.values())
    # generation: 30M tokens at 0.028 + 32·(0.0051 + 0.39/4) J
    assert made["Syn-1B"]["per_student_kwh"] > 3e7 * 3.31 / 3.6e6
    assert all(entry.n_star is None for entry in result.break_even if entry.id in made)
    elsewhere = [row | {"hardware": "laptop"} for row in sft]
    assert not [
        c
        for c in plan(PlanRequest(predict=True, tokens=3e7), observe(*elsewhere)).candidates
        if c["source"] == "compute prior"
    ]


def test_a_large_table_tells_the_candidates_that_matter(observe) -> None:
    rows = [
        {"id": f"c{i:04}", "total_kwh": 1.0 + i / 100, "quality": 0.2 + (i * 37 % 1000) / 1500} for i in range(2500)
    ]
    result = plan(PlanRequest(budget_kwh=10), observe(*rows))
    best = max((row for row in rows if row["total_kwh"] <= 10), key=lambda row: (row["quality"], -row["total_kwh"]))
    assert chosen(result) == best["id"]
    assert {p["id"] for p in result.frontier} <= {c["id"] for c in result.candidates}
    assert 200 < len(result.rejected) < 1500 and "rejected_cut" in [note.code for note in result.warnings]
