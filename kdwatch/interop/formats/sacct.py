"""Slurm's sacct: -P, -p, fixed width or a markdown table; one energy for each job, not for each row."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

from kdwatch.interop.formats.harness_stage import stage_kind
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.source import MOST_ROWS, TextSource
from kdwatch.interop.times import NotATime, TimeParser, learn, parse_span
from kdwatch.interop.values import integer_or_none, number_or_none

SUFFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
ROUNDED = re.compile(r"^([\d.]+)\s*([KMGTP]?)$")
TRES = re.compile(r"(?:^|,)energy=(\d+(?:\.\d+)?)([KMGTP]?)")
NO_VALUE = (2**32 - 1, 2**32 - 2)
"""Slurm's INFINITE and NO_VAL."""
MOST_J = 2.0**62
"""More is a 64 bit INFINITE, NO_VAL or an overflow, also where it is rounded (`18446744073709.55G`)."""
LISTS = ("AllocTRES", "ReqTRES", "TRESUsageInTot", "NodeList")
"""Columns whose cells hold commas."""
Row = dict[str, str]


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read jobs; blank energy is unknown, 0 means no data. Raises LogProblem without an energy column or value."""
    rows, columns, malformed = read_rows(source)
    log = ImportedLog(source.path, "slurm-sacct", source.encoding, rows=len(rows))
    if not rows:
        raise LogProblem("a sacct header and no rows", rows=0, columns=columns)
    if not {"ConsumedEnergyRaw", "ConsumedEnergy", "AllocTRES"} & set(columns):
        shown = ", ".join(columns[:12])
        raise LogProblem(
            f"no energy column; it has {shown}; run sacct with -o JobID,ElapsedRaw,ConsumedEnergyRaw",
            rows=len(rows),
            columns=columns,
        )
    if malformed:
        log.note("malformed_rows", f"{malformed} rows have another number of fields than the header: left out")
    jobs = group(rows)
    parser = learn([row.get("Start", "") for row in rows], "", options.zone)
    for job in jobs:
        log.stages.append(_stage(job, parser))
    _facts(log, rows, jobs)
    _totals(log, jobs)
    return log


def read_rows(source: TextSource) -> tuple[list[Row], list[str], int]:
    """Rows by column name for each of the layouts, the columns, and how many lines below them fit no row."""
    columns: list[str] = []
    spans: list[tuple[int, int]] = []
    rows: list[Row] = []
    mark, malformed = "", 0
    for line in source.lines(MOST_ROWS):
        if not line.strip():
            continue
        if re.fullmatch(r"[\s|:+-]+", line):
            if columns and "|" not in line:
                spans = [match.span() for match in re.finditer(r"-+", line)]
            continue
        if not columns:
            mark = next((sign for sign in ",;\t" if sign in line and "|" not in line), "")
        cells = _joined(line.split(mark), columns) if mark else _cells(line, spans)
        if any(cell in ("ConsumedEnergyRaw", "ConsumedEnergy", "AllocTRES", "JobID", "JobIDRaw") for cell in cells):
            columns, spans = cells if cells[-1] else cells[:-1], []
            continue
        if len(cells) == len(columns) + 1 and not cells[-1]:
            cells.pop()
        if columns and len(cells) == len(columns):
            rows.append(dict(zip(columns, cells, strict=True)))
        elif columns:
            malformed += 1
    return rows, columns, malformed


def _joined(cells: list[str], columns: list[str]) -> list[str]:
    """Cells of `--delimiter=,`; `cpu=2,mem=4G` is put together again where just one column holds lists."""
    cells = [cell.strip() for cell in cells]
    lists = [place for place, name in enumerate(columns) if name in LISTS]
    extra = len(cells) - len(columns)
    if extra > 0 and len(lists) == 1:
        start, end = lists[0], lists[0] + extra + 1
        return [*cells[:start], ",".join(cells[start:end]), *cells[end:]]
    return cells


def _cells(line: str, spans: list[tuple[int, int]]) -> list[str]:
    if "|" in line:
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("|") and line.rstrip().endswith("|"):
            return cells[1:-1]
        return cells
    if spans:
        edges = [0, *(start for start, _ in spans[1:]), len(line)]
        return [line[a:b].strip() for a, b in pairwise(edges)]
    return line.split()


def energy_of(row: Row) -> float | None:
    """Joules of a row; None where the field is blank or 0 (no data)."""
    raw = number_or_none(row.get("ConsumedEnergyRaw"))
    if raw is None:
        raw = _rounded(row)
    return raw if raw is not None and 0 < raw < MOST_J and raw not in NO_VALUE else None


def _rounded(row: Row) -> float | None:
    """Joules of the fields that write them with a suffix."""
    tres = TRES.search(row.get("AllocTRES", "")) or TRES.search(row.get("TRESUsageInTot", ""))
    match = tres or ROUNDED.match(row.get("ConsumedEnergy", "").strip())
    try:
        return float(match[1]) * SUFFIX[match[2]] if match else None
    except ValueError:
        return None


def group(rows: list[Row]) -> list[tuple[Row, list[Row]]]:
    """The allocation row of each job and all its rows; without a JobID every row is a job of its own."""
    if not any(job_id(row) for row in rows):
        return [(row, [row]) for row in rows]
    jobs: dict[tuple[str, int], list[Row]] = {}
    runs: dict[str, int] = {}
    for row in rows:
        job = job_id(row).split(".")[0]
        members = jobs.get((job, runs.get(job, 0)), [])
        if "." not in job_id(row) and any(_other_start(row, member) for member in members):
            runs[job] = runs.get(job, 0) + 1
        jobs.setdefault((job, runs.get(job, 0)), []).append(row)
    return [(allocation(members), members) for members in jobs.values()]


def _other_start(row: Row, member: Row) -> bool:
    """Whether two allocation rows of one id began at different times: the job was requeued (`sacct -D`)."""
    starts = row.get("Start", ""), member.get("Start", "")
    return "." not in job_id(member) and starts[0] != starts[1] and all(start[:1].isdigit() for start in starts)


def job_id(row: Row) -> str:
    """The row's id, `7` of a job and `7.batch` of a step."""
    return row.get("JobID") or row.get("JobIDRaw") or ""


