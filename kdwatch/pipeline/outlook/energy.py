"""Energy of a stage before it runs: `predicted` from finished runs on this hardware, else a `prior` from compute.

The prior is that of the H100, the only hardware it is known for; on other machines it is shown for models that nobody
would run on a CPU, and says so. Where neither carries, the energy is unknown and the reason is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kdwatch.ledger.units import KWH_J, format_number
from kdwatch.pipeline.outlook.amounts import Amounts
from kdwatch.pipeline.outlook.like import SAME_SIZE, same_settings, same_size, same_work
from kdwatch.pipeline.outlook.past import PastStage
from kdwatch.pipeline.outlook.probed import from_probes
from kdwatch.pipeline.resolve import ResolvedStage
from planners.costmodel import Declined, Observed, Prediction, fit_stage, one_size
from planners.probes import Probe
from planners.teachermodel import Forward, Generated, fit_generation, forward_energy_kwh

APART = 1.5
"""Factor between the shortest and the longest run from which a line through them means something."""
PRIOR_FROM_B = 0.5
"""Billions of parameters from which a model is meant for a GPU, whatever this machine is."""
DECODE_FACTOR = 2.0
"""Assumed 90 % range of the decode law where nothing was generated: half to twice."""
FORWARD_SHARE = 1 / 3
"""A forward pass takes 2 of the 6 FLOPs of a training step per parameter and token."""
H100 = "H100"


@dataclass(frozen=True)
class Energy:
    """A stage's energy to come, in joules; `low` and `high` at 90 %."""

    mean_j: float
    low_j: float
    high_j: float
    label: str
    """`predicted` (from runs here) or `prior` (from compute)."""
    basis: str
    """What it rests on, in a few words."""


def stage_energy(
    stage: ResolvedStage, regime: str, amounts: Amounts, past: Sequence[PastStage], hardware: str | None
) -> Energy:
    """Raises Declined, with the reason, where nothing can be said."""
    like = same_work(stage, past)
    if not like:
        return _prior(stage, regime, amounts, hardware)
    try:
        return _from_past(stage, amounts, like)
    except Declined as why:
        try:
            return _prior(stage, regime, amounts, hardware)
        except Declined:
            raise why from None


def _from_past(stage: ResolvedStage, amounts: Amounts, like: Sequence[PastStage]) -> Energy:
    size = amounts.model.params_b
    same = same_size(size, like)
    exact = same_settings(stage, same)
    if stage.recipe.uses in ("evaluate", "teacher.evaluate"):
        if not exact:
            raise Declined("it ran here with other tests or models only; run it once with these")
        return _labelled(_mean(exact), exact)
    if same:
        used = exact or same
        make = _generation if stage.recipe.uses == "teacher.generate" else _by_tokens
        return _labelled(make(stage, amounts, used), used, "" if exact else ", with another batch or number format")
    if stage.recipe.uses != "student.train" or size is None:
        raise Declined("it ran here with other models only; run it once with this one")
    sized = [old for old in same_settings(stage, like) or like if old.params_b]
    return _labelled(_by_size(size, amounts.tokens, sized), sized, " with other students")


def _by_size(size: float, tokens: float | None, past: Sequence[PastStage]) -> Prediction:
    observed = [Observed(old.params_b, old.energy_j / KWH_J, old.tokens) for old in past if old.params_b]
    if len({o.params_b for o in observed}) > 1:
        return fit_stage(observed).predict(size, tokens)
    return one_size(observed, size)


def _by_tokens(_: ResolvedStage, amounts: Amounts, same: Sequence[PastStage]) -> Prediction:
    """By tokens where they are known on both sides, else the mean of the runs.

    Runs of clearly different lengths carry a line (what does not grow with the tokens, and what does); runs of one
    length only a range, since nothing says how much of their energy was start-up. Raises Declined beyond a factor of
    ten of one length.
    """
    tokens = amounts.tokens
    points = [Forward(old.tokens, old.energy_j) for old in same if old.tokens]
    if not (tokens and points):
        return _mean(same)
    lengths = [point.tokens for point in points]
    if max(lengths) >= APART * min(lengths):
        return forward_energy_kwh(points, tokens)
    middle = sum(lengths) / len(lengths)
    if math.isclose(tokens, middle, rel_tol=SAME_SIZE):
        return _mean(same)
    try:
        return one_size([Observed(middle, point.energy_j / KWH_J) for point in points], tokens)
    except Declined:
        raise Declined(
            f"{format_number(tokens)} tokens are too far from the {format_number(middle)} run here; run one between"
        ) from None


