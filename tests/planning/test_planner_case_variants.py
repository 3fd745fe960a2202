"""The case runner on inputs beside the worked ones: boundaries, ties, what is left out, candidates of its own.

The right values follow from the study's table (docs/planning.md) by hand: SFT-1B 7.00,
KD-1B 0.37 + 11.0/N + 5.2 + 0.33,
Syn-1B 0.37 + 10.6/N + 5.35 + 0.33 kWh.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OWN = {
    "A": {"method": "SFT", "size_b": 1, "pre": 0, "teacher": 0, "student": 5, "eval": 1, "q": 0.5},
    "B": {"method": "KD", "size_b": 1, "pre": 0, "teacher": 3, "student": 5, "eval": 1, "q": 0.6},
}
TWINS = {
    "K": {"method": "KD", "size_b": 1, "pre": 0, "teacher": 1, "student": 5, "eval": 1, "q": 0.5},
    "S": {"method": "SFT", "size_b": 1, "pre": 0, "teacher": 0, "student": 6, "eval": 1, "q": 0.5},
}
"""Of the same energy and quality: the one with fewer stages goes first."""
TOTALS = {
    "S": {"method": "SFT", "size_b": 1, "total": 7, "q": 0.5},
    "K": {"method": "KD", "size_b": 1, "total": 9, "q": 0.6},
}
"""Nothing says how much of a distilled total was the teacher's."""
BUDGET, NONE_FITS = "max_quality_under_energy_budget", {"feasible": False, "recommended": None}

VARIANTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (BUDGET, {"budget_kwh": 7}, {"feasible": True, "recommended": "SFT-1B", "slack_kwh": 0.0}),
    (BUDGET, {"budget_kwh": 8, "candidates": OWN}, {"recommended": "A", "slack_kwh": 2.0}),
    (BUDGET, {"budget_kwh": "NaN"}, NONE_FITS),
    ("min_energy_for_quality", {"target_q": 1.2}, NONE_FITS | {"best_q": 0.99, "best_candidate": "SFT-13B"}),
    ("min_energy_for_quality", {"target_q": 0.69, "reuse_n": 10}, {"tie": ["KD-1B", "SFT-1B"], "recommended": "KD-1B"}),
    ("per_student_energy", {"size_b": 7, "reuse_n": 10, "scope": "teacher/N + student"}, {"kwh": {"SFT-7B": None}}),
    ("reuse_choice", {"size_b": 1, "reuse_n": 10}, {"tie": ["KD-1B", "SFT-1B"], "saving_total_kwh": 0.0}),
    (
        "reuse_choice",
        {"size_b": 1, "reuse_n": 10, "scope": "teacher/N + student"},
        {"kwh": {"SFT-1B": 6.3, "KD-1B": 6.3}},
    ),
    (
        "max_students_under_program_budget",
        {"program_budget_kwh": 80, "size_b": 1},
        {"per_method": {"Syn-1B": {"students": 11, "kwh": 77.15}}, "recommended": "KD-1B"},
    ),
    ("max_students_under_program_budget", {"program_budget_kwh": "NaN", "size_b": 1}, {"status": "rejected"}),
    (
        "lifecycle_choice",
        {"serving_tokens": 0, "j_per_token": {"SFT-1B": 0.054}, "target_q": 0.6},
        {"lifecycle_kwh": {"SFT-1B": 7.0}, "recommended": "SFT-1B"},
    ),
    ("carbon_budget", {"budget_kgco2e": 5, "region": "FRA", "pue": 1.2}, {"kgco2e": 34.6 * 1.2 * 0.056039}),
    ("carbon_budget", {"budget_kgco2e": 5}, NONE_FITS),
    (
        "gpu_hours_budget",
        {"budget_gpu_hours": 10, "mean_gpu_w": 400},
        {"feasible": False, "shortfall_kwh": 3.0, "cheapest_gpu_hours": 17.5, "shortfall_gpu_hours": 7.5},
    ),
    (
        "per_student_energy",
        {"size_b": 1, "reuse_n": 1, "candidates": TWINS},
        {"recommended": "S", "tie": ["K", "S"], "tie_break": "fewer_stages -> S"},
    ),
    ("reuse_choice", {"size_b": 1, "reuse_n": 1, "candidates": ["Syn-1B"]}, {"kwh": {"Syn-1B": 16.65}}),
    (
        "stage_regions",
        {"pue": 1, "teacher_region_g": 50, "other_region_g": 600, "reuse_n": 1, "candidates": TOTALS},
        {"kgco2e": {"S": 4.2, "K": None}, "lowest_carbon": "S", "lowest_energy": "S"},
    ),
    ("hypervolume", {"points": [["NaN", 0.9], [7, 0.69]], "reference": [45, 0.6]}, {"hypervolume": 38 * 0.09}),
    ("hypervolume", {"points": [[0.69, 7]], "reference": [0.6, 45], "sense": ["max", "min"]}, {"hypervolume": 3.42}),
    ("marginal", {"frontier": ["SFT-1B", "Syn-1B"]}, {"q_per_kwh": []}),
    (
        "invalid",
        {"runs": [{"energy_kwh": "abc", "q": 1}], "budget_kwh": "abc"},
        {"rejected": [0], "budget": "rejected"},
    ),
    (
        "probability",
        {"a": {"name": "KD-1B", "sd_q": 0.02}, "b": {"name": "SFT-1B", "sd_q": 0.02}},
        {"p_q_a_greater": 0.6382},
    ),
    ("probability", {"a": {"q": 0.7, "sd_q": 0.02}, "b": {"q": 0.7, "sd_q": 0.02}}, {"p_q_a_greater": 0.5}),
    ("chance_constraint", {"mean_kwh": 19.5, "cv": 0.04, "budget_kwh": 20}, {"p_within": 0.7392, "safe": False}),
    ("forecast", {"steps_kwh": [["NaN", 0.1], [200, 0.1]], "total_steps": 900}, {"status": "insufficient"}),
    (
        "forecast_carbon_variable_grid",
        {"done": {"kwh": 2, "grid_g_per_kwh": 400}, "remaining_kwh": 3, "remaining_grid_g_per_kwh": 200, "pue": 1.5},
        {"total_kgco2e": (0.8 + 0.6) * 1.5},
    ),
    ("size_interpolation", {"known": [[1, 6.3]], "predict_b": 7}, {"status": "rejected", "total_kwh": None}),
    ("size_interpolation_n_star", {"size_b": 7, "method": "KD"}, {"n_star_linear": 5.238}),
    ("unit_conversion", {"g_per_kwh": 323.854}, {"lb_per_mwh": 713.976}),
]


