"""Tables in, decisions out: observations, frontier, cost model, design rules, recommendation.

The two calls that screens and commands need:

    observations = planners.load(["paper"])                       # once; reads files
    result = planners.plan(planners.PlanRequest(budget_kwh=20), observations)   # again at every change; pure
    result.to_json()                                              # the object of `kdwatch plan --json`

Names are resolved on first use, so that `planners.forecast` can be imported without polars.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planners.observations import Observations, load
    from planners.recommend import plan
    from planners.request import PlanRequest
    from planners.result import PlanResult

__all__ = ["Observations", "PlanRequest", "PlanResult", "load", "plan"]

_HOME = {
    "Observations": "planners.observations",
    "load": "planners.observations",
    "PlanRequest": "planners.request",
    "PlanResult": "planners.result",
    "plan": "planners.recommend",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'planners' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
