"""Calibration by probes: short runs of each stage, their rate of energy per token, and what the full stage will use.

    E = start-up + tokens · J/token

A probe is a stage that was watched while it began its work: how much energy it took to get there (`startup_j`) and how
energy grew with tokens after that. J/token is the Theil-Sen slope without the first interval, and what came behind
the last count (writing shards). It depends on student size (a line through two sizes), on the batch of a forward pass
(c0 + c1/B) and on batch and length of generation (`planners.teachermodel`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from planners.costmodel import Basis, Declined, Observed, Prediction, fit_stage, one_size
from planners.forecast import slope
from planners.linear import Degenerate, fit
from planners.teachermodel import Generated, fit_generation, scaled

Kind = Literal["preprocess", "student", "forward", "generate", "evaluate"]

LONG_RUN_SD = 0.06
"""Relative sd by which the rate of minutes differs from that of hours: warming boards, other users, other data."""
STARTUP_SD = 0.15
"""Relative sd of a start-up: caches are cold or warm."""
EVALUATION_SD = 0.1
"""Relative sd between two batches of an evaluation, and between a base model's answers and a trained one's."""
LEAST_INTERVALS = 4
"""Intervals between reports after which the first one, which holds the warm-up, is left out."""


class Made(NamedTuple):
    """What a probe handed on: rows that were kept, and their tokens."""

    rows: float
    tokens: float


@dataclass(frozen=True)
class Probe:
    """One watched stage. `points`: (tokens, J) since the work began, both cumulative, oldest first; of an evaluation
    (prompts, J)."""

    kind: Kind
    points: tuple[tuple[float, float], ...]
    startup_j: float
    total_j: float
    """All energy that the probe cost, J."""
    params_b: float | None = None
    batch: float | None = None
    length: float | None = None
    """Tokens generated per sample at most."""
    samples: float | None = None
    """Answers generated; None: unknown."""
    tail_j: float = 0.0
    """Energy of the work after the last count (a shard that was written), J; it grows with the tokens."""
    made: Made | None = None
    uses: str = ""
    """Built-in stage that was probed."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its settings, as far as the recipe named them."""

    @property
    def tokens(self) -> float:
        """Tokens seen."""
        return self.points[-1][0] if self.points else 0.0


@dataclass(frozen=True)
class Rate:
    """Energy per token of a probe and its standard error, J."""

    j_per_token: float
    se: float


def rate_of(points: Sequence[tuple[float, float]]) -> Rate | None:
    """The slope after the first interval; None with too few points."""
    usable = [p for p, q in itertools.pairwise(points) if q[0] > p[0]] + list(points[-1:])
    after = usable[1:] if len(usable) > LEAST_INTERVALS else usable
    if len(after) < 2 or after[-1][0] <= after[0][0]:
        return None
    value, se = slope(after)
    return Rate(value, se) if value > 0 else None


def _rated(probes: Sequence[Probe], kind: Kind) -> list[tuple[Probe, Rate]]:
    """Probes of a kind with their rates. The tail of the work, where a probe came to it, is added per token."""
    rated = [(probe, rate) for probe in probes if probe.kind == kind and (rate := rate_of(probe.points)) is not None]
    if not rated:
        raise Declined(f"no {kind} probe reported enough progress; probe longer")
    tail = max(probe.tail_j / probe.tokens for probe, _ in rated)
    return [(probe, Rate(rate.j_per_token + tail, rate.se)) for probe, rate in rated]


def _whole(rate: Prediction, tokens: float, startups: Sequence[float]) -> Prediction:
    """Start-up and work of a full stage, J."""
    work = scaled(rate, tokens)
    startup = sum(startups) / len(startups)
    se = math.hypot(work.se, LONG_RUN_SD * work.mean, STARTUP_SD * startup)
    run_sd = math.hypot(work.run_sd, LONG_RUN_SD * work.mean, STARTUP_SD * startup)
    basis: Basis = "extrapolated" if rate.basis == "extrapolated" else "interpolated"
    return Prediction(work.mean + startup, se, run_sd, rate.dof, basis)


def _measured(rates: Sequence[Rate]) -> Prediction:
    mean = sum(r.j_per_token for r in rates) / len(rates)
    se = math.hypot(*[r.se for r in rates]) / len(rates)
    return Prediction(mean, se, se, math.inf, "measured")


