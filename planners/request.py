"""What a person asks of the planner: limits and settings, checked together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kdwatch.rundir.errors import UsageProblem
from planners.checks import finite, whole
from planners.schema import SCOPES

_OPTIONS = {
    "budget_kwh": "budget",
    "program_budget_kwh": "program-budget",
    "co2e_kg": "co2",
    "reuse_n": "reuse",
    "interval_level": "interval",
    "teacher_training_kwh": "teacher-training",
}


def _option(name: str) -> str:
    """The name that people know a field by."""
    return _OPTIONS.get(name, name.replace("_", "-"))


Objective = Literal["max_quality", "min_energy"]


@dataclass(frozen=True)
class PlanRequest:
    """Limits (None: no limit) and settings. Energies kWh, masses kg CO2e, money in `currency`, power W.

    Construct it with any values; `planners.plan` calls `checked()`, which raises UsageProblem on bad or
    contradictory ones.
    """

    budget_kwh: float | None = None
    """Energy per student at reuse N."""
    program_budget_kwh: float | None = None
    """Energy of `students` students that share one teacher pass."""
    students: int | None = None
    min_quality: float | None = None
    co2e_kg: float | None = None
    cost: float | None = None
    gpu_hours: float | None = None

    reuse_n: int | None = None
    """Students that share the teacher's output; 1 unless given here or as `students`."""
    serve_tokens: float | None = None
    """Tokens that each student will serve; then energy ranks by training plus serving."""
    serve_batch: float = 32.0
    """Batch at which they are served, for the decode model."""
    serve_reference: str = "teacher"
    """What serves them otherwise: `teacher`, or a candidate's id."""

    energy_price: float | None = None
    """Currency per kWh."""
    gpu_hour_price: float | None = None
    currency: str = "USD"
    mean_gpu_w: float | None = None
    gpus: int = 1

    region: str | None = None
    intensity: float | None = None
    """g CO2e per kWh; instead of a region."""
    teacher_region: str | None = None
    teacher_intensity: float | None = None
    pue: float | None = None
    teacher_pue: float | None = None
    energy_scope: Literal["it", "facility"] = "it"
    """Whether the table's energies are of the machines, or of the site with its PUE in."""

    objective: Objective | None = None
    quality_tolerance: float = 0.0
    confidence: float | None = None
    """P(E <= limit) that a choice must have, 0.5 or more; None: choose by the mean."""
    interval_level: float = 0.9

    teacher: Literal["owned", "train"] = "owned"
    teacher_training_kwh: float | None = None
    """Energy of training the teacher, shared like its output; needed with `teacher="train"`."""
    teacher_outputs: Literal["compute", "cached"] = "compute"
    """`cached`: the teacher's output exists already and costs nothing."""
    teacher_batch: float | None = None
    """What-if: the batch of the teacher's generation."""
    max_new_tokens: float | None = None
    """What-if: the longest generation allowed."""
    prompt_share: float | None = None
    """What-if: share of the prompts kept, 0 to 1."""

    scope: str | None = None
    """Scope to plan in (`planners.schema.SCOPES`), `any` to compare across scopes; None: that of the first source."""
    predict: bool = False
    sizes: tuple[float, ...] = ()
    """Student sizes, in billions, to predict; empty: those of the observations."""
    tokens: float | None = None
    """Training tokens to predict for; None: as measured."""
    hypervolume_reference: tuple[float, float] | None = None
    """(kWh, Q) from which the frontier's hypervolume is counted."""

    def checked(self) -> PlanRequest:
        """This request, or a UsageProblem of one line."""
        for name in ("budget_kwh", "program_budget_kwh", "min_quality", "co2e_kg", "cost", "gpu_hours"):
            _optional(self, name, at_least=0)
        for name in ("serve_tokens", "energy_price", "gpu_hour_price", "quality_tolerance", "teacher_training_kwh"):
            _optional(self, name, at_least=0)
        for name in (
            "mean_gpu_w",
            "intensity",
            "teacher_intensity",
            "serve_batch",
            "teacher_batch",
            "max_new_tokens",
            "tokens",
        ):
            _optional(self, name, above=0)
        for name in ("pue", "teacher_pue"):
            _optional(self, name, at_least=1)
        for name in ("reuse_n", "students", "gpus"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), _option(name))
        for name in ("confidence", "interval_level", "prompt_share"):
            _fraction(self, name)
        if self.confidence is not None:
            finite(self.confidence, "confidence", at_least=0.5)
        self._check_names()
        self._check_together()
        return self

    def _check_names(self) -> None:
        for name, allowed in (
            ("objective", (None, "max_quality", "min_energy")),
            ("energy_scope", ("it", "facility")),
            ("teacher", ("owned", "train")),
            ("teacher_outputs", ("compute", "cached")),
            ("scope", (None, "any", *SCOPES)),
        ):
            if getattr(self, name) not in allowed:
                known = ", ".join(str(value) for value in allowed if value)
                raise UsageProblem(f"{_option(name)}: {getattr(self, name)!r} is unknown; use one of {known}")
        for size in self.sizes:
            finite(size, "sizes", above=0)

    def _check_together(self) -> None:
        for clash, text in (
            (
                self.budget_kwh is not None and self.program_budget_kwh is not None,
                "budget and program-budget: give one; the first is per student, the second for all students",
            ),
            (
                self.program_budget_kwh is not None and self.students is None,
                "program-budget: needs students, the number that share it",
            ),
            (
                self.students is not None and self.reuse_n not in (None, self.students),
                f"students {self.students or 0:g} and reuse {self.reuse_n or 0:g} contradict each other: give one",
            ),
            (
                self.region is not None and self.intensity is not None,
                "region and intensity: give one; an intensity replaces the region's",
            ),
            (
                self.teacher_region is not None and self.teacher_intensity is not None,
                "teacher-region and teacher-intensity: give one",
            ),
            (
                self.co2e_kg is not None and self.region is None and self.intensity is None,
                "co2: needs region or intensity, such as --region FRA or --intensity 56",
            ),
            (
                self.cost is not None and self.energy_price is None and self.gpu_hour_price is None,
                "cost: needs energy-price or gpu-hour-price",
            ),
            (
                self.teacher == "train" and self.teacher_training_kwh is None,
                "teacher train: needs teacher-training, the energy of training it",
            ),
            (
                self.teacher == "owned" and self.teacher_training_kwh is not None,
                "teacher-training: is used with teacher train only",
            ),
            (
                bool(self.sizes or self.tokens) and not self.predict,
                "sizes and tokens: are used with predict only",
            ),
            (
                self.teacher == "train" and self.teacher_outputs == "cached",
                "teacher train and teacher-outputs cached contradict each other: cached outputs need no teacher",
            ),
        ):
            if clash:
                raise UsageProblem(text)

    @property
    def n(self) -> int:
        """Students that share one teacher pass."""
        return int(self.students or self.reuse_n or 1)

    @property
    def allowed_kwh(self) -> float | None:
        """Energy budget per student, kWh."""
        if self.program_budget_kwh is not None:
            return self.program_budget_kwh / self.n
        return self.budget_kwh

    @property
    def has_energy_like_limit(self) -> bool:
        """Whether energy, carbon, money or GPU-hours are limited."""
        return any(limit is not None for limit in (self.allowed_kwh, self.co2e_kg, self.cost, self.gpu_hours))

    @property
    def goal(self) -> Objective:
        """The objective: as given, else highest quality under an energy-like limit, else lowest energy."""
        return self.objective or ("max_quality" if self.has_energy_like_limit else "min_energy")


def _optional(request: PlanRequest, name: str, *, above: float | None = None, at_least: float | None = None) -> None:
    value = getattr(request, name)
    if value is not None:
        finite(value, _option(name), above=above, at_least=at_least)


def _fraction(request: PlanRequest, name: str) -> None:
    value = getattr(request, name)
    if value is not None and not 0 < finite(value, _option(name)) < 1 and not (name == "prompt_share" and value == 1):
        raise UsageProblem(f"{_option(name)}: {value:g} cannot be used; give a number between 0 and 1, such as 0.9")
