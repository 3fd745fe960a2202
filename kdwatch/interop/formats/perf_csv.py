"""perf stat -x and -j: joules per event, or per interval with -I: they are added, never integrated."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field

from kdwatch.interop.formats.perf_domains import add_domains
from kdwatch.interop.model import ImportedLog, ImportOptions, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.spool import Spool
from kdwatch.interop.values import NotANumber, is_missing, number_or_none, to_float

UNIT = re.compile(r"([,;:|\t])(Joules|J)\1([^,;:|\t]*energy[^,;:|\t]*)", re.IGNORECASE)


@dataclass(slots=True)
class Event:
    """One event of one socket."""

    joules: float = 0.0
    intervals: int = 0
    missing: int = 0
    untimed_j: float = 0.0
    untimed: int = 0
    """Lines without a time stamp: all of them without -I, damaged ones with it."""
    last: float = 0.0
    peak_w: float | None = None
    trapezoid: float = 0.0
    """What integrating the joules as if they were watts gives: the wrong number, for the record."""
    before: tuple[float, float] | None = None
    counter: Spool = field(default_factory=Spool)


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Add up each event. Raises LogProblem where no line has joules."""
    events: dict[str, Event] = {}
    rows = bad = 0
    for line in source.short_lines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        rows += 1
        try:
            if line.lstrip().startswith("{"):
                _take_object(events, line)
            elif match := UNIT.search(line):
                cells = line[: match.start()].split(match[1])
                _take(events, *_cells(cells, comma=match[1] != ","), match[3].strip())
        except (NotANumber, OverflowError):
            bad += 1
    log = ImportedLog(source.path, "perf-stat-csv", source.encoding, rows=rows)
    bad += _settle_untimed(events)
    if not any(event.intervals for event in events.values()):
        raise LogProblem("no line with joules that were counted", rows=rows)
    if bad:
        log.note("malformed_rows", f"{bad} lines could not be read")
    _fill(log, events)
    return log


def _take_object(events: dict[str, Event], line: str) -> None:
    """A line of `perf stat -j`. Raises NotANumber where it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise NotANumber(line[:100]) from None
    name = str(entry.get("event", "")) if isinstance(entry, dict) else ""
    if "energy" in name and str(entry.get("unit", "")).lower() in ("joules", "j"):
        stamp = number_or_none(entry.get("interval"))
        _take(events, stamp, _joules(str(entry.get("counter-value", "")), comma=False), name)


def _take(events: dict[str, Event], t: float | None, joules: float | None, name: str) -> None:
    event = events.setdefault(name, Event())
    if joules is None:
        event.missing += 1
        return
    if joules < 0 or not math.isfinite(joules):
        raise NotANumber(str(joules))
    if t is None:
        event.untimed_j += joules
        event.untimed += 1
        return
    event.joules += joules
    event.intervals += 1
    if t > event.last:
        watts = joules / (t - event.last)
        event.peak_w = watts if event.peak_w is None else max(event.peak_w, watts)
    if event.before is not None:
        event.trapezoid += (t - event.before[0]) * (joules + event.before[1]) / 2
    event.before = (t, joules)
    event.last = max(event.last, t)
    event.counter.add(t, event.joules)


def _settle_untimed(events: dict[str, Event]) -> int:
    """Count lines without a time where no line has one; else leave them out: how many those are."""
    if any(event.intervals for event in events.values()):
        return sum(event.untimed for event in events.values())
    for event in events.values():
        event.joules, event.intervals = event.untimed_j, event.untimed
    return 0


def _cells(cells: list[str], comma: bool) -> tuple[float | None, float | None]:
    """Time stamp (None without -I) and joules (None for <not counted>) of the cells before the unit."""
    joules = _joules(cells[-1].strip(), comma)
    first = cells[0].strip()
    if len(cells) > 1 and re.fullmatch(r"\d+[.,]\d+", first):
        return to_float(first, comma), joules
    return None, joules


def _joules(value: str, comma: bool) -> float | None:
    return None if is_missing(value) or value.startswith("<") else to_float(value, comma)


def _fill(log: ImportedLog, events: dict[str, Event]) -> None:
    timed = all(event.before is not None for event in events.values() if event.intervals)
    seconds = max(event.last for event in events.values()) if timed else None
    add_domains(log, {name: event.joules if event.intervals else None for name, event in events.items()}, seconds)
    for device in log.devices:
        event = events[str(device.name)]
        device.peak_w = event.peak_w
        if timed:
            device.counter = event.counter
        if event.missing:
            log.note(
                "not_counted", f"{device.key}: {event.missing} intervals were not counted: their energy is unknown"
            )
    log.time_kind = "elapsed" if timed else None
    if timed:
        log.note("per_interval", "joules are per interval and are added, not integrated")
        log.details["n_intervals"] = max(event.intervals for event in events.values())
        log.details["wrong_trapezoid_of_j_as_w"] = {name: event.trapezoid for name, event in events.items()}
        log.details["max_interval_w"] = max((e.peak_w for e in events.values() if e.peak_w is not None), default=None)
    else:
        log.note("no_time", "perf -x without -I prints no duration: power is unknown")
