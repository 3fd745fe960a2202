"""CSV files with energy counters over time and no power: the counter's rises are the energy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from kdwatch.interop.columns import Column
from kdwatch.interop.formats.power_checks import WRAPS_J
from kdwatch.interop.formats.power_plan import _key, _time, repeating_keys
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.spool import Spool
from kdwatch.interop.table import RowReader
from kdwatch.interop.times import NotATime, TimeParser
from kdwatch.interop.values import NotANumber, parse_number

COUNTERS_J = tuple(sorted((*WRAPS_J, 65_532.610987, 262_143.328850)))
"""Where energy counters begin again, the lowest first: RAPL's also at their `max_energy_range_uj`, just below."""

Fall = tuple[float, float, float]
"""Seconds (rows, where there is no time) from the reading before a fall, joules before and after it."""


def read_energy_columns(
    log: ImportedLog,
    columns: Sequence[Column],
    first: Sequence[list[str]],
    rest: Iterable[list[str]],
    reader: RowReader,
    options: ImportOptions,
) -> ImportedLog:
    """Energy counters that rise; the layout is learned from the rows in `first`.

    Raises LogProblem where the unit is not written, or the values fall and no wrapped counter explains it.
    """
    counters = [c for c in columns if c.role == "energy" and c.factor is not None]
    if not counters:
        raise LogProblem("no power column", rows=0)
    if len(counters) > 1:
        single = [c for c in counters if not c.total]
        counters = single or counters
    parser, places, _ = _time(columns, first, options.zone)
    key = _key(columns, first)
    found: dict[str, Spool] = {}
    bad_times = 0
    for number, row in enumerate(chain(first, rest)):
        t = _time_of(parser, [row[p] for p in places]) if parser else float(number)
        if t is None:
            bad_times += 1
            continue
        for column in counters:
            value = _joules(row[column.place], column)
            if value is not None:
                name = row[key.place] if key else column.name or str(counters.index(column))
                found.setdefault(name, Spool()).add(t, value)
    log.rows = reader.counts.rows
    log.time_kind = parser.kind if parser else None
    if bad_times:
        log.note("bad_times", f"{bad_times} rows have no readable time: left out")
    repeats = repeating_keys(list(found)) if key else []
    if repeats:
        log.note("total_rows", f"rows of {', '.join(repeats)[:200]} repeat the energy of other devices: left out")
    for name, readings in found.items():
        if name not in repeats:
            log.devices.append(_device(log, name, readings, counters[0].kind, timed=parser is not None))
    if not log.devices:
        raise LogProblem("no energy reading: every cell of the energy column is missing", rows=log.rows)
    log.note("energy_counter", "no power column: energy is the rise of the energy column")
    log.n_gpus = len(log.devices)
    log.total_j = sum(d.energy_j for d in log.devices if d.energy_j is not None)
    spans = [d.duration_s for d in log.devices if d.duration_s is not None]
    log.duration_s = max(spans) if spans else None
    return log


def _device(log: ImportedLog, name: str, readings: Spool, kind: str | None, timed: bool) -> LoggedDevice:
    """What a counter rose by, sorted by time or in the order of the rows.

    Raises LogProblem where it falls and no range of a counter explains it.
    """
    falls: list[Fall] = []
    start: float | None = None
    t = before = top = energy = fastest = 0.0
    last = -math.inf
    for t, joules in readings.sorted_pairs():
        if start is None:
            start = t
        elif joules < last:
            falls.append((t - before, last, joules))
        else:
            energy += joules - last
            fastest = max(fastest, (joules - last) / (t - before)) if t > before else fastest
        before, last, top = t, joules, max(top, joules)
    assert start is not None
    if falls:
        range_j = counter_range(falls, top, fastest)
        if range_j is None:
            raise LogProblem(
                f"the energy column of device {name!r} falls: a counter that was reset or wrapped, or energy per row; "
                "which of them cannot be known"
            )
        energy += sum(range_j - from_j + to_j for _, from_j, to_j in falls)
        text = f"the energy counter of device {name} wrapped {len(falls)} times at {range_j:.0f} J: counted on"
        log.note("counter_wrapped", text)
    duration = t - start if timed else None
    mean = energy / duration if duration else None
    return LoggedDevice(name, kind or "other", kind or "machine", energy_j=energy, duration_s=duration, mean_w=mean)


def counter_range(falls: Sequence[Fall], top: float, fastest: float) -> float | None:
    """The range (J) of a counter that rose on at a rate like elsewhere through every fall, None if there is none.

    `top` is its highest value (J), `fastest` its highest rate between other readings (W). A counter that could have
    wrapped more than once between two readings, or was reset, has none.
    """
    for range_j in COUNTERS_J:
        risen = [(dt, range_j - from_j + to_j) for dt, from_j, to_j in falls]
        if top <= range_j and all(rise <= 2 * fastest * dt < range_j for dt, rise in risen):
            return range_j
    return None


def _time_of(parser: TimeParser, cells: list[str]) -> float | None:
    try:
        return parser(" ".join(cells))
    except NotATime:
        return None


def _joules(cell: str, column: Column) -> float | None:
    try:
        value, _ = parse_number(cell, decimal_comma=True)
    except NotANumber:
        return None
    return None if value is None or value < 0 else value * (column.factor or 1.0)
