"""Every fault has a test that asks a naive way for the same input."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import naive
import pytest
from fault_table import FAULTS

TESTS = Path(__file__).parents[1]


def marks(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Numbers in the function's `@pytest.mark.fault(…)`."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
            yield from (a.value for a in decorator.args if isinstance(a, ast.Constant))  # type: ignore[misc]


def naive_ways(function: ast.AST) -> set[str]:
    """Names used of the module `naive`, in the code or in programs that it holds as text."""
    text = ast.unparse(function)
    return {name for name in vars(naive) if f"naive.{name}(" in text or f"naive.{name} " in text}


def marked_tests() -> dict[int, list[tuple[str, set[str]]]]:
    """For each number its tests: node id and naive ways."""
    found: dict[int, list[tuple[str, set[str]]]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.fault" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in marks(node):
                    node_id = f"{path.relative_to(TESTS.parent)}::{node.name}"
                    found[number].append((node_id, naive_ways(node)))
    return found


FOUND = marked_tests()


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_each_fault_has_a_test_beside_the_naive_way(number: int) -> None:
    tests = FOUND[number]
    assert tests, f"fault {number} ({FAULTS[number]}) has no test"
    assert any(ways for _, ways in tests), f"fault {number}: no naive way beside ours in {[t for t, _ in tests]}"


def test_no_mark_of_an_unknown_fault() -> None:
    assert set(FOUND) == set(FAULTS) and len(FAULTS) == 60


def test_each_naive_way_is_asked() -> None:
    """The numbers in a way's description are those of tests that use it."""
    ways = {n for n, f in vars(naive).items() if getattr(f, "__module__", "") == "naive"}
    assert ways == set().union(*(ways for tests in FOUND.values() for _, ways in tests))