def predict_student(probes: Sequence[Probe], params_b: float | None, tokens: float) -> Prediction:
    """Energy in J of training on `tokens` tokens a student of `params_b` billions (None: of unknown, the only, size).

    A probed size gives its own rate, others a line through two sizes. Raises Declined.
    """
    rated = _rated(probes, "student")
    same = [(p, r) for p, r in rated if params_b is None or _close(p.params_b, params_b)]
    if same:
        return _whole(_measured([r for _, r in same]), tokens, [p.startup_j for p, _ in same])
    sized = [Observed(p.params_b, r.j_per_token) for p, r in rated if p.params_b]
    if params_b is None or not sized:
        raise Declined("the size of the probed student is unknown")
    several = len({o.params_b for o in sized}) > 1
    rate = fit_stage(sized).predict(params_b) if several else one_size(sized, params_b)
    return _whole(rate, tokens, [p.startup_j for p, _ in rated])


def _close(a: float | None, b: float) -> bool:
    return a is not None and math.isclose(a, b, rel_tol=0.02)


def predict_forward(probes: Sequence[Probe], tokens: float, batch: float | None = None) -> Prediction:
    """Energy in J of the teacher's forward pass over `tokens` tokens; by c0 + c1/B where two batches were probed."""
    rated = _rated(probes, "forward")
    batches = {p.batch for p, _ in rated if p.batch}
    startups = [p.startup_j for p, _ in rated]
    if batch is None or len(batches) < 2 or batch in batches:
        same = [r for p, r in rated if batch is None or len(batches) < 2 or p.batch == batch]
        return _whole(_measured(same), tokens, startups)
    rows = [[1.0, 1.0 / p.batch] for p, _ in rated if p.batch]
    try:
        line = fit(rows, [r.j_per_token for p, r in rated if p.batch], relative=True)
    except Degenerate:
        raise Declined("forward probes do not carry another batch") from None
    mean = line.mean([1.0, 1.0 / batch])
    if mean <= 0 or not min(batches) / 4 <= batch <= max(batches) * 4:
        raise Declined(f"batch {batch:g} is too far from the probed {min(batches):g} to {max(batches):g}")
    se = 0.03 * mean + max(r.se for _, r in rated)
    return _whole(Prediction(mean, se, se, math.inf, "interpolated"), tokens, startups)


def predict_preprocess(probes: Sequence[Probe], tokens: float) -> Prediction:
    """Energy in J of preparing `tokens` tokens; writing them is counted to the tokens. Raises Declined."""
    rated = _rated(probes, "preprocess")
    return _whole(_measured([r for _, r in rated]), tokens, [p.startup_j for p, _ in rated])


def predict_evaluation(probes: Sequence[Probe], rows: float) -> Prediction:
    """Energy in J of asking `rows` prompts, from the probe of the same evaluation. Raises Declined.

    Its rate is all of its work, in which prompts are encoded first, over all prompts. It is trusted less the fewer
    reports there were and the farther it is carried.
    """
    mine = [p for p in probes if p.kind == "evaluate" and len(p.points) > 1]
    if not mine:
        raise Declined("this evaluation was not probed")
    probe = mine[0]
    asked, joules = probe.points[-1]
    rate = (joules + probe.tail_j) / asked
    few = 1.0 / math.sqrt(len(probe.points) - 1)
    sd = rate * EVALUATION_SD * few * min(4.0, max(1.0, rows / asked) ** 0.25)
    return _whole(Prediction(rate, sd, sd, math.inf, "extrapolated"), rows, [probe.startup_j])


def predict_generation(
    probes: Sequence[Probe], samples: float, batch: float | None, length: float, teacher_params_b: float | None = None
) -> Prediction:
    """Energy in J of generating `samples` answers of at most `length` tokens at a batch (None: left to the memory).

    Answers are as long, relative to the limit, as those of the probes at the nearest limit. Raises Declined.
    """
    rated = _rated(probes, "generate")
    points = [Generated(1.0, p.batch, p.length, r.j_per_token) for p, r in rated if p.batch and p.length]
    same = [r for p, r in rated if p.batch == batch and p.length == length]
    startups = [p.startup_j for p, _ in rated]
    if not same and batch is None:
        raise Declined("the batch is left to the memory, and was not probed so at this length; set batch_rows")
    rate = (
        _measured(same)
        if same or batch is None
        else fit_generation(points, teacher_params_b).j_per_token(batch, length)
    )
    return _whole(rate, samples * length * _fill([p for p, _ in rated], length), startups)


def _fill(probes: Sequence[Probe], length: float) -> float:
    """Tokens per answer over the limit, at the probed limit nearest to `length`; 1 where answers were not counted."""
    counted = [p for p in probes if p.samples and p.length]
    if not counted:
        return 1.0
    nearest = min((p.length or 0.0 for p in counted), key=lambda limit: abs(math.log(limit / length)))
    mine = [p for p in counted if p.length == nearest]
    return sum(p.tokens for p in mine) / sum((p.samples or 0.0) * (p.length or 0.0) for p in mine)
