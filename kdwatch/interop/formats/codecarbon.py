"""CodeCarbon emissions.csv of 2.1 to 3.3: columns by name, running totals, zeros that mean "not measured"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.source import MOST_ROWS, TextSource
from kdwatch.interop.table import delimiter_of, split_row
from kdwatch.interop.times import NotATime, learn
from kdwatch.interop.values import number_or_none

KWH_J = 3.6e6
PARTS = (("cpu", "cpu_energy"), ("gpu", "gpu_energy"), ("ram", "ram_energy"))
KINDS = {"cpu": ("cpu", "package"), "gpu": ("gpu", "gpu"), "ram": ("ram_estimated", "dram")}
Row = dict[str, str]


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read one emissions file; runs in it become stages."""
    rows, columns, bad = read_rows(source)
    if not rows:
        raise LogProblem("the file has a header and no complete row", rows=bad, columns=columns)
    log = ImportedLog(source.path, "codecarbon-emissions-csv", source.encoding, rows=len(rows) + bad)
    if bad:
        log.note(
            "malformed_rows", f"{bad} rows have another number of fields than the header (a torn write?): left out"
        )
    log.details["n_columns"] = len(columns)
    fill(log, rows, options)
    return log


def read_rows(source: TextSource) -> tuple[list[Row], list[str], int]:
    """Rows by column name (a header may occur again with other columns), the last header, and bad rows."""
    rows: list[Row] = []
    columns: list[str] = []
    delimiter, bad = ",", 0
    for line in source.lines(MOST_ROWS):
        if not line.strip():
            continue
        if "energy_consumed" in line and "duration" in line:
            delimiter = delimiter_of(line)
            columns = split_row(line, delimiter)
            continue
        cells = split_row(line, delimiter)
        if len(cells) != len(columns) or not columns:
            bad += 1
            continue
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows, columns, bad


def merge(rows: Iterable[Row]) -> list[Row]:
    """One row a run (of task files: a task): of those with one id the longest, because they are running totals."""
    best: dict[str, Row] = {}
    for number, row in enumerate(rows):
        key = f"{row.get('run_id') or f'row {number}'}\0{row.get('task_name', '')}"
        held = best.get(key)
        if held is None or (number_or_none(row.get("duration")) or 0) >= (number_or_none(held.get("duration")) or 0):
            best[key] = row
    return list(best.values())


def fill(log: ImportedLog, rows: list[Row], options: ImportOptions) -> None:
    """Stages, devices, totals and diagnostics of a set of rows."""
    runs = merge(rows)
    if len(runs) < len(rows):
        log.note(
            "running_totals",
            f"{len(rows)} rows of {len(runs)} runs: rows of one run_id are running totals, the longest counts",
        )
    parser = learn([row.get("timestamp", "") for row in runs], "", options.zone)
    log.time_kind = parser.kind if parser and parser.kind in ("epoch", "local") else None
    for row in runs:
        log.stages.append(_stage(row, parser if log.time_kind else None))
    _devices(log, runs)
    sums = {key: _sum(number_or_none(row.get(column)) for row in runs) for key, column in SUMMED.items()}
    log.duration_s = sums["duration_s"]
    log.kwh, log.kg_co2e = _sum(_kwh(row, log) for row in runs), sums["kgCO2"]
    log.total_j = None if log.kwh is None else log.kwh * KWH_J
    naive = {key: _sum(number_or_none(row.get(column)) for row in rows) for key, column in SUMMED.items()}
    log.details |= {"sum_over_runs": sums, "naive_sum_over_rows": naive} | _facts(rows)
    log.n_gpus = max((int(n) for row in runs if (n := number_or_none(row.get("gpu_count"))) is not None), default=None)
    _diagnose(log, runs)


SUMMED = {
    "kWh": "energy_consumed",
    "kgCO2": "emissions",
    "cpu_kWh": "cpu_energy",
    "gpu_kWh": "gpu_energy",
    "ram_kWh": "ram_energy",
    "duration_s": "duration",
}


def _kwh(row: Row, log: ImportedLog) -> float | None:
    """A run's kWh: `energy_consumed`, else what its parts give."""
    whole = number_or_none(row.get("energy_consumed"))
    if whole is not None and whole >= 0:
        return whole
    log.note("total_missing", "energy_consumed is missing or negative in a run: the sum of its parts is taken")
    return _sum(number_or_none(row.get(column)) for _, column in PARTS)


def _sum(values: Iterator[float | None] | Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and value >= 0]
    return math.fsum(known) if known else None


def _stage(row: Row, parser: Any) -> LoggedStage:
    duration = number_or_none(row.get("duration"))
    end = None
    if parser is not None:
        try:
            end = parser(row.get("timestamp", ""))
        except NotATime:
            end = None
    parts = {name: _joules(row, name, column) for name, column in PARTS}
    details = {
        "run_id": " ".join(part for part in (row.get("run_id"), row.get("task_name")) if part) or None,
        "total_reported_j": _scaled(row.get("energy_consumed")),
        "kg_co2e": number_or_none(row.get("emissions")),
        "tracking_mode": row.get("tracking_mode") or None,
        "codecarbon_version": row.get("codecarbon_version") or None,
        "country": row.get("country_iso_code") or None,
        "pue": number_or_none(row.get("pue")),
    }
    start = end - duration if end is not None and duration is not None else None
    name = row.get("task_name") or row.get("project_name") or "codecarbon"
    return LoggedStage(name, "other", start, duration, parts, details=details)


