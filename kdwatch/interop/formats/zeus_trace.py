"""Zeus's published trace summaries: time and mean power of one epoch for each setting; no samples."""

from __future__ import annotations

import math

from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.source import MOST_ROWS, TextSource
from kdwatch.interop.table import delimiter_of, split_row
from kdwatch.interop.values import number_or_none


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Each row becomes a stage of one epoch: energy = time_per_epoch x average_power."""
    columns: list[str] = []
    delimiter = ","
    log = ImportedLog(source.path, "zeus-trace-summary-csv", source.encoding)
    limits = set()
    for line in source.lines(MOST_ROWS):
        if "time_per_epoch" in line:
            delimiter = delimiter_of(line)
        cells = split_row(line, delimiter)
        if "time_per_epoch" in cells:
            columns = cells
            continue
        if not line.strip():
            continue
        log.rows += 1
        row = dict(zip(columns, cells, strict=False))
        seconds, watts = number_or_none(row.get("time_per_epoch")), number_or_none(row.get("average_power"))
        if seconds is None or watts is None or seconds < 0 or watts < 0:
            log.note("malformed_rows", "rows without a time or a power are left out")
            continue
        limit = number_or_none(row.get("power_limit"))
        if limit is not None:
            limits.add(int(limit) if limit.is_integer() else limit)
        settings = {k: v for k, v in row.items() if k not in ("time_per_epoch", "average_power")}
        name = "/".join(str(value) for value in settings.values()) or f"row {log.rows}"
        log.stages.append(
            LoggedStage(
                name, "other", None, seconds, {"0": seconds * watts}, details={"mean_w": watts, "settings": settings}
            )
        )
    if not log.stages:
        raise LogProblem("no row with time_per_epoch and average_power", rows=log.rows, columns=columns)
    _total(log)
    log.details["power_limits"] = sorted(limits)
    return log


def _total(log: ImportedLog) -> None:
    log.total_j = math.fsum(stage.total_j or 0.0 for stage in log.stages)
    log.duration_s = math.fsum(stage.duration_s or 0.0 for stage in log.stages)
    log.n_gpus = 1
    mean = log.total_j / log.duration_s if log.duration_s else None
    peak = max(stage.details["mean_w"] for stage in log.stages)
    log.devices.append(LoggedDevice("0", "gpu", energy_j=log.total_j, duration_s=log.duration_s, mean_w=mean))
    log.details["energy_j_per_epoch_first"] = log.stages[0].total_j
    log.details["sum_energy_j_one_epoch_each"] = log.total_j
    log.details["max_mean_w"] = peak
    log.note("one_epoch_each", "averages of one epoch per setting: the total is one epoch of each, not a run's energy")
