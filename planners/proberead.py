"""Probes out of a run directory: what each part of a `probe` stage used, told apart by its own reports.

A stage of a full run starts a process, imports libraries, loads a model, works, saves and ends. Parts of a probe share
the process and the imports, so those are measured once and counted to the start-up of each.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import Ledger
from kdwatch.rundir.reader import RunReader, Sample
from planners.modelsize import reported_params_b
from planners.probes import Kind, Made, Probe, rate_of
from planners.runinfo import probing_stages, stage_settings

KINDS: dict[str, Kind] = {
    "preprocess": "preprocess",
    "student.train": "student",
    "teacher.cache_logits": "forward",
    "teacher.generate": "generate",
    "teacher.evaluate": "evaluate",
    "evaluate": "evaluate",
}
SHARED = "shared"
"""The part that imports what all others need."""


@dataclass
class Part:
    """What one part reported. Times are run times, s."""

    stage: str
    name: str
    phases: list[tuple[str, float]] = field(default_factory=list)
    counts: list[tuple[float, float, float]] = field(default_factory=list)
    """(time, tokens, steps), both cumulative."""
    models: list[Mapping[str, Any]] = field(default_factory=list)
    made: Made | None = None

    def at(self, phase: str) -> float | None:
        """When a phase began, the last time."""
        return next((t for name, t in reversed(self.phases) if name == phase), None)

    @property
    def work_end(self) -> float | None:
        """When the work was over: the next phase after it."""
        work = self.at("work")
        return next((t for _, t in self.phases if work is not None and t > work), None)

    @property
    def work_counts(self) -> list[tuple[float, float, float]]:
        """Counts that were reported during the work."""
        begin, end = self.at("work"), self.work_end
        return [c for c in self.counts if begin is not None and begin <= c[0] and (end is None or c[0] <= end)]

    @property
    def written(self) -> float | None:
        """Tokens that were reported after the work: those written."""
        end = self.work_end
        return next((tokens for t, tokens, _ in reversed(self.counts) if end is not None and t > end), None)

    @property
    def over(self) -> bool:
        """Whether it was seen to its end."""
        return self.at("end") is not None


class ProbeReader:
    """Follows a run, live or finished, and keeps the reports of its parts; energies are known when it is over."""

    def __init__(self, run: Path) -> None:
        self.reader = RunReader(run)
        self.parts: dict[tuple[str, str], Part] = {}
        self.status, self.exit_code = "running", None
        self.total_j: float | None = None
        """Energy of the whole run, J."""
        self._run = run
        self._stages = {str(stage.get("name")) for stage in probing_stages(self.reader.manifest)}
        self._windows: dict[str, list[float]] = {}
        self._curves: dict[str, list[tuple[float, float]]] = {}

    def poll(self) -> bool:
        """Take in what is new; False where nothing was."""
        batch = self.reader.poll()
        for event in batch.events:
            self._event(event)
        return bool(batch.events or batch.samples)

    def _event(self, event: Mapping[str, Any]) -> None:
        stage, kind, name = event.get("stage"), event.get("type"), event.get("part")
        if kind == "run_ended":
            self.status, self.exit_code = str(event.get("status")), event.get("exit_code")
        if stage not in self._stages:
            return
        if kind in ("stage_started", "stage_ended"):
            self._windows.setdefault(stage, []).append(event["t"])
        if isinstance(name, str):
            _take(self.parts.setdefault((stage, name), Part(stage, name)), event)

    def finish(self) -> None:
        """Work out what was used until each moment that a part reported; call it when the run has ended."""
        for stage, window in self._windows.items():
            parts = [part for part in self.parts.values() if part.stage == stage]
            times = {t for part in parts for _, t in part.phases} | {c[0] for part in parts for c in part.counts}
            marks = sorted({*window[:1], *window[-1:], *(t for t in times if window[0] <= t <= window[-1])})
            self._curves[stage], self.total_j = energy_at(self._run, stage, marks)

    @property
    def stages(self) -> list[str]:
        """Probing stages that were started."""
        return list(self._windows)

    def used(self, stage: str, begin: float | None, end: float | None) -> float:
        """Energy of a stage between two moments that were reported, J; 0 where one is unknown."""
        if begin is None or end is None:
            return 0.0
        return max(0.0, self._at(stage, end) - self._at(stage, begin))

    def _at(self, stage: str, t: float) -> float:
        curve = self._curves.get(stage, [])
        index = bisect_right(curve, (t, math.inf)) - 1
        return curve[index][1] if index >= 0 else 0.0

    def window(self, stage: str) -> tuple[float, float | None]:
        """When a stage began and ended."""
        times = self._windows[stage]
        return times[0], times[-1] if len(times) > 1 else None

    def points(self, part: Part, prompts: bool) -> tuple[tuple[float, float], ...]:
        """(tokens, J) since the work began, both cumulative; with `prompts` (prompts, J)."""
        begin = part.at("work")
        found = [(0.0, 0.0)]
        for t, tokens, steps in part.work_counts:
            done = steps if prompts else tokens
            if done > found[-1][0]:
                found.append((done, self.used(part.stage, begin, t)))
        return tuple(found)


def energy_at(run: Path, stage: str, marks: Sequence[float]) -> tuple[list[tuple[float, float]], float | None]:
    """[(time, J that the stage had used)] at each of the sorted `marks`, and the energy of the whole run, J.

    The ledger counts the spans between marks as it counts stages, edges and slow counters included.
    """
    reader = RunReader(run)
    ledger = Ledger(reader.manifest)
    gpus = next((s.get("gpus") for s in reader.manifest.get("stages", []) if s.get("name") == stage), None)
    spans = list(itertools.pairwise(marks))
    edges: list[dict[str, Any]] = []
    for number, (begin, end) in enumerate(spans):
        span = {"stage": f"{stage}/{number}", "kind": "other"}
        edges += [{"type": "stage_started", "t": begin, "gpus": gpus} | span,
                  {"type": "stage_ended", "t": end, "status": "completed"} | span]  # fmt: skip
    events, samples = [], []
    while (batch := reader.poll()).events or batch.samples:
        events += [event for event in batch.events if event.get("stage") != stage]
        samples += batch.samples
    for item in _in_order(samples, sorted([*events, *edges], key=lambda event: event["t"])):
        if isinstance(item, Mapping):
            ledger.event(item)
        else:
            ledger.sample(item.t, item.key, item.counter_j, item.power_w, item.average_w)
    totals = ledger.totals()
    used = {s.name: s.energy_j.get("total") or 0.0 for s in totals.stages}
    sums = itertools.accumulate((used.get(f"{stage}/{n}", 0.0) for n in range(len(spans))), initial=0.0)
    return list(zip(marks, sums, strict=True)), totals.total_j


def _take(part: Part, event: Mapping[str, Any]) -> None:
    kind = event.get("type")
    if kind == "phase":
        part.phases.append((str(event.get("name")), event["t"]))
    elif kind == "progress" and event.get("tokens"):
        part.counts.append((event["t"], float(event["tokens"]), float(event.get("step") or 0.0)))
    elif kind == "model":
        part.models.append(event)
    elif kind == "made" and event.get("rows"):
        part.made = Made(float(event["rows"]), float(event["tokens"]))


def _in_order(samples: Sequence[Sample], events: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Samples and events merged by time; at one time samples first."""
    first = ((sample.t, 0, index, sample) for index, sample in enumerate(samples))
    second = ((event["t"], 1, index, event) for index, event in enumerate(events))
    return (item for *_, item in heapq.merge(first, second))


