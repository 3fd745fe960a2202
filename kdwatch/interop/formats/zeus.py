"""ZeusMonitor's CSV log: one row a window, joules by GPU (and CPU, DRAM where newer versions wrote them)."""

from __future__ import annotations

import math
import re

from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.source import MOST_ROWS, TextSource
from kdwatch.interop.table import delimiter_of, split_row
from kdwatch.interop.values import NotANumber, parse_number

ENERGY = re.compile(r"^(gpu|cpu|dram)(\d*)_energy$")
EPOCH = 1e9


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read windows; a window inside another is kept as a detail and not added again."""
    columns: list[str] = []
    delimiter = ","
    log = ImportedLog(source.path, "zeus-monitor-csv", source.encoding)
    bad = 0
    for line in source.lines(MOST_ROWS):
        if not line.strip():
            continue
        if "window_name" in line:
            delimiter = delimiter_of(line)
        cells = split_row(line, delimiter)
        if "window_name" in cells:
            columns = cells
            continue
        log.rows += 1
        stage = _window(dict(zip(columns, cells, strict=False))) if len(cells) == len(columns) else None
        if stage is None:
            bad += 1
        else:
            log.stages.append(stage)
    if bad:
        log.note("malformed_rows", f"{bad} rows could not be read")
    if not log.stages:
        raise LogProblem("no complete window", rows=log.rows, columns=columns)
    if not any(ENERGY.match(column) for column in columns):
        raise LogProblem("no energy column (gpu0_energy, ...)", rows=log.rows, columns=columns)
    _total(log)
    return log


def _window(row: dict[str, str]) -> LoggedStage | None:
    try:
        start, _ = parse_number(row["start_time"])
        elapsed, _ = parse_number(row["elapsed_time"])
        parts = {_key(name): parse_number(row[name])[0] for name in row if ENERGY.match(name)}
    except (NotANumber, KeyError):
        return None
    if elapsed is None or elapsed < 0:
        return None
    parts = {key: None if value is not None and value < 0 else value for key, value in parts.items()}
    return LoggedStage(row["window_name"], "other", start, elapsed, parts)


def _key(column: str) -> str:
    match = ENERGY.match(column)
    assert match
    return match[2] if match[1] == "gpu" else f"{match[1]}{match[2]}"


def _total(log: ImportedLog) -> None:
    starts = [stage.start for stage in log.stages]
    log.time_kind = "epoch" if all(s is not None and s > EPOCH for s in starts) else "elapsed"
    if log.time_kind == "elapsed":
        log.note(
            "monotonic_clock", "start_time counts from the machine's start: windows cannot be placed on a calendar"
        )
    outer = outermost(log.stages)
    log.details["windows"] = [stage.name for stage in log.stages]
    if len(outer) < len(log.stages):
        inner = [stage for stage in log.stages if not any(stage is other for other in outer)]
        again = sum(any(stage == other for other in outer) for stage in inner)
        if again:
            log.note("repeated_windows", f"{again} windows are in the file again and are not added again")
        if again < len(inner):
            log.note("nested_windows", f"{len(inner) - again} windows lie inside others and are not added again")
        log.details["nested"] = [{"name": s.name, "energy_j": s.energy_j, "duration_s": s.duration_s} for s in inner]
        log.stages = outer
    _sums(log, outer)


def outermost(stages: list[LoggedStage]) -> list[LoggedStage]:
    """Windows that lie in no other; of windows that overlap in part all are kept."""
    if any(stage.start is None for stage in stages):
        return stages
    order = sorted(range(len(stages)), key=lambda i: (stages[i].start or 0.0, -(stages[i].duration_s or 0.0)))
    kept, end = [], -math.inf
    for i in order:
        stop = (stages[i].start or 0.0) + (stages[i].duration_s or 0.0)
        if stop <= end + 1e-6:
            continue
        kept.append(i)
        end = max(end, stop)
    return [stages[i] for i in sorted(kept)]


def _sums(log: ImportedLog, stages: list[LoggedStage]) -> None:
    seconds = math.fsum(stage.duration_s or 0.0 for stage in stages)
    keys = list(dict.fromkeys(key for stage in stages for key in stage.energy_j))
    for key in keys:
        values = [v for stage in stages if (v := stage.energy_j.get(key)) is not None]
        energy = math.fsum(values) if values else None
        kind = "cpu" if key.startswith("cpu") else "dram" if key.startswith("dram") else "gpu"
        scope = {"cpu": "package", "dram": "dram"}.get(kind, "gpu")
        mean = energy / seconds if energy is not None and seconds else None
        log.devices.append(LoggedDevice(key, kind, scope, energy_j=energy, duration_s=seconds, mean_w=mean))
    log.n_gpus = sum(device.kind == "gpu" for device in log.devices)
    known = [device.energy_j for device in log.devices if device.energy_j is not None]
    log.total_j = math.fsum(known) if known else None
    log.duration_s = seconds
    timed = [stage for stage in stages if stage.start is not None]
    if timed:
        first = min(stage.start or 0.0 for stage in timed)
        last = max((stage.start or 0.0) + (stage.duration_s or 0.0) for stage in timed)
        log.details["span_s"] = last - first
        if last - first > seconds * 1.01:
            log.note("unmeasured_time", f"{last - first - seconds:.6g} s between the windows were not measured")
        if last - first < seconds * 0.999:
            log.note("overlapping_windows", "windows overlap in part: the total counts that time more than once")
            log.total_j = None
    log.details["elapsed_s_sum"] = seconds
    first_window = stages[0]
    if first_window.duration_s:
        log.details["first_window_mean_w"] = {
            key: value / first_window.duration_s for key, value in first_window.energy_j.items() if value is not None
        }
