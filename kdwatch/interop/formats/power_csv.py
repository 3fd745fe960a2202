"""Power over time in rows: nvidia-smi --query-gpu in all its variants, wrappers, wide and long layouts, amd-smi."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from kdwatch.interop.columns import Column, nvidia_smi_fields
from kdwatch.interop.formats.energy_columns import read_energy_columns
from kdwatch.interop.formats.power_blocks import take_block
from kdwatch.interop.formats.power_checks import check_power_log
from kdwatch.interop.formats.power_plan import PowerPlan, columns_without_header, make_plan, repeating_keys
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LogProblem
from kdwatch.interop.series import PowerSeries
from kdwatch.interop.source import TextSource
from kdwatch.interop.table import BUFFER, Block, RowReader, Table, decimal_joins, find_table, split, without_torn
from kdwatch.interop.times import NotATime
from kdwatch.interop.values import SENTINELS, WATTS, NotANumber, is_missing, parse_number

NVIDIA_SMI_TIME = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}$")
FOR_POWER = "log power.draw too (nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv -l 1)"
AMD_SMI = {
    "socket_power",
    "power_usage",
    "gfx_activity",
    "umc_activity",
    "average_socket_power",
    "current_socket_power",
}


class PowerTable:
    """Rows turned into one series a device."""

    def __init__(self, plan: PowerPlan, interval_s: float | None) -> None:
        self.plan = plan
        self.series: dict[tuple[str, str], PowerSeries] = {}
        """By device key and header of the power column."""
        self.names: dict[str, str] = {}
        self.negative: list[tuple[float, float, float]] = []
        """Time, watts and seconds since the reading before, of the first negative readings."""
        self.missing: Counter[tuple[str, str]] = Counter()
        """Cells that say that there is no reading, by device and column."""
        self.bad_cells = 0
        self.bad_times = 0
        self.interval_s = interval_s
        self.units: set[str] = set()
        self._ticks: dict[str, int] = {}
        self._before: dict[tuple[str, str], float] = {}
        self.wanted = [*plan.devices, *plan.others, *(() if plan.key or plan.host else plan.totals)]
        self._labels = device_labels(plan)

    def take(self, rows: Iterable[list[str] | Block]) -> None:
        """Read all rows."""
        plan = self.plan
        keyed = bool(plan.key or plan.host)
        for row in rows:
            if isinstance(row, Block):
                if take_block(self, row):
                    row.taken()
                else:
                    self.take(row.rows())
                continue
            base = self._device_of(row) if keyed else ""
            t = self._time_of(row, base)
            if t is None:
                self.bad_times += 1
                continue
            for column in self.wanted:
                value = self.watts(row[column.place], column)
                if value is None:
                    self.missing[self.device_key(base, column), column.header] += 1
                else:
                    self._put(self.device_key(base, column), column, t, value)
            if plan.name and not keyed and "0" not in self.names:
                self.names["0"] = row[plan.name.place]

    def device_key(self, base: str, column: Column) -> str:
        """The device of a power column, in a row of the device `base` ("" where no column names one)."""
        label = self._labels[column.header]
        return f"{base}/{label}" if base and label else base or label

    def _device_of(self, row: list[str]) -> str:
        plan = self.plan
        key = plan.base_of(row)
        if plan.name and row[plan.name.place]:
            key = plan.apart(key, row[plan.name.place])
            self.names.setdefault(key, row[plan.name.place])
        return key

    def _time_of(self, row: list[str], key: str) -> float | None:
        if self.plan.time is None or self.interval_s is not None:
            tick = self._ticks.get(key, 0)
            self._ticks[key] = tick + 1
            return tick * (self.interval_s or 1.0)
        try:
            return self.plan.time(" ".join(row[place] for place in self.plan.time_places))
        except NotATime:
            return None

    def watts(self, cell: str, column: Column) -> float | None:
        try:
            if cell.endswith(" W"):
                self.units.add("w")
                return float(cell[:-2])
            return float(cell) * (column.factor or 1.0)
        except ValueError:
            pass
        try:
            value, unit = parse_number(cell, decimal_comma=True)
        except NotANumber:
            self.bad_cells += 1
            return None
        if value is None:
            return None
        if unit:
            self.units.add(unit)
        return value * (WATTS.get(unit) or column.factor or 1.0)

    def series_of(self, place: tuple[str, str]) -> PowerSeries:
        """The series of a device and a column, made where it is new. Raises LogProblem where there are too many."""
        series = self.series.get(place)
        if series is None:
            if len(self.series) > 4096:
                raise LogProblem("more than 4096 devices: the device column holds something else")
            series = self.series[place] = PowerSeries()
        return series

    def put_many(self, key: str, column: Column, times: Sequence[float], watts: Sequence[float]) -> None:
        """Add readings of one device that are all at least 0 and no sentinels."""
        if times:
            self._before[key, column.header] = times[-1]
            self.series_of((key, column.header)).extend(times, watts)

    def _put(self, key: str, column: Column, t: float, watts: float) -> None:
        place = (key, column.header)
        series = self.series_of(place)
        if watts != watts or watts in SENTINELS or watts > 1e9:
            series.sentinels += 1
            return
        if watts < 0:
            series.negative += 1
            if len(self.negative) < 50:
                self.negative.append((t, watts, t - self._before.get(place, t)))
            return
        self._before[place] = t
        series.add(t, watts)


def device_labels(plan: PowerPlan) -> dict[str, str]:
    """A device key for each power column: what its name says; a single one is `0`, or "" beside a key column."""
    columns, keyed = plan.devices, bool(plan.key or plan.host)
    labels: dict[str, str] = {}
    for number, column in enumerate(columns):
        label = "" if len(columns) == 1 and keyed else column.name
        label = label or ("" if len(columns) == 1 else column.kind or str(number))
        if label in labels.values():
            label = f"{label}_{number}"
        labels[column.header] = label or ("" if keyed else "0")
    for column in plan.others:
        twin = next((c for c in columns if (c.name, c.kind) == (column.name, column.kind)), columns[0])
        labels[column.header] = labels[twin.header]
    return labels | {column.header: "total" for column in plan.totals}


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read a power CSV. Raises LogProblem where it has no power."""
    table = find_table(source.lines())
    log = ImportedLog(source.path, "power-csv", source.encoding)
    try:
        return _read(source, options, table, log)
    except LogProblem as problem:
        raise _with_contents(problem, source, table) from None


