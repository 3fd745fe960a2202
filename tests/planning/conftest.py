"""Shared by the planner's tests: the study's observations, and tables made of a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planners.observations import Observations, load
from planners.rowcheck import fill_total
from planners.schema import make_table


@pytest.fixture(scope="session")
def paper() -> Observations:
    return load(["paper"])


@pytest.fixture(scope="session")
def observe() -> Callable[..., Observations]:
    """Observations from rows with any of the columns; what is left out is plain."""

    def make(*rows: dict[str, Any]) -> Observations:
        plain = {
            "regime": "sft",
            "basis": "measured",
            "scope": "gpu",
            "hardware": "board",
            "source": "own",
            "teacher_kwh": 0.0,
        }
        return Observations(make_table([fill_total(plain | row) for row in rows]))

    return make
