"""The answer of the planner, and the JSON object of `kdwatch plan --json` (schema 1)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from planners.notes import Note

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Reason:
    """Why: the rule that fired, one sentence, and the numbers in it."""

    rule: str
    text: str
    values: dict[str, Any]
    source: str
    """`study`, `arithmetic`, or `extrapolation` where the rule is ours and not measured yet."""


@dataclass(frozen=True)
class Predicted:
    """What the recommended candidate is expected to use and score; None is unknown."""

    total_kwh: float
    total_kwh_low: float
    total_kwh_high: float
    per_student_kwh: float
    quality: float | None
    quality_low: float | None
    quality_high: float | None
    j_per_token: float | None
    stages_kwh: dict[str, float | None]
    p_within: float | None
    per_student_kwh_low: float | None = None
    per_student_kwh_high: float | None = None
    facility_kwh: float | None = None
    co2e_kg: float | None = None
    electricity_cost: float | None = None
    rental_cost: float | None = None
    gpu_hours: float | None = None
    lifecycle_kwh: float | None = None
    spread: str = "assumed"
    """`repeats` where the interval rests on repeated runs, `assumed`, or `model`."""


@dataclass(frozen=True)
class Recommendation:
    """The chosen candidate."""

    id: str
    regime: str
    student_params_b: float | None
    hyperparameters: dict[str, Any]
    predicted: Predicted
    basis: str
    reasons: tuple[Reason, ...]
    source: str
    hardware: str | None
    scope: str | None
    run_dir: str | None = None


@dataclass(frozen=True)
class BreakEven:
    """Reuse and serving break-even of one candidate."""

    id: str
    baseline: str | None
    n_star: float | None
    n_star_low: float | None
    n_star_high: float | None
    first_n_not_worse: int | None
    first_n_strictly_better: int | None
    n_verdict: str | None
    p_never: float | None
    basis: str
    t_star_tokens: float | None
    t_verdict: str | None
    t_reference: str | None


@dataclass(frozen=True)
class PlanResult:
    """Everything a screen or a command shows. `to_json()` is the contract's object."""

    feasible: bool
    objective: str
    limits: dict[str, Any]
    binding_limit: str | None
    slack_kwh: float | None
    reuse_n: int
    serve_tokens: float | None
    interval_level: float
    warnings: tuple[Note, ...]
    recommendation: Recommendation | None
    tie: list[str] | None
    tie_break: str | None
    runner_up: dict[str, Any] | None
    rejected: list[dict[str, Any]]
    unrated: list[str]
    cheapest: dict[str, Any] | None
    shortfall_kwh: float | None
    relaxations: list[dict[str, Any]]
    frontier: list[dict[str, Any]]
    break_even: list[BreakEven]
    choice_at_confidence: dict[str, Any] | None = None
    flips: list[dict[str, Any]] = field(default_factory=list)
    knee: dict[str, Any] | None = None
    hypervolume: float | None = None
    hypervolume_reference: tuple[float, float] | None = None
    frontier_j_per_token: list[dict[str, Any]] = field(default_factory=list)
    """The frontier of energy per token instead of per student: [{id, j_per_token, quality}]."""
    grid: dict[str, Any] | None = None
    allowed_kwh: float | None = None
    scope: str | None = None
    sources: tuple[str, ...] = ()
    program: list[dict[str, Any]] | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list)
    """Every candidate as a point: id, regime, size, energy, quality, basis, whether it is feasible."""

    def to_json(self) -> dict[str, Any]:
        """A plain object with every key of the contract; unknown is None, never NaN or infinity."""
        return {"schema": SCHEMA_VERSION} | _plain({name: getattr(self, name) for name in self.__dataclass_fields__})


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.12g}") + 0.0 if math.isfinite(value) else None
    return value
