"""Where a running pipeline's energy will end, and whether a budget is in danger. Imports neither polars nor torch.

A stage's final energy is what it has used plus the steps left times the rate of increments. The first interval is
dropped: it holds warm-up and loading, and an offset in it would be multiplied by total / done. The rate is the
Theil-Sen slope. The band is sqrt((t·se)² + (2 % of the remaining energy)²): increments of real runs drift, so their
own scatter alone covers far too little.

Energies are in any one unit (the recorder uses J).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from planners.stats import normal_cdf, two_sided

DRIFT = 0.02
"""Relative drift of the rate that is always allowed for, on the remaining energy."""
FEW_INTERVALS = 3
"""Below this many intervals the band is widened and the guard never stops."""
WIDEN = 3.0
WARN_AT, STOP_AT = 0.50, 0.95
"""P(over budget) at which the guard warns, and stops where it was asked to."""
STOP_AFTER = 0.03
"""Share of the work that must be done before the guard stops anything."""
MOST_POINTS = 48
LEVEL = 0.9


@dataclass(frozen=True)
class Forecast:
    """Final energy of one stage; every number is None while `status` is `insufficient`."""

    status: Literal["ok", "insufficient"]
    final: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    used: float = 0.0
    rate: float | None = None
    """Energy per step."""
    progress: float = 0.0
    """Steps done / total steps."""
    intervals: int = 0

    @property
    def remaining(self) -> float | None:
        """Energy still to come."""
        return None if self.final is None else max(0.0, self.final - self.used)


def naive_final(points: Sequence[tuple[float, float]], total_steps: float) -> float | None:
    """Cumulative energy x total / done: what a projection without dropping the warm-up says."""
    if not points or points[-1][0] <= 0:
        return None
    step, energy = points[-1]
    return energy * total_steps / step


def forecast(points: Sequence[tuple[float, float]], total_steps: float, level: float = LEVEL) -> Forecast:
    """Forecast from cumulative (step, energy) points of one stage, oldest first."""
    usable = _rising(points)
    used = usable[-1][1] if usable else 0.0
    progress = min(1.0, usable[-1][0] / total_steps) if usable and total_steps > 0 else 0.0
    if progress >= 1.0:
        return Forecast("ok", used, used, used, 0.0, used, None, 1.0, len(usable) - 1)
    if len(usable) < 2 or total_steps <= 0:
        return Forecast("insufficient", used=used, progress=progress)
    recent = since_change(usable)
    try:
        rate, se = slope(recent)
    except OverflowError:
        return Forecast("insufficient", used=used, progress=progress)
    left = total_steps - usable[-1][0]
    intervals = len(recent) - 1
    half = math.hypot(two_sided(level, max(1, intervals - 1)) * se * left, DRIFT * rate * left)
    if intervals < FEW_INTERVALS:
        half = WIDEN * max(half, DRIFT * rate * left)
    final = used + rate * left
    sd = half / two_sided(level)
    return Forecast("ok", final, max(used, final - half), final + half, sd, used, rate, progress, intervals)


def _rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Finite points with rising steps and energies that do not fall; a restart's repeated steps are left out."""
    kept: list[tuple[float, float]] = []
    for step, energy in points:
        if (
            math.isfinite(step)
            and math.isfinite(energy)
            and (not kept or (step > kept[-1][0] and energy >= kept[-1][1]))
        ):
            kept.append((step, energy))
    return kept


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Theil-Sen slope of at least two points, and its standard error from the scatter of neighbouring increments."""
    some = thin(points)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for index, a in enumerate(some) for b in some[index + 1 :]]
    rate = median(slopes)
    steps = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(some)]
    if len(steps) < 2:
        return rate, 0.0
    variance = sum((value - rate) ** 2 for value in steps) / (len(steps) - 1)
    return rate, math.sqrt(variance / len(steps))


def thin(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most `most` points, evenly chosen, both ends kept."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]


def since_change(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points since the rate last changed for good (another phase, a resume at another batch), else all.

    The later half is taken alone where its rate differs from the earlier half's by more than five times the standard
    error of the difference and by more than a tenth.
    """
    some = list(points)
    while len(some) >= 12:
        middle = len(some) // 2
        (early, early_se), (late, late_se) = slope(some[: middle + 1]), slope(some[middle:])
        changed = abs(late - early) > max(5.0 * math.hypot(early_se, late_se), 0.1 * abs(early))
        if not changed:
            break
        some = some[middle:]
    return some


