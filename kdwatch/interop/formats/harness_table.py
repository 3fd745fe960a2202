"""The harness's stage_metrics.csv: finals, snapshots and summaries of the same stages in one table."""

from __future__ import annotations

import math
from collections import Counter

from kdwatch.interop.formats.harness_stage import add_devices, stage_of
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedStage, LogProblem
from kdwatch.interop.source import MOST_ROWS, TextSource
from kdwatch.interop.table import delimiter_of, split_row
from kdwatch.interop.values import number_or_none


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """One stage for each (stage_id, start_time): the row with the most GPU energy, as totals only grow."""
    columns: list[str] = []
    delimiter = ","
    rows: list[dict[str, str]] = []
    bad = 0
    for line in source.lines(MOST_ROWS):
        if not line.strip():
            continue
        if "gpu_energy_joules" in line:
            delimiter = delimiter_of(line)
        cells = split_row(line, delimiter)
        if "gpu_energy_joules" in cells:
            columns = cells
        elif len(cells) == len(columns):
            rows.append(dict(zip(columns, cells, strict=True)))
        else:
            bad += 1
    if not rows:
        raise LogProblem("no complete row", rows=bad, columns=columns)
    log = ImportedLog(source.path, "harness-stage-metrics-csv", source.encoding, rows=len(rows) + bad)
    if bad:
        log.note("malformed_rows", f"{bad} rows have another number of fields than the header: left out")
    log.stages = _one_per_stage(rows)
    add_devices(log)
    sources = Counter(row.get("source", "") for row in rows)
    energies = [value for row in rows if (value := number_or_none(row.get("gpu_energy_joules"))) is not None]
    log.details |= {
        "n_columns": len(columns),
        "distinct_stage_runs": len(log.stages),
        "rows_by_source": dict(sources),
        "snapshot_rows": sum(row.get("is_snapshot") == "True" for row in rows),
        "naive_sum_gpu_j": math.fsum(energies),
        "sum_gpu_j_max_per_stage_run": math.fsum(stage.energy_j["gpu"] or 0.0 for stage in log.stages),
        "zero_token_rows": sum(number_or_none(row.get("tokens_processed")) == 0 for row in rows),
    }
    if len(log.stages) < len(rows):
        log.note(
            "running_totals",
            f"{len(rows)} rows of {len(log.stages)} stage runs: finals, snapshots and summaries repeat each other",
        )
    return log


def _one_per_stage(rows: list[dict[str, str]]) -> list[LoggedStage]:
    best: dict[tuple[str, str], LoggedStage] = {}
    for row in rows:
        key = (row.get("stage_id", ""), row.get("start_time", ""))
        stage = stage_of(row)
        held = best.get(key)
        if held is None or (stage.energy_j["gpu"] or 0.0) > (held.energy_j["gpu"] or 0.0):
            best[key] = stage
    return list(best.values())
