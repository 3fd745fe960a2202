"""Which design rules speak, by docs/planning.md: each where its condition holds, and not elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from planners import PlanRequest, load, plan
from planners.observations import Observations
from planners.result import PlanResult
from planners.rules import RULES

NAMES = {rule.__name__ for rule in RULES}


def fired(result: PlanResult) -> set[str]:
    assert result.recommendation is not None
    return {reason.rule for reason in result.recommendation.reasons} & NAMES


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ({"budget_kwh": 20}, {"one_off_sft", "size_dominates", "marginal_gain", "raise_teacher_batch"}),
        (
            {"budget_kwh": 8, "reuse_n": 20},
            {
                "reuse_before_regenerate",
                "reuse_break_even",
                "small_students_amortise_slowest",
                "faster_convergence",
                "alpha_before_temperature",
                "marginal_gain",
                "raise_teacher_batch",
            },
        ),
        (
            {"budget_kwh": 6, "teacher_outputs": "cached"},
            {"reuse_break_even", "faster_convergence", "alpha_before_temperature", "marginal_gain"},
        ),
    ],
)
def test_rules_on_the_study(request_: dict[str, Any], names: set[str]) -> None:
    assert fired(plan(PlanRequest(**request_), load(["paper"]))) == names


PLAIN = {"student_params_b": 1.0, "preprocess_kwh": 0.1, "eval_kwh": 0.5}
SFT = PLAIN | {"id": "sft", "student_kwh": 6.0, "quality": 0.6}
KD = PLAIN | {"id": "kd", "regime": "kd", "student_kwh": 5.0, "teacher_kwh": 1.0}


@pytest.mark.parametrize(("settings", "said"), [('{"early_stop": true}', True), ('{"max_steps": 100}', False)])
def test_convergence_is_the_cause_only_where_early_stopping_could_be(observe, settings: str, said: bool) -> None:
    seen: Observations = observe(SFT, KD | {"quality": 0.7, "hyperparameters": settings})
    assert ("faster_convergence" in fired(plan(PlanRequest(budget_kwh=10), seen))) == said


def test_synthetic_students_hear_of_shorter_generations_and_of_the_batch_where_it_is_small(observe) -> None:
    synthetic = KD | {"id": "syn", "regime": "synthetic_sft", "quality": 0.7, "teacher_params_b": 32.0}
    small, large = (
        fired(plan(PlanRequest(budget_kwh=10), observe(SFT, synthetic | {"teacher_batch": batch}))) for batch in (4, 16)
    )
    assert "shorter_generations" in small & large
    assert "raise_teacher_batch" in small - large