def _read(source: TextSource, options: ImportOptions, table: Table, log: ImportedLog) -> ImportedLog:
    first = [line for line in islice(table.lines, BUFFER) if line.strip()]
    columns = table.columns
    if table.header is None:
        cells = [split(line, table.delimiter) for line in first]
        columns = columns_without_header(cells)
        if 2 * sum(len(row) == len(columns) for row in cells) < len(cells):
            raise LogProblem("no header, and lines of different width: no table")
        log.details["header"] = None
    if table.above:
        log.note("rows_above_header", f"{table.above} rows stand above the header and are read by it too")
    joins = decimal_joins(first, table.delimiter, columns)
    if joins:
        log.note("decimal_comma", "decimal commas without quotes: the last fields of each row are joined")
    reader = RowReader(table, len(columns), joins)
    buffered = list(reader.rows(first))
    if not any(c.role in ("power", "bare") for c in columns) and any(c.role == "energy" for c in columns):
        return read_energy_columns(log, columns, buffered, reader.rows(table.lines), reader, options)
    plan = make_plan(columns, buffered, options.zone)
    by_name(plan, log, buffered)
    log.format = _format(columns, buffered, plan)
    power = PowerTable(plan, options.interval_s)
    assert table.stream is not None
    power.take(
        without_torn(
            chain(buffered, reader.blocks(table.stream.blocks())),
            lambda: not source.ends_with_newline,
            lambda cell: log.note("torn_value", f"the last line ends in {cell[:20]!r}, cut in the middle: left out"),
        )
    )
    log.rows = reader.counts.rows
    _fill(log, power, options)
    check_power_log(log, power, reader.counts, source, options)
    return log


def by_name(plan: PowerPlan, log: ImportedLog, rows: list[list[str]]) -> None:
    """Model names that differ tell devices apart: without any key column, and where several have one index.

    Two jobs that each see only their GPU 0 and write one file give the same index to different models.
    """
    if plan.name is None:
        return
    if plan.key or plan.host:
        plan.shared = _shared_keys(plan, rows)
        if plan.shared:
            shown = ", ".join(sorted(plan.shared))[:200]
            log.note("keyed_by_name", f"several models are device {shown}: they are told apart by model name")
        return
    if len({row[plan.name.place] for row in rows}) > 1:
        plan.key = plan.name
        log.note("keyed_by_name", "no device column: devices are told apart by model name, equal models are pooled")


