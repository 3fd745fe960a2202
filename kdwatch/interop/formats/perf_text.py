"""perf stat's text output: several runs in a file, either decimal mark, whole or in intervals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from kdwatch.interop.formats.perf_domains import add_domains, counted, keys_of
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedStage, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.values import NotANumber, to_float

DIGITS = r"(?:\d{1,3}(?:[\u202f\u00a0 ,.'’]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
JOULES = re.compile(
    rf"^\s*(?:\S+\s+)*?(?:(?P<t>\d+[.,]\d{{6,}})\s+)?(?P<value>{DIGITS}|<not \w+>)\s+(?:Joules|J)\s+"
    r"(?P<event>\S*energy\S*)"
)
OTHER = re.compile(rf"^\s*(?:{DIGITS}|<not \w+>)\s+(?:msec\s+)?(?P<event>[A-Za-z][\w:/,.=-]*)")
"""A counter that is no energy."""
ELAPSED = re.compile(rf"^[>\s]*(?P<value>{DIGITS})\s+(?:\+-\s*{DIGITS}\s+)?seconds\s+time elapsed")
RUN = re.compile(r"Performance counter stats for\s+(.*?)(?:\s+\((\d+) runs\))?:\s*$")


@dataclass(slots=True)
class PerfRun:
    """One block of results, numbers still as text."""

    name: str = ""
    events: dict[str, list[str]] = field(default_factory=dict)
    elapsed: str | None = None
    stamps: list[str] = field(default_factory=list)
    repeats: int = 1


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read all runs. Raises LogProblem where none has joules."""
    runs = [PerfRun()]
    rows = 0
    others: dict[str, None] = {}
    for line in source.short_lines():
        rows += bool(line.strip())
        if match := RUN.search(line):
            runs.append(PerfRun(match[1].strip("'"), repeats=int(match[2] or 1)))
        elif match := JOULES.match(line):
            runs[-1].events.setdefault(match["event"], []).append(match["value"])
            if match["t"]:
                runs[-1].stamps.append(match["t"])
        elif match := ELAPSED.match(line):
            runs[-1].elapsed = match["value"]
        elif (match := OTHER.match(line)) and len(others) < 12:
            others[match["event"]] = None
    runs = [run for run in runs if run.events]
    if not runs:
        shown = f"it has {', '.join(others)}; " if others else ""
        raise LogProblem(f"perf output without Joules; {shown}run perf stat -a -e power/energy-pkg/", rows=rows)
    log = ImportedLog(source.path, "perf-stat-text", source.encoding, rows=rows)
    comma = decimal_comma(runs)
    keys = keys_of(dict.fromkeys(event for run in runs for event in run.events))
    for number, run in enumerate(runs, 1):
        log.stages.append(_stage(run, number, comma, keys, log))
    _totals(log)
    return log


def decimal_comma(runs: list[PerfRun]) -> bool:
    """Whether `,` is the decimal mark of this file: decided by the last mark of its numbers."""
    texts = [text for run in runs for values in run.events.values() for text in values]
    texts += [run.elapsed for run in runs if run.elapsed] + [t for run in runs for t in run.stamps]
    for text in texts:
        if "," in text and "." in text:
            return text.rfind(",") > text.rfind(".")
    tails = [re.split(r"[.,]", text)[-1] for text in texts if "," in text]
    return any(len(tail) != 3 for tail in tails)


def _number(text: str, comma: bool) -> float | None:
    if text.startswith("<"):
        return None
    cleaned = re.sub(r"[\u202f\u00a0 '’]", "", text)
    cleaned = cleaned.replace(".", "").replace(",", ".") if comma else cleaned.replace(",", "")
    try:
        return to_float(cleaned)
    except (NotANumber, OverflowError):
        return None


def _stage(run: PerfRun, number: int, comma: bool, keys: dict[str, str], log: ImportedLog) -> LoggedStage:
    energies: dict[str, float | None] = {}
    for event, texts in run.events.items():
        values = [value for text in texts if (value := _number(text, comma)) is not None]
        energies[event] = math.fsum(values) if values else None
    elapsed = _number(run.elapsed, comma) if run.elapsed else None
    if elapsed is None and run.stamps:
        elapsed = _number(run.stamps[-1], comma)
    if run.repeats > 1:
        log.note("mean_of_repeats", f"run {number} is the mean of {run.repeats} repeats (perf -r), not their sum")
    parts = {keys[event]: energies[event] for event in counted(energies)}
    name = f"run {number}" + (f" {run.name}" if run.name and run.name != "system wide" else "")
    return LoggedStage(name, "other", None, elapsed, parts, details={"energy_j_by_event": energies})


def _totals(log: ImportedLog) -> None:
    spans = [stage.duration_s for stage in log.stages]
    seconds = math.fsum(s for s in spans if s is not None) if all(s is not None for s in spans) else None
    energies: dict[str, float | None] = {}
    for stage in log.stages:
        for event, value in stage.details["energy_j_by_event"].items():
            held = energies.get(event)
            energies[event] = value if held is None else held + (value or 0.0)
    add_domains(log, energies, seconds)
    if log.total_j is None:
        raise LogProblem("every energy is <not counted>: perf had no access to the counters", rows=log.rows)
    if any(value is None for stage in log.stages for value in stage.energy_j.values()):
        log.note("not_counted", "some runs have <not counted>: the total leaves them out")
    log.details |= {"runs": len(log.stages), "elapsed_s": spans}
    if log.total_j is not None and seconds:
        log.details["mean_w_total"] = log.total_j / seconds