def test_the_runner_answers_inputs_beside_the_worked_ones(tmp_path: Path) -> None:
    cases = [
        {"id": str(number), "kind": kind, "input": given, "expected": expected, "tolerance": {"abs": 0.001}}
        for number, (kind, given, expected) in enumerate(VARIANTS)
    ]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    script = ROOT / "tests" / "planner_cases.py"
    done = subprocess.run([sys.executable, script, file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["11"]["kgco2e"] == pytest.approx(2.3267, abs=1e-3)


def test_a_case_that_cannot_be_answered_leaves_the_others_answered(tmp_path: Path) -> None:
    cases = [
        {"id": "new", "kind": "never_heard_of", "input": {}, "expected": {"x": 1}},
        {"id": "bare", "kind": "chance_constraint", "input": {}, "expected": {"p_within": 0.5}},
        {
            "id": "good",
            "kind": "min_energy_for_quality",
            "input": {"target_q": 0.8},
            "expected": {"recommended": "SFT-7B"},
        },
    ]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    script = ROOT / "tests" / "planner_cases.py"
    done = subprocess.run([sys.executable, script, file], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "new: kind 'never_heard_of' is unknown" in done.stderr
    assert json.loads(done.stdout) == {
        "new": {"x": None},
        "bare": {"p_within": None},
        "good": {"recommended": "SFT-7B"},
    }


CASE = {"id": "a", "kind": "min_energy_for_quality", "input": {"target_q": 0.8}, "expected": {"recommended": "SFT-7B"}}


def answered(tmp_path: Path, content: Any) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "cases.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    script = ROOT / "tests" / "planner_cases.py"
    return subprocess.run([sys.executable, script, file], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ({"a": 1}, "is no list of cases"),
        ([1], "case 0 is no object"),
        ([{"id": "a", "input": {}, "expected": {}}], "case 'a' has no 'kind'"),
        ([CASE | {"expected": None}], "case 'a' has no 'expected'"),
        ([CASE, CASE], "case 'a' is there twice"),
        ([CASE | {"kind": "fixture"}], "case 'a' has no 'candidates' by name"),
    ],
)
def test_a_file_that_holds_no_cases_is_one_line(tmp_path: Path, content: Any, words: str) -> None:
    done = answered(tmp_path, content)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


def test_broken_parts_of_a_case_are_named_and_the_rest_is_answered(tmp_path: Path) -> None:
    rates = {"SFT-1B": {"a": 1}}
    cases = [
        CASE | {"id": "text", "input": {"target_q": "much"}},
        CASE | {"id": "rates", "kind": "lifecycle_choice", "input": {"serving_tokens": 1, "j_per_token": rates}},
        CASE | {"id": "list", "kind": "hypervolume", "input": {"points": 5}, "expected": {"hypervolume": 1}},
        CASE | {"id": "good", "tolerance": 0.001},
    ]
    done = answered(tmp_path, {"cases": cases})
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert all(f"{name}: " in done.stderr for name in ("text", "rates", "list")) and "good: " not in done.stderr
    assert json.loads(done.stdout)["good"] == {"recommended": "SFT-7B"}