def _mean(same: Sequence[PastStage]) -> Prediction:
    from planners.predict import mean_of_runs

    return mean_of_runs([old.energy_j / KWH_J for old in same])


def _generation(stage: ResolvedStage, amounts: Amounts, same: Sequence[PastStage]) -> Prediction:
    if amounts.tokens is None:
        raise Declined("the number of prompts is unknown")
    points = [
        Generated(old.tokens, _batch(old.settings), float(old.settings.get("max_new_tokens", 512)), old.energy_j)
        for old in same
        if old.tokens
    ]
    if not points:
        raise Declined("this teacher generated nothing here yet; run it once")
    if len({(p.batch, p.length) for p in points}) == 1:
        return _by_tokens(stage, amounts, same)
    model = fit_generation(points, amounts.model.params_b)
    return model.energy_kwh(amounts.tokens, _batch(stage.settings), float(stage.settings["max_new_tokens"]))


def _batch(settings: object) -> float:
    """Rows of a batch; 32 stands for "as many as fit"."""
    rows = settings.get("batch_rows") if isinstance(settings, dict) else None
    return float(rows or 32)


def _prior(stage: ResolvedStage, regime: str, amounts: Amounts, hardware: str | None) -> Energy:
    size, tokens = amounts.model.params_b, amounts.tokens
    never = "no run of it on this hardware; run it once, or kdwatch probe"
    if stage.recipe.uses not in ("student.train", "teacher.cache_logits", "teacher.generate"):
        raise Declined(never)
    here = hardware is not None and H100 in hardware
    if size is None or not (here or size >= PRIOR_FROM_B):
        raise Declined(never)
    if tokens is None:
        raise Declined("the number of tokens is unknown; put the data on this disk, or set `limit`")
    where = "compute on an H100" + ("" if here else ", not this machine")
    mean, low, high = _h100(stage, regime, size, tokens)
    return Energy(mean * KWH_J, low * KWH_J, high * KWH_J, "prior", where)


def _h100(stage: ResolvedStage, regime: str, size: float, tokens: float) -> tuple[float, float, float]:
    """Mean and 90 % range in kWh."""
    from planners.flops import PJ_PER_FLOP, prior_range_kwh, training_prior_kwh
    from planners.serving import decode_j_per_token

    if stage.recipe.uses == "teacher.generate":
        mean = tokens * decode_j_per_token(size, _batch(stage.settings)) / KWH_J
        return mean, mean / DECODE_FACTOR, mean * DECODE_FACTOR
    kind, share = "sft", FORWARD_SHARE
    if stage.recipe.uses == "student.train":
        wanted = "kd" if stage.settings["objective"] == "kd" else regime
        kind, share = wanted if wanted in PJ_PER_FLOP else "sft", 1.0
    low, high = prior_range_kwh(kind, size, tokens)
    return training_prior_kwh(kind, size, tokens, H100).mean * share, low * share, high * share


def probed_energy(stage: ResolvedStage, amounts: Amounts, probes: Sequence[Probe]) -> Energy:
    """From probes here. Raises Declined, with the reason."""
    found = from_probes(stage, amounts, probes)
    low, high = found.interval(0.9)
    return Energy(found.mean, low, high, "predicted", "from probes here")


def _labelled(found: Prediction, used: Sequence[PastStage], how: str = "") -> Energy:
    low, high = found.interval(0.9)
    count = "1 stage" if len(used) == 1 else f"{len(used)} stages"
    return Energy(found.mean * KWH_J, low * KWH_J, high * KWH_J, "predicted", f"from {count} run here{how}")
