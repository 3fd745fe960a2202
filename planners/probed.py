"""What probes of the same hardware say of a candidate's student, beside what full runs say.

Full runs give a line through the sizes that were trained. A probe gives the energy per token at one size more. Of the
two answers the one with the narrower interval counts; neither is called measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planners.costmodel import Declined, Prediction
from planners.probes import Probe, predict_student
from planners.teachermodel import KWH_J, scaled

Row = dict[str, Any]
TRAINING = ("batch_rows", "packing", "gradient_checkpointing", "weights", "optimizer", "processes")
"""Settings of the training that change its energy per token."""
SAME_TOKENS = 0.05
"""Relative difference of two numbers of tokens that counts as none."""


@dataclass(frozen=True)
class Probes:
    """Probes of one hardware and scope."""

    probes: tuple[Probe, ...]
    hardware: str | None
    scope: str

    @property
    def place(self) -> tuple[str | None, str]:
        """Hardware and scope."""
        return self.hardware, self.scope

    def fits(self, row: Row) -> bool:
        """Whether they say something of runs like this one."""
        return row["hardware"] == self.hardware and row["scope"] == self.scope and row["source_kind"] == "own"


def of_group(found: Sequence[Probes], group: Sequence[Row]) -> tuple[Probe, ...]:
    """The probes of a group's hardware and scope; none where there are none."""
    return next((probes.probes for probes in found if probes.fits(group[0])), ())


def student_sizes(probes: Sequence[Probe]) -> set[float]:
    """Sizes of students that were probed, billions."""
    return {probe.params_b for probe in probes if probe.kind == "student" and probe.params_b}


def probed_student(probes: Sequence[Probe], mine: Sequence[Row], size: float, tokens: float | None) -> Prediction:
    """Energy in kWh of training the method of `mine` at a size. Raises Declined."""
    wanted = tokens or _tokens(mine)
    like = [probe for probe in probes if probe.kind == "student" and _alike(probe, mine[0])]
    if not like:
        raise Declined("no probe of this training")
    return scaled(predict_student(like, size, wanted), 1.0 / KWH_J)


def _tokens(mine: Sequence[Row]) -> float:
    known = [row["tokens"] for row in mine if row["tokens"]]
    if not known or max(known) > (1 + SAME_TOKENS) * min(known):
        raise Declined("runs of this method differ in tokens; say for how many tokens to predict")
    return sum(known) / len(known)


def _alike(probe: Probe, row: Row) -> bool:
    objective = "kd" if row["regime"] == "kd" else "sft"
    known = json.loads(row["hyperparameters"]) if row["hyperparameters"] else {}
    same = all(probe.settings.get(name) == known.get(name) for name in TRAINING)
    return same and probe.settings.get("objective", "sft") == objective


def narrower(one: Prediction | None, other: Prediction | None) -> Prediction | None:
    """The answer with the smaller relative spread of a next run."""
    known = [found for found in (one, other) if found is not None]
    return min(known, key=lambda found: found.run_sd / found.mean if found.mean > 0 else math.inf, default=None)