def _scaled(cell: str | None) -> float | None:
    value = number_or_none(cell)
    return None if value is None or value < 0 else value * KWH_J


def _joules(row: Row, name: str, column: str) -> float | None:
    """Joules of one component; None where 0 means that nothing was measured."""
    value = _scaled(row.get(column))
    return None if name == "gpu" and value == 0 else value


def _devices(log: ImportedLog, runs: list[Row]) -> None:
    for name, column in PARTS:
        values = [stage.energy_j[name] for stage in log.stages]
        energy = _sum(values)
        kind, scope = KINDS[name]
        seconds = _sum(number_or_none(row.get("duration")) for row in runs if _joules(row, name, column) is not None)
        log.devices.append(
            LoggedDevice(
                name,
                kind,
                scope,
                _only({row.get(f"{name}_model", "") for row in runs}),
                energy_j=energy,
                duration_s=seconds,
                mean_w=energy / seconds if energy is not None and seconds else None,
                estimated=name != "gpu",
            )
        )


def _only(names: set[str]) -> str | None:
    """The one name that all runs give, else None."""
    return next(iter(names)) or None if len(names) == 1 else None


def _facts(rows: list[Row]) -> dict[str, Any]:
    def values(column: str, absent: str = "") -> list[str]:
        return sorted({row.get(column, absent) for row in rows})

    return {
        "distinct_run_ids": len(values("run_id")),
        "versions": values("codecarbon_version", "absent"),
        "projects": len(values("project_name")),
        "gpu_counts": [v.removesuffix(".0") for v in values("gpu_count")],
        "tracking_modes": values("tracking_mode"),
        "max_abs_component_mismatch_kWh": max(_mismatch(row) for row in rows),
        "gpu_power_times_duration_over_gpu_energy": [_ratio(row, "gpu") for row in rows],
        "cpu_power_times_duration_over_cpu_energy": [_ratio(row, "cpu") for row in rows],
        "emissions_rate_times_duration_over_emissions": [_rate_ratio(row) for row in rows],
    }


def _parts(row: Row) -> list[float]:
    """Energies of the parts that are known, kWh."""
    return [part for _, column in PARTS if (part := number_or_none(row.get(column))) is not None]


def _mismatch(row: Row) -> float:
    total, known = number_or_none(row.get("energy_consumed")), _parts(row)
    return abs(total - math.fsum(known)) if total is not None and known else 0.0


def _ratio(row: Row, part: str) -> float | None:
    power, seconds = number_or_none(row.get(f"{part}_power")), number_or_none(row.get("duration"))
    energy = _scaled(row.get(f"{part}_energy"))
    return None if power is None or seconds is None or not energy else round(power * seconds / energy, 4)


def _rate_ratio(row: Row) -> float | None:
    rate, seconds, kg = (number_or_none(row.get(name)) for name in ("emissions_rate", "duration", "emissions"))
    return None if rate is None or seconds is None or not kg else round(rate * seconds / kg, 4)


def _diagnose(log: ImportedLog, runs: list[Row]) -> None:
    unmeasured = [s.name for s in log.stages if s.energy_j["gpu"] is None]
    if unmeasured:
        log.note(
            "gpu_not_measured",
            f"gpu_energy is 0 or empty in {len(unmeasured)} of {len(runs)} runs: not measured, not zero",
        )
    ratios = [r for row in runs if (r := _ratio(row, "cpu")) is not None]
    if any(not 0.5 <= ratio <= 2 for ratio in ratios):
        log.note(
            "cpu_energy_mismatch",
            f"cpu_power x duration is {min(ratios):.3g} to {max(ratios):.3g} of cpu_energy: one is wrong",
        )
    log.note(
        "estimated", "CPU energy may be a share of the TDP and RAM energy a constant: taken as estimates of the tool"
    )
    modes = {row.get("tracking_mode") for row in runs} - {None, ""}
    if modes == {"process"}:
        log.note("process_scope", "tracking_mode process: CPU and RAM cover one process, not the machine")
    elif len(modes) > 1:
        log.note("mixed_scopes", "tracking_mode process and machine are mixed: do not compare their CPU energies")
    if any((row.get("codecarbon_version") or "0") < "3" for row in runs):
        log.note(
            "last_power", "gpu_power of versions before 3 is the last reading: energy is taken, never power x time"
        )
    off = [row for row in runs if _mismatch(row) > 1e-6 * (number_or_none(row.get("energy_consumed")) or 1)]
    if off:
        log.note("parts_differ", f"energy_consumed is not the sum of its parts in {len(off)} runs")
    whole = sum(number_or_none(row.get("energy_consumed")) is not None and not _parts(row) for row in runs)
    if whole:
        log.note("parts_unknown", f"energy_consumed comes without the energy of CPU, GPU or RAM in {whole} runs")
    counts = {row.get("gpu_count", "") for row in runs} - {""}
    if len(counts) > 1:
        log.note("gpu_count_changes", f"runs use different numbers of GPUs: {', '.join(sorted(counts))}")
