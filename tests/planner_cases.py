"""Answer a file of planner cases through the public functions and compare: `python tests/planner_cases.py FILE`.

Prints `{id: actual}` as JSON, with the keys of each case's `expected`. Differences go to stderr; the exit code is 1
where there is one, 2 where the file cannot be read. docs/planning.md says which function answers which kind.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import planner_case_answers
import planner_case_numbers
from planner_case_input import Case

from kdwatch.rundir.errors import UsageProblem

ANSWERS = planner_case_answers.ANSWERS | planner_case_numbers.ANSWERS
PROSE = {"reason", "note"}
"""Sentences: they must be there, their wording is not compared."""
UPPER_BOUNDS = {"abs_error_max_rel"}
"""The expected value is the largest that will do."""


def candidates_of(cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The candidates of the file's fixture; without one, those of the study's table."""
    for case in cases:
        if case["kind"] == "fixture":
            return case["input"]["candidates"]
    from planners.paper import table

    return {
        row["id"]: {
            "method": row["regime"],
            "size_b": row["student_params_b"],
            "pre": row["preprocess_kwh"],
            "teacher": row["teacher_kwh"],
            "student": row["student_kwh"],
            "eval": row["eval_kwh"],
            "total": row["total_kwh"],
            "q": row["quality"],
        }
        for row in table().iter_rows(named=True)
    }


def answer(case: dict[str, Any], fixture: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the planner says to one case: a value for every key of `expected`; None for a fact it does not have."""
    expected = case["expected"]
    try:
        if case["kind"] not in ANSWERS:
            raise UsageProblem(f"kind {case['kind']!r} is unknown")
        facts = ANSWERS[case["kind"]](Case.of(case["input"], tuple(expected), fixture))
    except KeyError as missing:
        facts = {"status": "rejected", "feasible": False, "error": f"the case says nothing of {missing}"}
        print(f"{case['id']}: {facts['error']}", file=sys.stderr)
    except UsageProblem as problem:
        print(f"{case['id']}: {problem}", file=sys.stderr)
        facts = {"status": "rejected", "feasible": False, "error": getattr(problem, "code", str(problem))}
    return {key: narrowed(facts.get(key), expected[key]) for key in expected}


def narrowed(actual: Any, expected: Any) -> Any:
    """Of a dictionary by candidate only the candidates that are asked for."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return {key: narrowed(actual.get(key), value) for key, value in expected.items()}
    return actual


def agrees(actual: Any, expected: Any, tolerance: dict[str, float], key: str = "") -> bool:
    """Equal within the case's tolerance; structure, names and unknowns exactly."""
    if key in PROSE:
        return isinstance(actual, str) and bool(actual)
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(agrees(actual.get(k), v, tolerance, k) for k, v in expected.items())
    if isinstance(expected, list):
        same_length = isinstance(actual, list) and len(actual) == len(expected)
        return same_length and all(agrees(a, e, tolerance) for a, e in zip(actual, expected, strict=True))
    if isinstance(expected, bool) or isinstance(actual, bool) or not isinstance(expected, int | float):
        return bool(actual == expected)
    if not isinstance(actual, int | float) or not math.isfinite(actual):
        return False
    room = max(tolerance.get("rel", 0.0) * abs(expected), tolerance.get("abs", 0.0), 1e-9)
    return actual <= expected if key in UPPER_BOUNDS else abs(actual - expected) <= room


def main(arguments: list[str]) -> int:
    """Answer the file named on the command line."""
    if len(arguments) != 1:
        print("usage: python tests/planner_cases.py FILE", file=sys.stderr)
        return 2
    try:
        cases = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{arguments[0]}: cannot be read: {error}", file=sys.stderr)
        return 2
    fixture = candidates_of(cases)
    actual = {case["id"]: answer(case, fixture) for case in cases}
    wrong = [
        f"{case['id']}: {key}: got {actual[case['id']][key]!r}, expected {value!r}"
        for case in cases
        for key, value in case["expected"].items()
        if not agrees(actual[case["id"]][key], value, case.get("tolerance", {}), key)
    ]
    print(json.dumps(actual, indent=1, allow_nan=False))
    print("\n".join(wrong) or f"all {len(cases)} cases agree", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
