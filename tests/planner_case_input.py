"""One planner case: its input, and the candidates that it names as observations of the planner."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planners import PlanRequest, PlanResult, plan
from planners.frontier import Point
from planners.observations import Observations
from planners.rowcheck import fill_total
from planners.schema import make_table, regime_of

Facts = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One case and the candidates that it may name."""

    input: dict[str, Any]
    asked: tuple[str, ...]
    fixture: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, given: dict[str, Any], asked: tuple[str, ...], fixture: dict[str, dict[str, Any]]) -> Case:
        """The case; candidates that the input describes in full stand in for the fixture's."""
        if isinstance(given.get("candidates"), dict):
            fixture = given["candidates"]
        return cls(given, asked, fixture)

    def observations(self, ids: Iterable[str] | None = None, **columns: dict[str, float]) -> Observations:
        """Candidates by id (default: those of the input, else all) with further columns by id."""
        names = list(ids or self.input.get("candidates") or self.fixture)
        rows = [row(name, self.fixture[name]) | {c: v.get(name) for c, v in columns.items()} for name in names]
        return Observations(make_table(rows))

    def plan(self, ids: Iterable[str] | None = None, **request: Any) -> PlanResult:
        """The plan for this case's candidates."""
        wanted = {"reuse_n": self.input.get("reuse_n", 1)} | request
        return plan(PlanRequest(**wanted), self.observations(ids))

    @cached_property
    def points(self) -> list[Point]:
        """The candidates on the plane at the case's reuse."""
        return [point(c) for c in self.plan().candidates if c["quality"] is not None]

    def of_size(self, size_b: float) -> list[str]:
        """Names of the candidates of one size."""
        return [name for name, c in self.fixture.items() if c["size_b"] == size_b]


def row(name: str, given: dict[str, Any]) -> dict[str, Any]:
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


def point(candidate: dict[str, Any]) -> Point:
    return Point(candidate["id"], candidate["per_student_kwh"], candidate["quality"])


def number(value: Any) -> float | None:
    """`"NaN"` and other numbers as text; text that is no number counts as NaN."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return math.nan