def read_probes(run: Path) -> list[Probe]:
    """The probes of a finished run, one for each part that reported tokens."""
    found = ProbeReader(run)
    while found.poll():
        pass
    found.finish()
    return probes_of(found)


def probes_of(found: ProbeReader) -> list[Probe]:
    """Probes of the parts that were seen to the end."""
    probes = []
    for stage in probing_stages(found.reader.manifest):
        if str(stage.get("name")) not in found.stages:
            continue
        listed = stage_settings(stage).get("parts")
        for spec in listed if isinstance(listed, list) else ():
            probe = _probe(found, str(stage.get("name")), spec) if isinstance(spec, Mapping) else None
            if probe is not None:
                probes.append(probe)
    return probes


def _probe(found: ProbeReader, stage: str, spec: Mapping[str, Any]) -> Probe | None:
    part, uses = found.parts.get((stage, str(spec.get("name")))), str(spec.get("uses"))
    kind = KINDS.get(uses)
    if part is None or kind is None or not part.over or spec.get("measured") is False:
        return None
    points = found.points(part, kind == "evaluate")
    if len(points) < 2:
        return None
    settings = spec.get("with")
    settings = settings if isinstance(settings, Mapping) else {}
    used = found.used(stage, part.at("begin"), part.at("end"))
    tail = found.used(stage, part.work_counts[-1][0], part.work_end)
    saved = found.used(stage, part.work_end, part.at("end")) if kind in ("preprocess", "generate") else 0.0
    startup = used - points[-1][1] - tail - saved + (_slow_start(points) if kind != "evaluate" else 0.0)
    batch, length = _shape(kind, settings)
    role = "student" if uses in ("student.train", "evaluate") else "teacher"
    return Probe(
        kind,
        points,
        startup_j=max(0.0, startup) + _shared_j(found, part, kind) + _kept_load_j(found, part),
        total_j=used,
        params_b=reported_params_b(part.models, role),
        batch=batch,
        length=length,
        samples=part.work_counts[-1][2] or None if kind == "generate" else None,
        tail_j=tail + saved * points[-1][0] / (part.written or points[-1][0]),
        made=part.made,
        uses=uses,
        settings=settings,
    )


