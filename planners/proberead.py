"""Probes out of a run directory: for each stage the energy at every progress report, from the ledger."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.types import Totals
from kdwatch.rundir.reader import Batch, RunReader
from planners.modelsize import reported_params_b
from planners.probes import Kind, Probe
from planners.runinfo import recipe_stages, stage_settings

KINDS: dict[str, Kind] = {
    "student.train": "student",
    "teacher.cache_logits": "forward",
    "teacher.generate": "generate",
    "teacher.evaluate": "evaluate",
    "evaluate": "evaluate",
}
BETWEEN_S = 0.2
"""Least time between two points of a curve."""


@dataclass
class Curve:
    """Energy of one stage over its tokens, as far as it was seen. Energies in J since the stage began."""

    stage: str
    work_j: float | None = None
    """Energy used before the work began."""
    work_t: float | None = None
    """Run time at which it began, s."""
    points: list[tuple[float, float]] = field(default_factory=list)
    steps: float = 0.0
    """Steps (generation: answers) at the last point."""
    total_j: float | None = None
    status: str = "pending"
    last_t: float = -1.0

    @property
    def since_work(self) -> tuple[tuple[float, float], ...]:
        """Points with the energy counted from the beginning of the work."""
        base = self.work_j if self.work_j is not None else 0.0
        return tuple((tokens, joules - base) for tokens, joules in self.points)


class CurveReader:
    """Follows a run, live or finished, and keeps the curve of each of its stages."""

    def __init__(self, run: Path) -> None:
        self.reader = RunReader(run)
        self.ledger = Ledger(self.reader.manifest)
        self.curves: dict[str, Curve] = {}
        self.events: list[dict[str, Any]] = []

    def poll(self) -> bool:
        """Take in what is new; False where nothing was."""
        batch = self.reader.poll()
        for item in _in_order(batch):
            if isinstance(item, Mapping):
                self._event(dict(item))
            else:
                self.ledger.sample(item.t, item.key, item.counter_j, item.power_w, item.average_w)
        return bool(batch.events or batch.samples)

    def _event(self, event: dict[str, Any]) -> None:
        self.ledger.event(event)
        kind, name = event.get("type"), event.get("stage")
        if kind == "model":
            self.events.append(event)
        if not isinstance(name, str):
            return
        curve = self.curves.setdefault(name, Curve(name))
        if kind == "stage_started":
            curve.status = "running"
        elif kind == "phase" and event.get("name") == "work":
            curve.work_j, curve.work_t = self._energy(name, event["t"]), event["t"]
            curve.points = [(0.0, curve.work_j)] if curve.work_j is not None else []
        elif kind == "progress" and event.get("tokens") and event["t"] >= curve.last_t + BETWEEN_S:
            self._point(curve, event)
        elif kind == "stage_ended":
            curve.status = str(event.get("status"))

    def _point(self, curve: Curve, event: Mapping[str, Any]) -> None:
        joules = self._energy(curve.stage, event["t"])
        if joules is not None and (not curve.points or event["tokens"] > curve.points[-1][0]):
            curve.points.append((float(event["tokens"]), joules))
            curve.steps = float(event.get("step") or 0.0)
            curve.last_t = event["t"]

    def _energy(self, stage: str, t: float) -> float | None:
        return _stage_j(self.ledger.totals(t), stage)

    def finish(self) -> None:
        """Fill in what each stage used in all; call it when the run has ended."""
        totals = self.ledger.totals()
        for curve in self.curves.values():
            curve.total_j = _stage_j(totals, curve.stage)


def _stage_j(totals: Totals, stage: str) -> float | None:
    return next((s.energy_j.get("total") for s in totals.stages if s.name == stage), None)


def _in_order(batch: Batch) -> Iterator[Any]:
    """Samples and events merged by time; at one time samples first."""
    samples = ((sample.t, 0, index, sample) for index, sample in enumerate(batch.samples))
    events = ((float(event.get("t") or 0.0), 1, index, event) for index, event in enumerate(batch.events))
    return (item for *_, item in heapq.merge(samples, events))


def read_probes(run: Path) -> list[Probe]:
    """The probes of a finished run, one for each stage that reported tokens."""
    found = CurveReader(run)
    while found.poll():
        pass
    found.finish()
    return probes_of(found)


def probes_of(found: CurveReader) -> list[Probe]:
    """Probes of the stages that were seen to the end."""
    probes = []
    for stage in recipe_stages(found.reader.manifest):
        kind, curve = KINDS.get(str(stage.get("uses"))), found.curves.get(str(stage.get("name")))
        if kind is None or curve is None or curve.total_j is None or len(curve.points) < 2:
            continue
        points = curve.since_work
        mine = [event for event in found.events if event.get("stage") == stage.get("name")]
        size = reported_params_b(mine, "student" if kind == "student" else "teacher")
        batch, length = _shape(kind, stage_settings(stage))
        probes.append(
            Probe(
                kind,
                points,
                startup_j=max(0.0, curve.total_j - points[-1][1]),
                total_j=curve.total_j,
                params_b=size,
                batch=batch,
                length=length,
                samples=curve.steps or None if kind == "generate" else None,
                of_teacher=stage.get("uses") == "teacher.evaluate",
            )
        )
    return probes


def _shape(kind: Kind, settings: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Batch and length that a stage's settings ask for; None where they leave it to the stage."""
    names = {"student": "batch_rows", "forward": "batch_tokens", "generate": "batch_rows", "evaluate": "batch_rows"}
    batch, length = settings.get(names[kind]), settings.get("max_new_tokens")
    return float(batch) if batch else None, float(length) if length and kind == "generate" else None
