"""What would change the answer, checked by asking again: every flip and every relaxation does what it says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from planners import PlanRequest, plan
from planners.observations import Observations
from planners.rounding import down, up
from planners.schema import make_table
from planners.wording import energy

JUST = 1e-6


def random_table(source: random.Random) -> Observations:
    """Two to seven candidates with decimal energies, some of unknown quality."""
    rows = []
    for number in range(source.randint(2, 7)):
        regime = source.choice(["sft", "kd", "synthetic_sft"])
        teacher = 0.0 if regime == "sft" else round(source.uniform(1, 20), 1)
        student, evaluation = round(source.uniform(2, 30), 1), round(source.uniform(0.3, 1), 1)
        quality = round(source.uniform(0.5, 1), 2) if source.random() > 0.1 else None
        rows.append({"id": f"c{number}", "regime": regime, "student_params_b": float(number + 1), "scope": "gpu",
                     "total_kwh": round(0.4 + teacher + student + evaluation, 6), "preprocess_kwh": 0.4,
                     "teacher_kwh": teacher, "student_kwh": student, "eval_kwh": evaluation, "quality": quality,
                     "gpu_hours": round(source.uniform(5, 60), 1), "hardware": "h", "source": "t.csv"})  # fmt: skip
    return Observations(make_table(rows))


def random_request(source: random.Random) -> PlanRequest:
    """Some limits, some reuse, some tolerance."""
    given: dict[str, Any] = {}
    if source.random() < 0.7:
        given["budget_kwh"] = round(source.uniform(2, 50), 1)
    if source.random() < 0.4:
        given["min_quality"] = round(source.uniform(0.5, 1), 2)
    if source.random() < 0.4:
        given |= {"co2e_kg": round(source.uniform(0.5, 10), 2), "intensity": source.choice([56.0, 400.0]), "pue": 1.2}
    if source.random() < 0.3:
        given["gpu_hours"] = round(source.uniform(3, 60), 1)
    if source.random() < 0.3:
        given["reuse_n"] = source.randint(1, 20)
    if source.random() < 0.2:
        given["quality_tolerance"] = 0.05
    return PlanRequest(**given)


def answer(request: PlanRequest, observations: Observations) -> str | None:
    found = plan(request, observations).recommendation
    return found.id if found else None


def changed(request: PlanRequest, name: str, value: float) -> PlanRequest:
    return replace(request, **{name: int(value) if name == "reuse_n" else value})


@pytest.mark.parametrize("seed", range(60))
def test_every_flip_and_relaxation_holds_and_is_the_smallest(seed: int) -> None:
    source = random.Random(f"flips {seed}")
    observations, request = random_table(source), random_request(source)
    result = plan(request, observations)
    now = result.recommendation.id if result.recommendation else None
    for flip in result.flips:
        name, to = flip["change"], flip["to"]
        if "below" in flip["text"]:
            assert answer(changed(request, name, to), observations) == now
            to -= JUST
        elif "above" in flip["text"]:
            to += JUST
        assert answer(changed(request, name, to), observations) == flip["id"] != now, flip["text"]
        if name == "reuse_n" and to - 1 > request.n:
            assert answer(changed(request, name, to - 1), observations) != flip["id"], flip["text"]
        elif " of " in flip["text"] and name != "min_quality":
            assert answer(changed(request, name, to - JUST), observations) == now, flip["text"]
    for step in result.relaxations:
        together = step["limits"] if step["limit"] == "together" else [step]
        relaxed = replace(request, **{one["limit"]: one["to"] for one in together})
        assert answer(relaxed, observations) is not None
        if step["limit"] != "together":
            assert answer(relaxed, observations) == step["candidate"]
            less = step["to"] + (JUST if step["limit"] == "min_quality" else -JUST)
            assert answer(changed(request, step["limit"], less), observations) is None, "a smaller one would do"


def test_a_limit_that_is_told_holds_when_it_is_typed() -> None:
    """5 kg in Poland need 5.5602 kg: 5.56 would not do."""
    from planners import load

    request = PlanRequest(co2e_kg=5.0, region="POL", pue=1.2)
    (step,) = plan(request, load(["paper"])).relaxations
    told = float(step["text"].split()[-3])
    assert step["to"] <= told < step["to"] * 1.001
    assert answer(replace(request, co2e_kg=told), load(["paper"])) == step["candidate"]


@pytest.mark.parametrize(
    ("value", "digits", "above", "below"),
    [(5.5602, 4, 5.561, 5.56), (7.0, 3, 7.0, 7.0), (0.1 + 0.2, 2, 0.3, 0.3), (123456.0, 3, 124000.0, 123000.0)],
)
def test_rounding_goes_to_the_side_that_is_asked(value: float, digits: int, above: float, below: float) -> None:
    assert (up(value, digits), down(value, digits)) == (above, below)


def test_an_energy_that_is_a_limit_is_rounded_up_in_its_own_unit() -> None:
    assert [energy(kwh, up) for kwh in (19.501, 0.50001, 3.4e-4)] == ["19.51 kWh", "0.501 kWh", "1.23 kJ"]


def test_a_programmes_budget_is_told_for_all_its_students() -> None:
    from planners import load

    found = plan(PlanRequest(program_budget_kwh=200, students=20), load(["paper"])).flips
    text = "a budget of 19.50 kWh per student (390.00 kWh for 20) gives SFT-7B, quality 0.90"
    assert [flip["text"] for flip in found] == [text]
