"""nvidia-smi dmon (positions from the last header seen) and pmon (refused: it never has power)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kdwatch.interop.formats.power_checks import finish
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.times import NotATime, TimeParser, learn
from kdwatch.interop.values import NotANumber, parse_number


@dataclass(slots=True)
class Dmon:
    """State while reading: the columns of the last header and what was found."""

    columns: list[str] = field(default_factory=list)
    rows: int = 0
    malformed: int = 0
    negative: int = 0
    series: dict[str, PowerSeries] = field(default_factory=dict)
    ticks: dict[str, int] = field(default_factory=dict)
    parser: TimeParser | None = None


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read dmon. Raises LogProblem for pmon and where no `pwr` column is there."""
    state = Dmon()
    for cells in _rows(iter(source.lines()), state):
        _take(cells, state, options)
    columns = state.columns
    facts: dict[str, Any] = {"rows": state.rows, "columns": columns}
    if "pid" in columns:
        raise LogProblem(
            "pmon has no power column, only each process's utilisation; log nvidia-smi dmon -s p -o DT for power",
            format="nvidia-smi-pmon",
            **facts,
        )
    if "pwr" not in columns and not state.series:
        shown = ", ".join(columns)[:300]
        raise LogProblem(f"no power column; it has {shown}; run dmon with -s p", format="nvidia-smi-dmon", **facts)
    return _log(source, state, options)


def _rows(lines: Iterator[str], state: Dmon) -> Iterator[list[str]]:
    for line in lines:
        text = line.strip()
        if not text:
            continue
        if text.startswith("#"):
            names = text.lstrip("#").replace(",", " ").split()
            if "gpu" in names:
                state.columns = names
            continue
        state.rows += 1
        cells = [cell.strip() for cell in text.split(",")] if "," in text else text.split()
        if len(cells) < len(state.columns) or not state.columns:
            state.malformed += 1
            continue
        yield cells


def _take(cells: list[str], state: Dmon, options: ImportOptions) -> None:
    columns = state.columns
    if "pwr" not in columns or "pid" in columns:
        return
    gpu = cells[columns.index("gpu")]
    tick = state.ticks.get(gpu, 0)
    state.ticks[gpu] = tick + 1
    try:
        watts, _ = parse_number(cells[columns.index("pwr")])
    except NotANumber:
        state.malformed += 1
        return
    if watts is None:
        return
    if watts < 0:
        state.negative += 1
        return
    t = _time(cells, state, options, tick)
    if t is None:
        state.malformed += 1
        return
    state.series.setdefault(gpu, PowerSeries()).add(t, watts)


def _time(cells: list[str], state: Dmon, options: ImportOptions, tick: int) -> float | None:
    places = [state.columns.index(name) for name in ("Date", "Time") if name in state.columns]
    if not places or options.interval_s is not None:
        return tick * (options.interval_s or 1.0)
    text = " ".join(cells[place] for place in places)
    if state.parser is None:
        state.parser = learn([text], "", options.zone)
    try:
        return state.parser(text) if state.parser else None
    except NotATime:
        return None


def _log(source: TextSource, state: Dmon, options: ImportOptions) -> ImportedLog:
    log = ImportedLog(source.path, "nvidia-smi-dmon", source.encoding, rows=state.rows)
    if options.interval_s is not None:
        log.time_kind = "elapsed"
    elif state.parser is not None:
        log.time_kind = "elapsed" if state.parser.kind == "clock" else state.parser.kind
    else:
        log.note("no_time", "no time in the file: duration and energy are unknown; give --interval SECONDS (dmon -d)")
    for gpu, series in state.series.items():
        device = LoggedDevice(gpu, "gpu", series=series)
        device.stats = series.stats(log.time_kind is not None)
        log.devices.append(device)
    if state.malformed:
        log.note("malformed_rows", f"{state.malformed} rows could not be read")
    if state.negative:
        log.note("negative_readings", f"{state.negative} negative readings are no power: left out")
    if not log.devices:
        raise LogProblem("no power reading: pwr is - in every row", rows=state.rows, columns=state.columns)
    log.n_gpus = len(log.devices)
    log.details["samples_per_gpu"] = {d.key: len(d.series or ()) for d in log.devices}
    finish(log)
    return log
