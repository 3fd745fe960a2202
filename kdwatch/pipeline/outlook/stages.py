"""The outlook of a recipe: each stage with what would happen to it, its amounts and its energy; and the sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdwatch.pipeline.artifacts import Artifact, ArtifactStore
from kdwatch.pipeline.outlook.amounts import Amounts, amounts
from kdwatch.pipeline.outlook.probed import with_answers
from kdwatch.pipeline.recipe_model import Recipe
from kdwatch.pipeline.resolve import ResolvedStage, resolve, stored

if TYPE_CHECKING:
    from kdwatch.pipeline.outlook.energy import Energy
    from kdwatch.pipeline.outlook.past import PastStage
    from planners.probes import Probe


@dataclass(frozen=True)
class StageOutlook:
    """One stage before it runs."""

    stage: ResolvedStage
    amounts: Amounts
    reused: Artifact | None
    """The stored output that it would take."""
    energy: Energy | None
    """None: it is reused, or unknown (`why`)."""
    why: str | None
    """Why its energy is unknown."""


@dataclass(frozen=True)
class Machine:
    """What is known of this machine: its name and the stages that ran on it."""

    hardware: str | None
    past: Sequence[PastStage]
    probes: Sequence[Probe] = ()
    """Of the newest probing run on this hardware."""

    @classmethod
    def look(cls) -> Machine:
        """Find sensors and read finished runs; takes a second or so."""
        from kdwatch.pipeline.outlook.past import past_stages, this_hardware
        from planners.proberuns import probe_runs

        hardware = this_hardware()
        past = past_stages(hardware)
        scope = past[0].scope if past else None
        fits = (run.probes for run in probe_runs() if run.hardware == hardware and scope in (None, run.scope))
        return cls(hardware, past, next(fits, ()))


def outlook(recipe: Recipe, machine: Machine, store: ArtifactStore | None = None) -> list[StageOutlook]:
    """All stages in order. Reads stored outputs, changes nothing.

    Raises UsageProblem where an input file cannot be read.
    """
    store = store or ArtifactStore()
    known: dict[str, Amounts] = {}
    found = []
    for stage in resolve(recipe):
        reused = stored(store, stage, verify=False)
        known[stage.name] = with_answers(stage, amounts(stage, known, reused), machine.probes)
        energy, why = _energy(stage, recipe, known[stage.name], machine) if reused is None else (None, None)
        found.append(StageOutlook(stage, known[stage.name], reused, energy, why))
    return found


def _energy(
    stage: ResolvedStage, recipe: Recipe, amount: Amounts, machine: Machine
) -> tuple[Energy | None, str | None]:
    from kdwatch.pipeline.outlook.energy import probed_energy, stage_energy
    from planners.costmodel import Declined

    found, reason = None, None
    try:
        found = stage_energy(stage, recipe.regime, amount, machine.past, machine.hardware)
    except Declined as why:
        reason = str(why)
    if machine.probes and (found is None or found.label == "prior"):
        with suppress(Declined):
            return probed_energy(stage, amount, machine.probes), None
    return found, reason


@dataclass(frozen=True)
class Sum:
    """Energy of the stages that run, as far as it is known."""

    mean_j: float
    low_j: float
    high_j: float
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    """Stages whose energy is not in it."""


def total(stages: Sequence[StageOutlook]) -> Sum | None:
    """Sum of the stages that would run; None if none is known. Stages err independently: each side of their ranges is
    added in squares."""
    known = [s.energy for s in stages if s.energy is not None]
    if not known:
        return None
    mean = sum(energy.mean_j for energy in known)
    below = math.hypot(*[energy.mean_j - energy.low_j for energy in known])
    above = math.hypot(*[energy.high_j - energy.mean_j for energy in known])
    unknown = tuple(s.stage.name for s in stages if s.energy is None and s.reused is None)
    labels = tuple(dict.fromkeys(energy.label for energy in known))
    return Sum(mean, max(0.0, mean - below), mean + above, labels, unknown)


def as_json(stage: StageOutlook) -> dict[str, Any]:
    """One stage as plain values."""
    energy, amount = stage.energy, stage.amounts
    return {
        "name": stage.stage.name,
        "kind": stage.stage.kind,
        "uses": stage.stage.recipe.uses,
        "tokens": amount.tokens,
        "tokens_how": amount.how,
        "input_tokens": amount.input_tokens,
        "disk_b": amount.disk_b,
        "params": amount.model.params,
        "reuses": None if stage.reused is None else {"artifact": stage.reused.id, "energy_j": stage.reused.energy_j},
        "energy_j": None if energy is None else energy.mean_j,
        "energy_low_j": None if energy is None else energy.low_j,
        "energy_high_j": None if energy is None else energy.high_j,
        "energy_label": None if energy is None else energy.label,
        "energy_basis": stage.why if energy is None else energy.basis,
    }