def _shared_keys(plan: PowerPlan, rows: list[list[str]]) -> frozenset[str]:
    """The keys that rows of more than one model have. A UUID or a serial number is one device, whatever its name."""
    if plan.name is None or (plan.key and plan.key.name in ("uuid", "serial")):
        return frozenset()
    names: dict[str, set[str]] = {}
    for row in rows:
        if not is_missing(name := row[plan.name.place]):
            names.setdefault(plan.base_of(row), set()).add(name)
    return frozenset(base for base, found in names.items() if len(found) > 1)


def _fill(log: ImportedLog, power: PowerTable, options: ImportOptions) -> None:
    """Devices of the main columns, others and totals in details."""
    plan = power.plan
    log.time_kind = None if plan.time is None else {"clock": "elapsed"}.get(plan.time.kind, plan.time.kind)
    if options.interval_s is not None:
        log.time_kind = "elapsed"
    timed = log.time_kind is not None
    main = {column.header: column for column in plan.devices}
    for (key, header), series in power.series.items():
        if header not in main:
            continue
        kind = main[header].kind or ("gpu" if log.format != "power-csv" or plan.key else None)
        scope = "node" if kind == "node" else _kind(kind)
        host = key.partition("/")[0] if plan.host else None
        device = LoggedDevice(key, _kind(kind), scope, power.names.get(key), host, series)
        log.devices.append(device)
    by_column: dict[str, dict[str, object]] = {}
    if plan.others:
        from kdwatch.interop.summary import stats_json

        for (key, header), series in power.series.items():
            if header in {column.header for column in [*plan.others, *plan.devices]}:
                by_column.setdefault(header, {})[key] = stats_json(series.stats(timed))
        log.details["by_column"] = by_column
    if plan.key or plan.host:
        _leave_repeats_out(log)


def _leave_repeats_out(log: ImportedLog) -> None:
    """Rows of a total, or of a part inside a package, are no devices of their own."""
    repeats = repeating_keys([device.key for device in log.devices])
    if not repeats:
        return
    log.devices = [device for device in log.devices if device.key not in repeats]
    log.details["left_out_keys"] = repeats
    log.note("total_rows", f"rows of {', '.join(repeats)[:200]} repeat the power of other devices: left out")


def _kind(kind: str | None) -> str:
    return kind if kind in ("gpu", "cpu", "dram") else "other"


def _format(columns: list[Column], rows: list[list[str]], plan: PowerPlan) -> str:
    headers = [column.header for column in columns]
    names = {header.strip().lower() for header in headers}
    if names & AMD_SMI and "gpu" in names:
        return "amd-smi-csv"
    if "total_power_w" in names and any(re.fullmatch(r"gpu_\d+_power_w", name) for name in names):
        return "harness-power-csv"
    if nvidia_smi_fields(headers) >= 3 or columns[0].header == "column 1":
        return "nvidia-smi-csv"
    stamps = [row[plan.time_places[0]] for row in rows[:20]] if plan.time_places else []
    if stamps and all(NVIDIA_SMI_TIME.match(stamp) for stamp in stamps):
        return "nvidia-smi-csv"
    return "nvidia-smi-csv" if names & {"power.draw [w]", "power.draw.instant [w]"} else "power-csv"


def _with_contents(problem: LogProblem, source: TextSource, table: Table) -> LogProblem:
    """The problem with what the file does contain."""
    columns = table.header or table.first_line
    rows = sum(1 for line in table.lines if line.strip()) if "rows" not in problem.facts else 0
    shown = ", ".join(columns[:12]) + (", ..." if len(columns) > 12 else "")
    text = f"{source.path}: {problem}"
    if "NVSMI LOG" in source.head or (not table.header and "| NVIDIA-SMI " in source.head):
        text = f"{source.path}: what nvidia-smi prints for people to read, no log; {FOR_POWER}"
    elif not table.header and len(columns) == 1:
        text += f" and no known format; its first line is {shown!r} (formats: docs/import-export.md)"
    elif columns and "rows" not in problem.facts:
        text += f"; it has {len(columns)} columns: {shown}"
        if table.header:
            text += f"; {FOR_POWER}"
    facts = {"rows": rows + _first_rows(source, table), "columns": columns, "encoding": source.encoding}
    form = "nvidia-smi-csv" if nvidia_smi_fields(columns) else "power-csv"
    return LogProblem(text, no_log=table.header is None, **{"format": form, **facts, **problem.facts})


def _first_rows(source: TextSource, table: Table) -> int:
    """Rows that were buffered before the problem showed: the file is small or the head was read already."""
    buffered = list(islice(find_table(source.lines()).lines, BUFFER))
    return sum(1 for line in buffered if line.strip())
