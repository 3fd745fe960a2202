"""A run directory of the study's harness: stages, snapshots, summaries, power logs and CodeCarbon files, by content."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from kdwatch.interop.detect import detect
from kdwatch.interop.formats import codecarbon, power_csv
from kdwatch.interop.formats.harness import parse_json, summary_facts, summary_stages
from kdwatch.interop.formats.harness_stage import add_devices, power_samples, stage_of
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedStage, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.times import NotATime, learn
from kdwatch.rundir.errors import UsageProblem

MAX_FILES = 5_000
MAX_DEPTH = 8
MAX_DRAWN = 5_000_000
"""Samples of a power log beside the stages that are still taken over for plots."""
STAGE_FORMATS = {"harness-stage-json", "harness-summary-json"}


@dataclass(slots=True)
class Found:
    """What the walk through a directory met."""

    stages: list[tuple[LoggedStage, list[float]]] = field(default_factory=list)
    """With each stage its untimed power samples."""
    summaries: list[dict[str, Any]] = field(default_factory=list)
    codecarbon: list[TextSource] = field(default_factory=list)
    power: list[TextSource] = field(default_factory=list)
    other: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def files_below(root: Path) -> Iterator[Path]:
    """Regular files below a directory, in order; links are not followed. Raises UsageProblem above 5000 files."""
    count = 0
    for folder, names, files in os.walk(root):
        names.sort()
        if len(Path(folder).relative_to(root).parts) >= MAX_DEPTH:
            names.clear()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                continue
            count += 1
            if count > MAX_FILES:
                raise UsageProblem(f"{root}: more than {MAX_FILES} files; name the run's directory or single files")
            yield path


def look(root: Path) -> Found:
    """Sort the files of a directory by what they contain."""
    found = Found()
    for path in files_below(root):
        try:
            source = TextSource(path)
            name = detect(source.head)
            if name == "harness-stage-json":
                data = parse_json(source)
                found.stages.append((stage_of(data), power_samples(data)))
            elif name == "harness-summary-json":
                found.summaries.append(parse_json(source))
            elif name == "codecarbon-emissions-csv":
                found.codecarbon.append(source)
            elif name == "power-csv" and "power" in source.head[:4000].lower():
                found.power.append(source)
            else:
                found.other.append(path)
        except UsageProblem as problem:
            found.problems.append(f"{path.name}: {problem}")
    found.stages = [pair for pair in found.stages if pair[0].total_j is not None]
    return found


def is_harness(root: Path) -> bool:
    """Whether a directory holds a stage or a summary of the harness."""
    return any(_format_of(path) in STAGE_FORMATS for path in files_below(root))


def _format_of(path: Path) -> str | None:
    try:
        return detect(TextSource(path).head)
    except UsageProblem:
        return None


def read_directory(root: Path, options: ImportOptions) -> ImportedLog:
    """One log of all stages in a directory. Raises LogProblem where there is none."""
    found = look(root)
    log = ImportedLog(root, "harness-run-dir")
    finals, snapshots = choose(found)
    log.stages = finals or _from_summaries(found, log)
    if not log.stages and not found.codecarbon:
        seen = ", ".join(sorted({path.name for path in found.other})[:8])
        raise LogProblem(
            f"{root}: no stage of the harness in it ({seen or 'no files'}); give single log files", format=None
        )
    log.rows = len(log.stages)
    if log.stages:
        add_devices(log)
    if snapshots:
        _snapshots(log, snapshots)
    _summaries(log, found)
    _codecarbon(log, found, options)
    _power(log, found, options)
    for problem in found.problems:
        log.note("unreadable_file", problem)
    return log


def choose(found: Found) -> tuple[list[LoggedStage], list[tuple[LoggedStage, list[float]]]]:
    """One stage for each (id, start): its final file, else its longest snapshot; and all snapshots."""
    best: dict[tuple[str, float | None], LoggedStage] = {}
    snapshots = [pair for pair in found.stages if pair[0].details.get("snapshot")]
    for stage, _ in found.stages:
        key = (stage.name, stage.start)
        if key not in best or _rank(stage) > _rank(best[key]):
            best[key] = stage
    order = sorted(best.values(), key=lambda stage: (stage.start is None, stage.start or 0.0))
    return order, sorted(snapshots, key=lambda pair: pair[0].duration_s or 0.0)


def _rank(stage: LoggedStage) -> tuple[bool, float]:
    return not stage.details.get("snapshot"), stage.duration_s or 0.0


def _from_summaries(found: Found, log: ImportedLog) -> list[LoggedStage]:
    best: dict[tuple[str, float | None], LoggedStage] = {}
    for summary in found.summaries:
        for stage in summary_stages(summary):
            best.setdefault((stage.name, stage.start), stage)
    if best:
        log.note(
            "summary_only", "only summaries, no stage files: rebuilt summaries carry token counts that are too low"
        )
    return list(best.values())


def _snapshots(log: ImportedLog, snapshots: list[tuple[LoggedStage, list[float]]]) -> None:
    if len(snapshots) == len(log.stages) or all(stage.details.get("snapshot") for stage in log.stages):
        log.format = "harness-snapshots"
    log.note("running_totals", "snapshots are running totals from the stage's start: the last one counts")
    log.details["snapshots"] = [
        {"stage_id": s.name, "step": s.step, "total_j": s.total_j, "duration_s": s.duration_s, "tokens": s.tokens}
        | s.details
        for s, _ in snapshots
    ]
    log.details["sum_of_snapshots_j"] = sum(stage.total_j or 0.0 for stage, _ in snapshots)
    pairs = [(a, b) for a, b in pairwise(snapshots) if (a[0].name, a[0].start) == (b[0].name, b[0].start)]
    log.details["later_starts_with_earlier"] = all(b[1][: len(a[1])] == a[1] for a, b in pairs) if pairs else None
    log.details["intervals"] = [_between(a, b) for (a, _), (b, _) in pairs]
    for stage in log.stages:
        stage.points = [_point(snap) for snap, _ in snapshots if (snap.name, snap.start) == (stage.name, stage.start)]


def _between(a: LoggedStage, b: LoggedStage) -> dict[str, Any]:
    return {
        "from_step": a.step,
        "to_step": b.step,
        "energy_j": (b.total_j or 0.0) - (a.total_j or 0.0),
        "tokens": b.tokens - a.tokens if a.tokens is not None and b.tokens is not None else None,
        "seconds": (b.duration_s or 0.0) - (a.duration_s or 0.0),
    }


def _point(snapshot: LoggedStage) -> dict[str, float | int]:
    point: dict[str, float | int] = {"t_s": snapshot.duration_s or 0.0}
    if snapshot.step is not None:
        point["step"] = snapshot.step
    if snapshot.tokens is not None:
        point["tokens"] = snapshot.tokens
    return point


def _summaries(log: ImportedLog, found: Found) -> None:
    if not found.summaries:
        return
    summary = max(found.summaries, key=lambda data: len(data.get("stages") or ()))
    facts = summary_facts(summary)
    log.details |= facts
    starts = [stage.start for stage in log.stages if stage.start is not None]
    parser = learn([str(facts["summary_start_local"] or "")])
    if starts and parser is not None and not parser.numeric:
        try:
            written = parser(str(facts["summary_start_local"]))
        except NotATime:
            return
        log.details["summary_local_start_minus_stage_epoch_start_h"] = (written - min(starts)) / 3600
        log.note("local_times", "the summary's times are local without a zone; the stages' epoch seconds are used")


def _codecarbon(log: ImportedLog, found: Found, options: ImportOptions) -> None:
    rows = []
    columns = 0
    for source in found.codecarbon:
        read, names, _ = codecarbon.read_rows(source)
        rows += read
        columns = max(columns, len(names))
    if not rows:
        return
    own = ImportedLog(log.path, "codecarbon-emissions-csv", rows=len(rows))
    own.details["n_columns"] = columns
    codecarbon.fill(own, rows, options)
    if not log.stages:
        own.details["files"] = len(found.codecarbon)
        for name in own.__slots__:
            setattr(log, name, getattr(own, name))
        log.path = own.path
        return
    log.details["codecarbon"] = {"rows": len(rows), "kwh": own.kwh, "kg_co2e": own.kg_co2e} | own.details
    if log.kg_co2e is None:
        log.kg_co2e = own.kg_co2e
    if own.kwh is not None and log.kwh is not None and own.kwh > 1.2 * log.kwh:
        log.note(
            "codecarbon_differs", f"CodeCarbon counts {own.kwh:.4g} kWh with CPU and RAM, the stages {log.kwh:.4g} kWh"
        )


def _power(log: ImportedLog, found: Found, options: ImportOptions) -> None:
    """Power logs beside the stages: their numbers in details, their watts for plots; the stages' totals count."""
    for source in found.power:
        try:
            power = power_csv.read(source, options)
        except UsageProblem as problem:
            log.note("unreadable_file", str(problem))
            continue
        logs = log.details.setdefault("power_logs", [])
        gaps = max((d.stats.gap_seconds for d in power.devices if d.stats), default=0.0)
        logs.append(
            {
                "file": source.path.name,
                "n_samples": power.n_samples,
                "duration_s": power.duration_s,
                "total_j": power.total_j,
                "gap_seconds": gaps,
            }
        )
        if not log.stages:
            log.devices += power.devices
        elif power.time_kind == "epoch":
            _draw(log, power)


def _draw(log: ImportedLog, power: ImportedLog) -> None:
    """Give the stages' GPU device the log's watts, all GPUs added, for plots: its energy stays what the stages say."""
    device = next((d for d in log.devices if d.key == "gpu"), None)
    if device is None or power.n_samples > MAX_DRAWN:
        return
    device.drawn = device.drawn or PowerSeries()
    series = [d.series for d in power.devices if d.series is not None]
    points = heapq.merge(*(one.points() for one in series), key=lambda point: point[0])
    for t, group in groupby(points, key=lambda point: point[0]):
        watts = [w for _, w in group]
        if len(watts) == len(series):
            device.drawn.add(t, sum(watts))