class StageForecaster:
    """Collects a running stage's progress in bounded memory; `forecast()` at any time."""

    def __init__(self, total_steps: float | None = None) -> None:
        self.total_steps = total_steps
        self._points: list[tuple[float, float]] = []
        self._stride = 0.0

    def observe(self, step: float, energy: float, total_steps: float | None = None) -> None:
        """Note that `energy` was used up to `step`; later points replace earlier ones that are closer than needed."""
        self.total_steps = total_steps or self.total_steps
        points = self._points
        if points and step <= points[-1][0]:
            return
        if len(points) >= 2 and step - points[-2][0] < self._stride:
            points[-1] = (step, energy)
            return
        points.append((step, energy))
        if len(points) > 4 * MOST_POINTS:
            self._points = [*points[:-1:2], points[-1]]
            self._stride = (step - self._points[0][0]) / (2 * MOST_POINTS)

    def forecast(self, level: float = LEVEL) -> Forecast:
        """The forecast from what was seen so far."""
        return forecast(self._points, self.total_steps or 0.0, level)


@dataclass(frozen=True)
class Prior:
    """What an unstarted stage is expected to use, from earlier runs or the cost model."""

    mean: float
    sd: float


@dataclass(frozen=True)
class RunForecast:
    """Final energy of the whole run; None where an unfinished stage has neither a rate nor a prior."""

    used: float
    final: float | None
    low: float | None
    high: float | None
    sd: float | None
    progress: float
    may_stop: bool
    unknown: tuple[str, ...] = field(default=())

    @property
    def remaining(self) -> float | None:
        """Energy still to come."""
        return None if self.final is None else max(0.0, self.final - self.used)

    def p_over(self, budget: float) -> float | None:
        """P(final energy > budget); certain once it is used up, None while the final energy is unknown."""
        if self.used > budget:
            return 1.0
        if self.final is None or self.sd is None:
            return None
        if self.sd == 0:
            return float(self.final > budget)
        return 1.0 - normal_cdf((budget - self.final) / self.sd)


def forecast_run(
    done: float, running: dict[str, Forecast], pending: dict[str, Prior | None], level: float = LEVEL
) -> RunForecast:
    """Finished stages (`done`), running ones, and pending ones with their priors, added up.

    Errors of running stages are taken as independent. `used` is the energy so far.
    """
    used = done + sum(part.used for part in running.values())
    unknown = [name for name, part in running.items() if part.final is None]
    unknown += [name for name, prior in pending.items() if prior is None]
    if unknown:
        return RunForecast(used, None, None, None, None, 0.0, False, tuple(unknown))
    final = done + sum(part.final or 0.0 for part in running.values()) + sum(p.mean for p in pending.values() if p)
    variance = sum((part.sd or 0.0) ** 2 for part in running.values()) + sum(p.sd**2 for p in pending.values() if p)
    sd = math.sqrt(variance)
    half = two_sided(level) * sd
    sure = all(part.intervals >= FEW_INTERVALS or part.progress >= 1.0 for part in running.values())
    return RunForecast(used, final, max(used, final - half), final + half, sd, used / final if final > 0 else 0.0, sure)


@dataclass(frozen=True)
class GuardDecision:
    """What the guard does: nothing, warn once, or stop (save, wait, end as `over_budget`)."""

    action: Literal["none", "warn", "stop"]
    p_over: float | None
    used: float
    remaining: float | None
    hours_to_exhaustion: float | None
    text: str


def guard(
    run: RunForecast, budget: float, *, stop: bool = False, mean_w: float | None = None, unit_j: float = 1.0
) -> GuardDecision:
    """Decide on a forecast. A budget that is used up stops at once where `stop` was asked for.

    `mean_w` with `unit_j` (joules in the energies' unit) gives the hours until the budget is used up.
    """
    p = run.p_over(budget)
    hours = max(0.0, budget - run.used) * unit_j / mean_w / 3600.0 if mean_w else None
    spent = run.used > budget
    certain = p is not None and p > STOP_AT and run.progress >= STOP_AFTER and run.may_stop
    if stop and (spent or certain):
        action: Literal["none", "warn", "stop"] = "stop"
    else:
        action = "warn" if p is not None and p > WARN_AT else "none"
    return GuardDecision(action, p, run.used, run.remaining, hours, _guard_text(action, p, spent))


def _guard_text(action: str, p: float | None, spent: bool) -> str:
    if spent:
        return "the budget is used up"
    if p is None:
        return "too little is known to forecast the run's energy"
    return f"the run will pass its budget with probability {p:.0%}" if action != "none" else f"P(over budget) {p:.0%}"


def forecast_carbon_kg(done_kg: float, remaining_kwh: float, remaining_g_per_kwh: float, pue: float = 1.0) -> float:
    """Emissions of the whole run: what is booked stays, what is left gets the future intensity."""
    return done_kg + remaining_kwh * pue * remaining_g_per_kwh / 1000.0
