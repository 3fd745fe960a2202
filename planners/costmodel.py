"""A stage's energy as an affine function of student size (and of tokens), per method and hardware.

    E = a + b·P        or, where token counts differ,  E = a + D·(b + c·P)

The overhead `a` stands for what does not grow with the student (loading, data, small kernels): in the study's table it
is worth 1.1 to 2.0 billion parameters, so neither a proportional nor a power law fits. What cannot be tested with the
points at hand is allowed for: with two sizes nothing says how straight the line is (the study's own 7B row lies 6 %
off it), so a discrepancy is added; with three or more sizes a lack-of-fit test decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from planners.assumed import ASSUMED_ENERGY_CV
from planners.linear import Degenerate, Fit, fit
from planners.stats import t_quantile, two_sided
from planners.variance import lack_of_fit, noise_at

Basis = Literal["measured", "interpolated", "extrapolated"]

UNTESTED_CURVATURE = 0.06
"""Relative sd of the line's error between two sizes, where no third size tests it."""
PER_E_FOLD = 0.10
"""Further relative sd for every factor e beyond the measured sizes."""
FARTHEST = 3.0
"""Factor beyond the measured sizes (or tokens) at which the model declines to answer."""


WIDEST = 0.6
"""Relative half-width at 90 % beyond which a line that does not fit is no answer."""


class Declined(Exception):
    """The model cannot defend an answer; the text says why and what to measure."""


class Observed(NamedTuple):
    """One run of a stage: student size in billions, energy in kWh, training tokens (None: unknown)."""

    params_b: float
    energy_kwh: float
    tokens: float | None = None


@dataclass(frozen=True)
class Prediction:
    """Energy of a stage's next run: mean, standard error of the mean, sd of one run around it, dof of both."""

    mean: float
    se: float
    run_sd: float
    dof: float
    basis: Basis

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Interval of the next run; never below 0."""
        half = two_sided(level, self.dof) * self.run_sd
        return max(0.0, self.mean - half), self.mean + half


@dataclass(frozen=True)
class StageModel:
    """A fitted stage. `predict` answers at any size that it can defend."""

    fitted: Fit
    observed: tuple[Observed, ...]
    by_tokens: bool
    discrepancy: float
    """Relative sd of what the line itself may be wrong by, between the measured sizes."""
    lack_sd: float | None
    """Relative scatter of the sizes' means around the line, where it is more than noise explains."""
    lack_dof: int

    @property
    def sizes(self) -> tuple[float, float]:
        """Smallest and largest measured size."""
        sizes = [o.params_b for o in self.observed]
        return min(sizes), max(sizes)

    def predict(self, params_b: float, tokens: float | None = None) -> Prediction:
        """Mean and spread at a size. Raises Declined beyond what the points can carry."""
        features = self._features(params_b, tokens)
        mean = self.fitted.mean(features)
        if mean <= 0:
            raise Declined(f"the line gives no positive energy at {params_b:g}B; measure one run near that size")
        beyond = self._beyond(params_b)
        self._check_range(params_b, beyond)
        leverage = self.fitted.leverage(features)
        cv, dof = noise_at([(o.params_b, o.energy_kwh) for o in self.observed], params_b, self.fitted)
        if self.lack_sd is not None:
            cv, dof = max(cv, self.lack_sd), float(self.lack_dof)
        wrong = self.discrepancy + PER_E_FOLD * beyond
        se = math.hypot(cv * math.sqrt(leverage), wrong * mean)
        found = Prediction(mean, se, math.hypot(se, cv * mean), dof, self._basis(params_b, beyond))
        half = two_sided(0.9, dof) * found.run_sd / mean
        if self.lack_sd is not None and half > WIDEST:
            why = f"the measured sizes do not lie on a line; an honest 90 % interval would be ±{half:.0%}"
            raise Declined(f"{params_b:g}B: {why}; measure one run near it")
        return found

    def _features(self, params_b: float, tokens: float | None) -> list[float]:
        if not self.by_tokens:
            self._check_tokens(tokens)
            return [1.0, params_b]
        if tokens is None:
            raise Declined("runs of this method differ in tokens; say for how many tokens to predict")
        known = [o.tokens for o in self.observed if o.tokens]
        if not min(known) / FARTHEST <= tokens <= max(known) * FARTHEST:
            raise Declined(f"{tokens:.3g} tokens are too far from the measured {min(known):.3g} to {max(known):.3g}")
        return [1.0, tokens / 1e6, tokens / 1e6 * params_b]

    def _check_tokens(self, tokens: float | None) -> None:
        known = [o.tokens for o in self.observed if o.tokens]
        if tokens is not None and not (known and math.isclose(tokens, known[0], rel_tol=0.05)):
            raise Declined("all runs of this method had one number of tokens; measure another before changing it")

    def _beyond(self, params_b: float) -> float:
        """ln of the factor by which a size lies outside the measured ones; 0 inside."""
        low, high = self.sizes
        return max(0.0, math.log(params_b / high), math.log(low / params_b))

    def _check_range(self, params_b: float, beyond: float) -> None:
        low, high = self.sizes
        farthest = math.log(FARTHEST) if self.lack_sd is None else 0.0
        if beyond > farthest + 1e-12:
            why = (
                "the sizes measured do not lie on a line"
                if self.lack_sd is not None
                else f"more than {FARTHEST:g} times outside"
            )
            raise Declined(
                f"{params_b:g}B is outside the measured {low:g}B to {high:g}B ({why}); measure one run near it"
            )

    def _basis(self, params_b: float, beyond: float) -> Basis:
        return "extrapolated" if beyond > 0 else "interpolated"


