"""The public functions against exact arithmetic: random tables and limits, boundaries and ties, answered in fractions.

The right answers are worked out here from the definitions alone (energy = pre + teacher/N + student + evaluation; ties
by quality or energy, then fewer stages, then name), in `fractions.Fraction` of the decimal numbers.
"""

from __future__ import annotations

import json
import math
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import planner_cases

Candidates = dict[str, dict[str, Any]]
EXACT = {"rel": 1e-12}


def decimal(value: float | str) -> Fraction:
    return Fraction(str(value))


def candidates(source: random.Random) -> Candidates:
    made: Candidates = {}
    for number in range(source.randint(2, 6)):
        method, digits = source.choice(["SFT", "KD", "Syn"]), source.choice([0, 1, 2])
        teacher = 0.0 if method == "SFT" else round(source.uniform(0.5, 12), digits)
        quality = round(source.uniform(0.5, 1.02), source.choice([1, 2])) if source.random() > 0.15 else None
        made[f"{method}-{number}"] = {
            "method": method, "size_b": source.choice([1, 7]), "pre": 0.37, "teacher": teacher, "q": quality,
            "student": round(source.uniform(1, 30), digits), "eval": round(source.uniform(0.1, 1), 2)}  # fmt: skip
    return made


class Truth:
    """What is right for some candidates at a reuse N."""

    def __init__(self, given: Candidates, n: int) -> None:
        self.given, self.n = given, n
        self.rated = [name for name, c in given.items() if c["q"] is not None]

    def energy(self, name: str) -> Fraction:
        c = self.given[name]
        return decimal(c["pre"]) + decimal(c["teacher"]) / self.n + decimal(c["student"]) + decimal(c["eval"])

    def quality(self, name: str) -> Fraction:
        return decimal(self.given[name]["q"])

    def kept(self, budget: Fraction | None, floor: Fraction | None) -> list[str]:
        return [
            name
            for name in self.rated
            if (budget is None or self.energy(name) <= budget) and (floor is None or self.quality(name) >= floor)
        ]

    def best(self, goal: str, budget: Fraction | None, floor: Fraction | None) -> str | None:
        def order(name: str) -> tuple[Any, ...]:
            pair = (-self.quality(name), self.energy(name))
            return (*(pair if goal == "quality" else pair[::-1]), self.given[name]["method"] != "SFT", name)

        return min(self.kept(budget, floor), key=order, default=None)

    def dominating(self, name: str) -> list[str]:
        e, q = self.energy(name), self.quality(name)
        others = [(o, self.energy(o), self.quality(o)) for o in self.rated]
        return sorted(o for o, oe, oq in others if oe <= e and oq >= q and (oe < e or oq > q))


def budget_of(truth: Truth, source: random.Random) -> Fraction:
    """Often exactly what one candidate needs, where that is a decimal number; sometimes nothing."""
    exact = truth.energy(source.choice(list(truth.given)))
    if source.random() < 0.4 and decimal(repr(float(exact))) == exact:
        return exact
    return Fraction(0) if source.random() < 0.1 else decimal(round(source.uniform(1, 45), 1))


def choice_cases(seed: int) -> list[dict[str, Any]]:
    source = random.Random(f"exact {seed}")
    given, n = candidates(source), source.choice([1, 2, 3, 5, 7, 10, 20])
    truth = Truth(given, n)
    budget = budget_of(truth, source)
    floor = truth.quality(source.choice(truth.rated)) if truth.rated and source.random() < 0.6 else decimal("0.77")
    base = {"candidates": given, "reuse_n": n}
    return [
        _case(f"budget {seed}", "max_quality_under_energy_budget", base | {"budget_kwh": float(budget)},
              _chosen(truth, truth.best("quality", budget, None), budget)),
        _case(f"floor {seed}", "min_energy_for_quality", base | {"target_q": float(floor)},
              _chosen(truth, truth.best("energy", None, floor), None)),
        _case(f"both {seed}", "both_constraints", base | {"budget_kwh": float(budget), "target_q": float(floor)},
              _chosen(truth, truth.best("quality", budget, floor), None) | _relaxed(truth, budget, floor)),
        _case(f"frontier {seed}", "frontier", base, _frontier(truth)),
    ]  # fmt: skip