def _slow_start(points: Sequence[tuple[float, float]]) -> float:
    """What the first tokens took more than those after them, J."""
    rate = rate_of(points)
    return max(0.0, points[-1][1] - rate.j_per_token * points[-1][0]) if rate else 0.0


def _shared_j(found: ProbeReader, part: Part, kind: Kind) -> float:
    """What the part's stage would use alone and the probe paid once: starting and ending a process, imports."""
    begin, end = found.window(part.stage)
    mine = [other for (stage, _), other in found.parts.items() if stage == part.stage]
    starts = [t for other in mine if (t := other.at("begin")) is not None]
    ends = [t for other in mine if (t := other.at("end")) is not None]
    start = found.used(part.stage, begin, min(starts))
    if kind == "preprocess":  # what takes time at the end is the leaving of torch
        return start
    edges = start + found.used(part.stage, max(ends), end)
    shared = found.parts.get((part.stage, SHARED))
    if part.at("process") is not None or shared is None:
        return edges
    early = [other for other in mine if (other.at("begin") or 0.0) < (shared.at("begin") or 0.0)]
    imports = sum(found.used(part.stage, other.at("import"), other.at("load")) for other in early)
    return edges + imports + found.used(part.stage, shared.at("begin"), shared.at("end"))


def _kept_load_j(found: ProbeReader, part: Part) -> float:
    """Energy of loading a model that another part had loaded already."""
    if not any(model.get("kept") for model in part.models):
        return 0.0
    for (stage, _), other in found.parts.items():
        if stage == part.stage and any(m.get("role") == "teacher" and not m.get("kept") for m in other.models):
            return found.used(stage, other.at("load"), other.at("work"))
    return 0.0


def _shape(kind: Kind, settings: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Batch and length that a part's settings ask for; None where they leave it to the stage."""
    name = "batch_tokens" if kind == "forward" else "batch_rows"
    batch, length = settings.get(name), settings.get("max_new_tokens")
    return float(batch) if batch else None, float(length) if length and kind == "generate" else None