def fit_stage(observed: Sequence[Observed], residuals_elsewhere: Sequence[float] = ()) -> StageModel:
    """Fit one method's stage on one hardware. Needs two sizes; raises Declined otherwise.

    `residuals_elsewhere`: relative errors of the line at sizes known only as totals; they raise the discrepancy.
    """
    points = [o for o in observed if o.energy_kwh > 0]
    sizes = sorted({o.params_b for o in points})
    if len(sizes) < 2:
        raise Declined(f"student energy is known at {len(sizes)} size(s) of this method; measure at least two")
    by_tokens = _tokens_differ(points)
    features = [
        [1.0, o.tokens / 1e6, o.tokens / 1e6 * o.params_b] if by_tokens and o.tokens else [1.0, o.params_b]
        for o in points
    ]
    try:
        fitted = fit(features, [o.energy_kwh for o in points], relative=True)
    except Degenerate:
        raise Declined("sizes and tokens change together; measure one size at two numbers of tokens") from None
    testable = len(sizes) >= 3 and not by_tokens
    lack = lack_of_fit([(o.params_b, o.energy_kwh) for o in points], fitted) if testable else None
    discrepancy = 0.0 if testable and lack is None and fitted.dof >= 2 else UNTESTED_CURVATURE
    if residuals_elsewhere:
        discrepancy = max(discrepancy, math.sqrt(sum(r * r for r in residuals_elsewhere) / len(residuals_elsewhere)))
    sd, dof = lack if lack else (None, 0)
    return StageModel(fitted, tuple(points), by_tokens, discrepancy, sd, dof)


def _tokens_differ(points: Sequence[Observed]) -> bool:
    tokens = [o.tokens for o in points]
    known = [t for t in tokens if t]
    return len(known) == len(tokens) and len(points) >= 4 and max(known) > 1.05 * min(known)


def one_size(observed: Sequence[Observed], params_b: float) -> Prediction:
    """Prediction from runs of one size: for a size ratio r between E·r^0.5 and E·r, so E·r^0.75 with that spread.

    The lower end is a stage that is mostly overhead, the upper end one that is all compute. Raises Declined beyond a
    factor of ten.
    """
    sizes = {o.params_b for o in observed}
    if len(sizes) != 1:
        raise Declined("no run of this method with a known student energy")
    ratio = params_b / sizes.pop()
    if not 0.1 <= ratio <= 10:
        raise Declined(f"one measured size cannot carry a factor of {max(ratio, 1 / ratio):.3g}; measure a second size")
    energies = [o.energy_kwh for o in observed]
    mean = sum(energies) / len(energies) * ratio**0.75
    spread = mean * (ratio ** (0.25 if ratio > 1 else -0.25) - 1.0) / t_quantile(0.95, math.inf)
    run_sd = math.hypot(spread, ASSUMED_ENERGY_CV * mean)
    return Prediction(mean, run_sd, run_sd, math.inf, "extrapolated")


def mean_of_runs(energies: Sequence[float]) -> Prediction:
    """A stage that does not depend on the student: the mean of its runs; one run has the assumed spread."""
    count, mean = len(energies), sum(energies) / len(energies)
    if count == 1 or not mean:
        sd = ASSUMED_ENERGY_CV * mean
        return Prediction(mean, sd, sd, math.inf, "measured")
    sd = math.sqrt(sum((e - mean) ** 2 for e in energies) / (count - 1))
    if max(energies) == min(energies):
        return Prediction(mean, ASSUMED_ENERGY_CV * mean, ASSUMED_ENERGY_CV * mean, math.inf, "measured")
    return Prediction(mean, sd / math.sqrt(count), sd * math.sqrt(1 + 1 / count), count - 1.0, "measured")


def power_law(points: Sequence[tuple[float, float]], params_b: float) -> float:
    """E = k·P^x through the smallest and largest size: the usual alternative, worse for the study's table."""
    (p0, e0), (p1, e1) = min(points), max(points)
    return e0 * (params_b / p0) ** (math.log(e1 / e0) / math.log(p1 / p0))


def straight_line(points: Sequence[tuple[float, float]], params_b: float) -> float:
    """The affine prediction alone, without its spread."""
    observed = [Observed(p, e) for p, e in points]
    return fit([[1.0, o.params_b] for o in observed], [o.energy_kwh for o in observed], relative=True).mean(
        [1.0, params_b]
    )