def allocation(members: list[Row]) -> Row:
    """The row that covers the whole job: `energy=` in AllocTRES, else a plain id, the longest of them."""
    plain = [row for row in members if "." not in job_id(row)] or members
    with_tres = [row for row in plain if "energy=" in row.get("AllocTRES", "")]
    return max(with_tres or plain, key=lambda row: (elapsed_of(row) or 0.0, energy_of(row) or 0.0))


def elapsed_of(row: Row) -> float | None:
    """Seconds that a row's job took."""
    raw = number_or_none(row.get("ElapsedRaw"))
    return raw if raw is not None else parse_span(row.get("Elapsed", ""))


def _stage(job: tuple[Row, list[Row]], parser: TimeParser | None) -> LoggedStage:
    row, members = job
    energy = energy_of(row)
    from_steps = energy is None and len(members) > 1
    if from_steps:
        energy = max((e for member in members if (e := energy_of(member)) is not None), default=None)
    start = None
    if parser is not None and not parser.numeric:
        try:
            start = parser(row.get("Start", ""))
        except NotATime:
            start = None
    name = " ".join(part for part in (job_id(row), row.get("JobName")) if part) or "job"
    nodes = integer_or_none(row.get("NNodes") or row.get("AllocNodes"))
    details = {"state": row.get("State", "").split(" ")[0] or None, "nodes": nodes, "from_steps": from_steps}
    return LoggedStage(
        name, stage_kind(row.get("JobName", "")), start, elapsed_of(row), {"nodes": energy}, details=details
    )


def _facts(log: ImportedLog, rows: list[Row], jobs: list[tuple[Row, list[Row]]]) -> None:
    field = "ConsumedEnergyRaw" if "ConsumedEnergyRaw" in rows[0] else "ConsumedEnergy"
    texts = [row.get(field, "").strip() for row in rows]
    energies = [energy for row in rows if (energy := energy_of(row)) is not None]
    log.details |= {
        "jobs": len(jobs),
        "blank": sum(not text for text in texts),
        "zero": sum(number_or_none(text) == 0 for text in texts),
        "with_energy": len(energies),
        "sum_of_rows_j": math.fsum(energies) if energies else None,
        "max_j": max(energies, default=None),
        "states": dict(Counter(row["State"].split(" ")[0] for row in rows if row.get("State"))),
    }
    if log.details["blank"]:
        log.note("energy_blank", f"{log.details['blank']} rows have no energy: unknown")
    if log.details["zero"]:
        log.note("energy_zero", f"{log.details['zero']} rows have energy 0: no data or never ran; not counted")
    if any("." in job_id(row) for row, _ in jobs):
        log.note("steps_only", "jobs without an allocation row: their largest step counts, the job may have used more")
    elif len(jobs) < len(rows):
        log.note(
            "steps_repeat",
            f"{len(rows)} rows of {len(jobs)} jobs: steps repeat the job's energy, the allocation's row counts",
        )
    if any(stage.details["from_steps"] and stage.total_j is not None for stage in log.stages):
        log.note("from_steps", "jobs without energy of their own get that of their largest step")


def _totals(log: ImportedLog, jobs: list[tuple[Row, list[Row]]]) -> None:
    known = [total for stage in log.stages if (total := stage.total_j) is not None]
    if not known:
        raise LogProblem("no energy in any row: the accounting plugin gave none", rows=log.rows)
    log.total_j = math.fsum(known)
    spans = [stage.duration_s for stage in log.stages if stage.total_j is not None]
    log.duration_s = math.fsum(s for s in spans if s is not None) if all(s is not None for s in spans) else None
    mean = log.total_j / log.duration_s if log.duration_s else None
    log.devices.append(
        LoggedDevice(
            "nodes",
            "other",
            "node",
            "all nodes of the job",
            energy_j=log.total_j,
            duration_s=log.duration_s,
            mean_w=mean,
        )
    )
    log.n_gpus = 0
    log.time_kind = "local" if all(stage.start is not None for stage in log.stages) else None
    log.note("node_energy", "node energy of the scheduler, not GPU energy")
    if len(jobs) == 1:
        _one_job(log, jobs[0][0])


def _one_job(log: ImportedLog, row: Row) -> None:
    stage = log.stages[0]
    nodes = stage.details["nodes"]
    mean = log.devices[0].mean_w
    tres = TRES.search(row.get("AllocTRES", ""))
    rounded = ROUNDED.match(row.get("ConsumedEnergy", "").strip())
    log.details |= {
        "job_energy_j": log.total_j,
        "elapsed_s": stage.duration_s,
        "nodes": nodes,
        "mean_w_all_nodes": mean,
        "mean_w_per_node": mean / nodes if mean is not None and nodes else None,
        "tres_energy_j": float(tres[1]) * SUFFIX[tres[2]] if tres else None,
        "rounded_field_j": float(rounded[1]) * SUFFIX[rounded[2]] if rounded else None,
    }
