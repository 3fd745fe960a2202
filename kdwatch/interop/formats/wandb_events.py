"""Weights & Biases system events as JSON lines: `system.gpu.N.powerWatts` over `_timestamp` or `_runtime`."""

from __future__ import annotations

import json
import re

from kdwatch.interop.formats.power_checks import finish
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.values import number_or_none

POWER = re.compile(r"^(?:system\.)?gpu\.(?:process\.)?(\d+)\.powerWatts$")


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read watts by GPU. Raises LogProblem where no line has them with a time."""
    log = ImportedLog(source.path, "wandb-events-jsonl", source.encoding)
    series: dict[str, PowerSeries] = {}
    epoch = bad = 0
    for line in source.lines():
        if not line.strip():
            continue
        log.rows += 1
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            bad += 1
            continue
        t = number_or_none(entry.get("_timestamp"))
        epoch += t is not None
        t = t if t is not None else number_or_none(entry.get("_runtime"))
        for name, value in entry.items():
            match, watts = POWER.match(str(name)), number_or_none(value)
            if match and watts is not None and watts >= 0 and t is not None:
                series.setdefault(match[1], PowerSeries()).add(t, watts)
    if not series:
        raise LogProblem("no line with powerWatts and a time", rows=log.rows)
    if bad:
        log.note("malformed_rows", f"{bad} lines are no JSON objects")
    if 0 < epoch < log.rows - bad:
        raise LogProblem(
            "some lines have _timestamp and some only _runtime: they cannot be put together", rows=log.rows
        )
    log.time_kind = "epoch" if epoch else "elapsed"
    for gpu, found in series.items():
        log.devices.append(LoggedDevice(gpu, "gpu", series=found, stats=found.stats()))
    log.n_gpus = len(log.devices)
    finish(log)
    return log