def _case(name: str, kind: str, given: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "kind": kind, "input": given, "expected": expected, "tolerance": EXACT}


def _chosen(truth: Truth, best: str | None, budget: Fraction | None) -> dict[str, Any]:
    found: dict[str, Any] = {"feasible": best is not None, "recommended": best}
    if best is not None:
        found |= {"energy_kwh": float(truth.energy(best)), "q": truth.given[best]["q"]}
    if budget is None:
        return found
    if best is not None:
        return found | {"slack_kwh": float(budget - truth.energy(best))}
    least = min(map(truth.energy, truth.rated), default=None)
    return found if least is None else found | {"cheapest_kwh": float(least), "shortfall_kwh": float(least - budget)}


def _relaxed(truth: Truth, budget: Fraction, floor: Fraction) -> dict[str, Any]:
    if truth.kept(budget, floor):
        return {}
    found: dict[str, Any] = {}
    if good := truth.kept(None, floor):
        found["relax_budget_to_kwh"] = float(min(map(truth.energy, good)))
    if cheap := truth.kept(budget, None):
        found["relax_quality_to"] = float(max(map(truth.quality, cheap)))
    return found


def _frontier(truth: Truth) -> dict[str, Any]:
    places = {name: (truth.energy(name), truth.quality(name)) for name in truth.rated}
    if len(set(places.values())) < len(places):
        return {}
    free = sorted((name for name in truth.rated if not truth.dominating(name)), key=truth.energy)
    return {"frontier": free, "dominated_by": {name: by for name in truth.rated if (by := truth.dominating(name))}}


def reuse_case(seed: int) -> dict[str, Any]:
    """N* with its whole numbers, at ties too."""
    source = random.Random(f"reuse {seed}")
    teacher, plain, distilled = (round(source.uniform(0.1, 12), source.choice([0, 1, 2])) or 1.0 for _ in range(3))
    if source.random() < 0.5:  # an N* that is whole, which floats miss
        distilled = float(max(Fraction(0), decimal(plain) - decimal(teacher) / source.choice([1, 2, 4, 5, 8, 10])))
    saving = decimal(plain) - decimal(distilled)
    expected: dict[str, Any] = {"status": "never", "n_star": None}
    if saving > 0:
        n = decimal(teacher) / saving
        expected = {"status": "finite", "n_star": float(n), "first_n_not_worse": max(1, math.ceil(n)),
                    "first_n_strictly_better": max(1, math.floor(n) + 1)}  # fmt: skip
    given = {"teacher_kwh": teacher, "student_baseline_kwh": plain, "student_distill_kwh": distilled}
    return _case(f"reuse {seed}", "break_even_reuse", given, expected)


def programme_case(seed: int) -> dict[str, Any]:
    """Students under a programme's budget, often one that fits the last of them exactly."""
    source = random.Random(f"programme {seed}")
    given = candidates(source)
    size = next(iter(given.values()))["size_b"]
    mine = {name: c for name, c in given.items() if c["size_b"] == size}
    each = {name: decimal(c["pre"]) + decimal(c["student"]) + decimal(c["eval"]) for name, c in mine.items()}
    name = source.choice(list(mine))
    budget = decimal(mine[name]["teacher"]) + source.randint(0, 9) * each[name]
    fit = {n: max(0, math.floor((budget - decimal(c["teacher"])) / each[n])) for n, c in mine.items()}
    expected = {"per_method": {n: {"students": count} for n, count in fit.items()}}
    asked = {"candidates": given, "program_budget_kwh": float(budget), "size_b": size, "teacher_paid_once": True}
    return _case(f"programme {seed}", "max_students_under_program_budget", asked, expected)


@pytest.mark.parametrize("block", range(4))
def test_answers_are_those_of_exact_arithmetic(block: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = range(25 * block, 25 * (block + 1))
    cases = [case for seed in seeds for case in (*choice_cases(seed), reuse_case(seed), programme_case(seed))]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    code = planner_cases.main([str(file)])
    assert code == 0, capsys.readouterr().err[-2000:]
