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
from polars.exceptions import PolarsError

from kdwatch.rundir.errors import UsageProblem

ANSWERS = planner_case_answers.ANSWERS | planner_case_numbers.ANSWERS
PROSE = {"reason", "note"}
"""Sentences: they must be there, their wording is not compared."""
UPPER_BOUNDS = {"abs_error_max_rel"}
"""The expected value is the largest that will do."""


KEYS = {"id": str, "kind": str, "input": dict, "expected": dict}
"""What every case holds."""
BROKEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, PolarsError)
"""What comes of an input whose parts are missing or of another kind."""
Fixture = dict[str, dict[str, Any]]


class FileProblem(Exception):
    """A file that is no list of cases, in one line."""


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases of a file: a list, or an object with the list under `cases`. Raises FileProblem."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileProblem(f"cannot be read: {error}") from None
    cases = found.get("cases") if isinstance(found, dict) else found
    if not isinstance(cases, list):
        raise FileProblem("is no list of cases: each an object with " + ", ".join(KEYS))
    seen: set[str] = set()
    for number, case in enumerate(cases):
        if not isinstance(case, dict):
            raise FileProblem(f"case {number} is no object")
        name = f"case {case['id']!r}" if isinstance(case.get("id"), str) else f"case {number}"
        for key, kind in KEYS.items():
            if not isinstance(case.get(key), kind):
                raise FileProblem(f"{name} has no {key!r} that is {'a text' if kind is str else 'an object'}")
        if case["id"] in seen:
            raise FileProblem(f"{name} is there twice")
        seen.add(case["id"])
    return cases


def candidates_of(cases: list[dict[str, Any]]) -> Fixture:
    """The candidates of the file's fixture; without one, those of the study's table. Raises FileProblem."""
    for case in cases:
        if case["kind"] == "fixture":
            found = case["input"].get("candidates")
            if not isinstance(found, dict) or not all(isinstance(c, dict) for c in found.values()):
                raise FileProblem(f"case {case['id']!r} has no 'candidates' by name")
            return found
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


def answer(case: dict[str, Any], fixture: Fixture) -> dict[str, Any]:
    """What the planner says to one case: a value for every key of `expected`; None for a fact it does not have."""
    expected = case["expected"]
    try:
        if case["kind"] not in ANSWERS:
            raise UsageProblem(f"kind {case['kind']!r} is unknown")
        facts = ANSWERS[case["kind"]](Case.of(case["input"], tuple(expected), fixture))
    except UsageProblem as problem:
        print(f"{case['id']}: {problem}", file=sys.stderr)
        facts = {"status": "rejected", "feasible": False, "error": getattr(problem, "code", str(problem))}
    except BROKEN as problem:
        lacks = f"says nothing of {problem}" if isinstance(problem, KeyError) else f"cannot be answered ({problem})"
        facts = {"status": "rejected", "feasible": False, "error": f"the case {lacks}"}
        print(f"{case['id']}: {facts['error']}", file=sys.stderr)
    return {key: plain(narrowed(facts.get(key), expected[key])) for key in expected}


def plain(value: Any) -> Any:
    """The value as JSON has it: what is no finite number is null."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


def tolerance_of(case: dict[str, Any]) -> dict[str, float]:
    """The case's tolerance: an object with `rel` and `abs`, or one number for both; nothing is exact."""
    given = case.get("tolerance")
    if isinstance(given, int | float):
        return {"rel": float(given), "abs": float(given)}
    return {key: float(value) for key, value in given.items() if isinstance(value, int | float)} if given else {}


def main(arguments: list[str]) -> int:
    """Answer the file named on the command line."""
    if len(arguments) != 1:
        print("usage: python tests/planner_cases.py FILE", file=sys.stderr)
        return 2
    try:
        cases = read_cases(Path(arguments[0]))
        fixture = candidates_of(cases)
    except FileProblem as problem:
        print(f"{arguments[0]}: {problem}", file=sys.stderr)
        return 2
    actual = {case["id"]: answer(case, fixture) for case in cases}
    wrong = [
        f"{case['id']}: {key}: got {actual[case['id']][key]!r}, expected {value!r}"
        for case in cases
        for key, value in case["expected"].items()
        if not agrees(actual[case["id"]][key], value, tolerance_of(case), key)
    ]
    print(json.dumps(actual, indent=1, allow_nan=False))
    print("\n".join(wrong) or f"all {len(cases)} cases agree", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
