"""Intel Power Gadget's CSV: elapsed seconds, watts and cumulative joules per socket, and a footer of totals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.spool import Spool
from kdwatch.interop.table import split
from kdwatch.interop.values import number_or_none

DOMAIN = re.compile(r"^Cumulative (Package|Processor|DRAM) Energy_(\d+)\s*\(Joules\)$", re.IGNORECASE)
FOOTER = re.compile(r"^\s*([A-Za-z][^=]*?)\s*=\s*([-\d.,]+)\s*$")


@dataclass(slots=True)
class Domain:
    """One cumulative column and the power column beside it."""

    key: str
    kind: str
    energy_place: int
    power_place: int | None
    joules: float = 0.0
    before: float = 0.0
    peak_w: float | None = None
    trapezoid: float = 0.0
    """Joules from the power column, first to last row: a check on the counter."""
    watts: float | None = None
    counter: Spool = field(default_factory=Spool)


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read rows and footer. Raises LogProblem without elapsed time or a cumulative joule column."""
    columns: list[str] = []
    domains: list[Domain] = []
    footer: dict[str, float] = {}
    log = ImportedLog(source.path, "intel-power-gadget-csv", source.encoding, time_kind="elapsed")
    elapsed = 0.0
    place = None
    for line in source.short_lines():
        if not line.strip():
            continue
        cells = split(line, ",")
        if "Elapsed Time (sec)" in cells:
            columns, domains = cells, domains or _domains(cells)
            place = cells.index("Elapsed Time (sec)")
        elif match := FOOTER.match(line):
            if (value := number_or_none(match[2])) is not None:
                footer[match[1]] = value
        elif place is not None and len(cells) == len(columns):
            log.rows += 1
            elapsed = _row(cells, place, elapsed, domains, log)
        else:
            log.note("malformed_rows", "lines that are neither rows nor footer were left out")
    if not domains or not log.rows:
        raise LogProblem("no cumulative joule column with rows", rows=log.rows, columns=columns)
    _fill(log, domains, footer, elapsed)
    return log


def _domains(columns: list[str]) -> list[Domain]:
    found = []
    for place, name in enumerate(columns):
        match = DOMAIN.match(name)
        if not match:
            continue
        power = f"{match[1]} Power_{match[2]}(Watt)"
        dram = match[1].lower() == "dram"
        found.append(
            Domain(
                f"{'dram' if dram else 'package'}-{match[2]}",
                "dram" if dram else "cpu",
                place,
                columns.index(power) if power in columns else None,
            )
        )
    return found


def _row(cells: list[str], place: int, before: float, domains: list[Domain], log: ImportedLog) -> float:
    t = number_or_none(cells[place])
    if t is None or t < before:
        log.note("bad_times", "rows whose elapsed time is missing or falls were left out")
        return before
    for domain in domains:
        total = number_or_none(cells[domain.energy_place])
        if total is not None and total >= 0:
            domain.joules += total - domain.before if total >= domain.before else total
            if total < domain.before:
                log.note("counter_reset", f"{domain.key}: the cumulative energy falls: counted on from 0")
            domain.before = total
            domain.counter.add(t, domain.joules)
        watts = number_or_none(cells[domain.power_place]) if domain.power_place is not None else None
        if watts is not None and watts >= 0:
            domain.peak_w = watts if domain.peak_w is None else max(domain.peak_w, watts)
            if domain.watts is not None:
                domain.trapezoid += (domain.watts + watts) / 2 * (t - before)
            domain.watts = watts
    return t


def _fill(log: ImportedLog, domains: list[Domain], footer: dict[str, float], elapsed: float) -> None:
    log.duration_s = elapsed
    for domain in domains:
        measured = domain.joules > 0
        if not measured:
            log.note("not_measured", f"{domain.key} stays at 0 J: not measured, not zero")
        log.devices.append(
            LoggedDevice(
                domain.key,
                domain.kind,
                "dram" if domain.kind == "dram" else "package",
                counter=domain.counter if measured else None,
                energy_j=domain.joules if measured else None,
                duration_s=elapsed,
                mean_w=domain.joules / elapsed if measured and elapsed else None,
                peak_w=domain.peak_w if measured else None,
            )
        )
    known = [device.energy_j for device in log.devices if device.energy_j is not None]
    log.total_j = math.fsum(known) if known else None
    log.n_gpus = 0
    log.untimed_samples = log.rows
    log.details |= {
        "energy_j_trapezoid": {domain.key: domain.trapezoid for domain in domains},
        "footer": footer,
        "footer_j": footer.get("Cumulative Processor Energy_0 (Joules)"),
        "footer_mean_w": footer.get("Average Processor Power_0 (Watt)"),
    }
    if log.details["footer_j"] is None:
        log.note("no_footer", "the footer is missing: the log was cut off, energy is up to the last row")
