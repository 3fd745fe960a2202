"""MLPerf's PTDaemon log (spl.txt): wall power of a whole system, -1 while the meter changes its range."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdwatch.interop.formats.power_checks import finish
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.times import NotATime, TimeParser
from kdwatch.interop.values import number_or_none


@dataclass(slots=True)
class Metered:
    """State while reading."""

    series: PowerSeries = field(default_factory=PowerSeries)
    rows: int = 0
    malformed: int = 0
    sentinels: int = 0
    differs: int = 0
    channels: int = 0
    marks: dict[str, list[float]] = field(default_factory=dict)
    """First and last time of each mark."""


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read total Watts; channels are parts of it."""
    parser = TimeParser("epoch" if options.zone else "local", order="mdy", zone=options.zone)
    found = Metered()
    for line in source.lines():
        if line.strip():
            found.rows += 1
            _take(line.split(","), parser, found)
    if not len(found.series):
        raise LogProblem(f"no valid Watts in {found.rows} rows", rows=found.rows)
    log = ImportedLog(source.path, "mlperf-ptdaemon-spl", source.encoding, time_kind=parser.kind, rows=found.rows)
    device = LoggedDevice("wall", "other", "machine", "power meter", series=found.series)
    device.stats = found.series.stats()
    log.devices.append(device)
    finish(log)
    log.n_gpus = 0
    _facts(log, found, source)
    return log


def _take(cells: list[str], parser: TimeParser, found: Metered) -> None:
    if len(cells) < 4 or cells[0] != "Time":
        found.malformed += 1
        return
    head = dict(zip(cells[2:12:2], cells[3:12:2], strict=False))
    watts = number_or_none(head.get("Watts"))
    try:
        t = parser(cells[1])
    except NotATime:
        watts = None
    if watts is None:
        found.malformed += 1
        return
    parts = [
        number_or_none(cells[i + 2])
        for i in range(12, len(cells) - 2)
        if cells[i].startswith("Ch") and cells[i + 1] == "Watts"
    ]
    found.channels = max(found.channels, len(parts))
    if watts < 0:
        found.sentinels += 1
        return
    if parts and all(part is not None and part >= 0 for part in parts):
        found.differs += abs(sum(part or 0.0 for part in parts) - watts) > max(0.5, 0.01 * watts)
    found.series.add(t, watts)
    mark = head.get("Mark", "").strip()
    if len(found.marks) < 10_000:
        span = found.marks.setdefault(mark, [t, t])
        span[1] = t


def _facts(log: ImportedLog, found: Metered, source: TextSource) -> None:
    log.details |= {
        "meters": 1,
        "channels": found.channels,
        "sentinel_rows": found.sentinels,
        "channel_sum_differs": found.differs,
        "crlf_lines": source.crlf_lines,
        "marks": [{"mark": mark, "duration_s": b - a} for mark, (a, b) in list(found.marks.items())[:100]],
    }
    log.note("wall_power", "power of a whole system at the wall, not of GPUs")
    if found.sentinels:
        log.note("sentinels", f"{found.sentinels} rows with negative total Watts (range change): missing")
    if found.malformed:
        log.note("malformed_rows", f"{found.malformed} lines could not be read")
    if any("ranging" in mark for mark in found.marks):
        log.note("ranging", "a ranging run finds the meter's range: run_1 is the one that is scored")
    stats = log.devices[0].stats
    if stats and stats.n_gaps:
        log.note("gap", f"{stats.n_gaps} gaps, {stats.gap_seconds:.6g} s in all, bridged")
    if len(found.marks) > 1:
        log.note("several_marks", f"{len(found.marks)} marks in one file: the total covers all of them")
