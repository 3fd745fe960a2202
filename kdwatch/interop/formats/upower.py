"""`upower -i` and `upower --monitor-detail` of a laptop: what its battery gives while it discharges."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kdwatch.interop.formats.power_checks import finish
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.times import NotATime, TimeParser, learn
from kdwatch.interop.values import NotANumber, parse_number

FIELD = re.compile(r"^\s+(updated|state|energy-rate|native-path):\s+(\S.*?)\s*$")
AGO = re.compile(r"\s*\(\d+ \w+ ago\)$")
Report = dict[str, str]


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Watts over time of the batteries that discharge. Raises LogProblem where there is no such reading."""
    reports = [report for report in _reports(source) if "energy-rate" in report]
    parser = learn([report["updated"] for report in reports if "updated" in report], "", options.zone)
    log = ImportedLog(source.path, "upower-text", source.encoding, rows=len(reports))
    batteries: dict[str, PowerSeries] = {}
    idle = bad = 0
    for number, report in enumerate(reports):
        if report.get("state") != "discharging":
            idle += 1
            continue
        watts, t = _watts(report["energy-rate"]), _time(parser, report, number, options)
        if watts is None or t is None or watts < 0:
            bad += 1
        else:
            batteries.setdefault(report.get("native-path", "battery"), PowerSeries()).add(t, watts)
    if not batteries:
        raise LogProblem("no battery that discharges: its rate is not what the machine draws", rows=log.rows)
    if idle:
        log.note("charging", f"{idle} of {log.rows} reports are of a battery that does not discharge: left out")
    if bad:
        log.note("malformed_rows", f"{bad} reports without a rate or a time could not be read")
    _fill(log, batteries, parser, options)
    return log


def _reports(source: TextSource) -> Iterator[Report]:
    """The fields of each report; one begins with the line that names its device, or else with its path."""
    report: Report = {}
    for line in source.short_lines():
        if match := FIELD.match(line):
            if match[1] == "native-path" and "native-path" in report:
                yield report
                report = {}
            report[match[1]] = AGO.sub("", match[2])
        elif "/org/freedesktop/UPower/" in line and report:
            yield report
            report = {}
    yield report


def _watts(text: str) -> float | None:
    try:
        value, unit = parse_number(text, decimal_comma=True)
    except NotANumber:
        return None
    return value if unit == "w" else None


def _time(parser: TimeParser | None, report: Report, number: int, options: ImportOptions) -> float | None:
    if options.interval_s is not None:
        return number * options.interval_s
    try:
        return 0.0 if parser is None else parser(report.get("updated", ""))
    except NotATime:
        return None


def _fill(
    log: ImportedLog, batteries: dict[str, PowerSeries], parser: TimeParser | None, options: ImportOptions
) -> None:
    log.n_gpus = 0
    log.time_kind = "elapsed" if options.interval_s is not None else parser.kind if parser else None
    for name, series in batteries.items():
        stats = series.stats(log.time_kind is not None)
        log.devices.append(LoggedDevice(name, "other", "machine", "battery", series=series, stats=stats))
    if log.time_kind is None:
        log.note("no_time", "no time that can be read: duration and energy are unknown; give --interval SECONDS")
    log.note("machine_power", "what the battery gives is the draw of the whole machine, not of its GPU")
    finish(log)
