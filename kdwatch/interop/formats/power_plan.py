"""Which columns of a power CSV give the time, the device and the power, learned from the header and the first rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kdwatch.interop.columns import FILLER, KEY_NAMES, TIME_NAMES, TOTAL_WORDS, Column, plain, tokens_of
from kdwatch.interop.model import LogProblem
from kdwatch.interop.times import TimeParser, learn
from kdwatch.interop.values import WATTS, NotANumber, is_missing, parse_number

BUS_ID = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d$")
MAX_COLUMNS = 1024
PACKAGE = {"package", "pkg"}
JETSON_INPUT = re.compile(r"\b(vdd_in|pom_5v_in|vdd_total)\b")
JETSON_RAIL = re.compile(r"^(vdd|vddq|pom|vin)_")
"""Rails of a Jetson's power monitor; the input rail feeds all others."""
IN_PACKAGE = {"core", "cores", "uncore", "pp0", "pp1", "ia", "gt", "psys"}
DERIVED = {
    "idle", "net", "baseline", "predicted", "prediction", "forecast", "expected", "smoothed", "smooth", "ema",
    "rolling", "moving", "filtered", "median",
}  # fmt: skip
"""Words of columns that are worked out from the draw beside them."""
RANK = {"": 0, "average": 1, "instant": 2}


@dataclass(slots=True)
class PowerPlan:
    """Places of the columns that count."""

    time: TimeParser | None
    time_places: tuple[int, ...]
    """One place, or those of a date and of a time of day."""
    time_header: str
    """Of the column of times; without a parser that of a column whose cells are no known times, or ""."""
    key: Column | None
    host: Column | None
    name: Column | None
    devices: list[Column]
    """Power columns that are devices; with a key column just one."""
    others: list[Column] = field(default_factory=list)
    """Other power columns of the same device, reported beside: `power.draw.instant`."""
    totals: list[Column] = field(default_factory=list)
    """Columns that repeat a sum: never a device."""
    shared: frozenset[str] = frozenset()
    """Keys that devices of several models have: their names tell them apart."""

    def base_of(self, row: Sequence[str]) -> str:
        """The device that a row's key and host columns name; `0` where they are empty."""
        key = row[self.key.place] if self.key else ""
        if self.host:
            key = f"{row[self.host.place]}/{key}" if key else row[self.host.place]
        return key or "0"

    def apart(self, base: str, name: str) -> str:
        """The key of a device of this model: `0 NVIDIA A40` where several models are device 0."""
        return f"{base} {name}" if base in self.shared and not is_missing(name) else base


def make_plan(columns: Sequence[Column], rows: Sequence[list[str]], zone: str | None) -> PowerPlan:
    """Choose columns. Raises LogProblem where no column is a power draw."""
    power = [c for c in columns if c.role == "power"] or [c for c in columns if c.role == "bare"]
    if not power:
        raise LogProblem("no power column")
    time, places, header = _time(columns, rows, zone)
    key = _key(columns, rows)
    host = next((c for c in columns if c.role == "host" and _distinct(rows, c.place) > 1), None)
    name = next((c for c in columns if c.role == "name"), None)
    modules = [c for c in power if "module" in tokens_of(plain(c.header))]
    power = [c for c in power if c not in modules] or modules
    totals = [c for c in power if _holds_others(c, power)]
    single = [c for c in power if c not in totals]
    if not single:
        single, totals = totals[:1], totals[1:]
    derived = [c for c in single if DERIVED & set(tokens_of(plain(c.header)))]
    if len(derived) < len(single):
        single = [c for c in single if c not in derived]
    else:
        derived = []
    single, parts = _without_parts(single)
    devices, others = _variants(single, rows)
    others += parts + derived + [c for c in modules if c not in power]
    if summed := sum_of_others(devices, rows):
        devices = [c for c in devices if c is not summed]
        totals = [*totals, summed]
    return PowerPlan(time, places, header, key, host, name, devices, others, totals)


def _holds_others(column: Column, power: Sequence[Column]) -> bool:
    """Whether the column repeats devices beside it: a node its GPUs, a total those of its kind or name, or a mean.

    A total of the GPUs beside nothing but a CPU is the only column that holds the GPUs.
    """
    if column.total and not column.name:
        return column.kind is None or any(c.kind in (None, column.kind) for c in power if c is not column)
    if column.kind == "node":
        return any(c.kind in ("gpu", "cpu", "dram") and not c.total for c in power)
    named = [c for c in power if c.name and not c.total]
    if column.total and column.name and any(c.name.startswith(f"{column.name}_") for c in named):
        return True
    words = set(tokens_of(plain(column.header)))
    return not column.name and len(named) > 1 and bool(words & {"average", "avg", "mean"})


def sum_of_others(devices: Sequence[Column], rows: Sequence[list[str]]) -> Column | None:
    """The column that is in every row the sum of at least two others, whatever its name: a total, no device.

    Without a word for a total in its name ten rows with five different sums are wanted: constants may happen to add up.
    """
    if len(devices) < 3:
        return None
    table = [cells for row in rows[:2000] if (cells := _watts_of(row, devices)) is not None]
    largest = {max(range(len(cells)), key=cells.__getitem__) for cells in table}
    if len(largest) != 1:
        return None
    place = largest.pop()
    if not devices[place].total and (len(table) < 10 or len({cells[place] for cells in table}) < 5):
        return None
    adds_up = all(
        math.isclose(cells[place], sum(cells) - cells[place], rel_tol=5e-3) and sum(map(bool, cells)) > 2
        for cells in table
    )
    return devices[place] if adds_up else None


def _watts_of(row: list[str], columns: Sequence[Column]) -> list[float] | None:
    """The cells of power columns in watts, None where one has no number that is at least 0."""
    values: list[float] = []
    for column in columns:
        try:
            value, unit = parse_number(row[column.place], decimal_comma=True)
        except NotANumber:
            return None
        if value is None or value < 0:
            return None
        values.append(value * (WATTS.get(unit) or column.factor or 1.0))
    return values


def _without_parts(columns: list[Column]) -> tuple[list[Column], list[Column]]:
    """Columns that add up, and those of cores, uncore and the like, which lie inside a package that is there too."""
    rails = {column.header: re.sub(r"[\s.-]+", "_", plain(column.header)) for column in columns}
    if any(JETSON_INPUT.search(rail) for rail in rails.values()):
        inner = [c for c in columns if JETSON_RAIL.match(rails[c.header]) and not JETSON_INPUT.search(rails[c.header])]
        return [c for c in columns if c not in inner], inner
    words = {column.header: set(tokens_of(plain(column.header))) for column in columns}
    if not any(found & PACKAGE for found in words.values()):
        return columns, []
    parts = [column for column in columns if words[column.header] & IN_PACKAGE and not words[column.header] & PACKAGE]
    return [column for column in columns if column not in parts], parts


def repeating_keys(keys: Sequence[str]) -> list[str]:
    """Of the keys of a long table those that repeat others' power: a total, or a part beside its package.

    `host/total` is a total of that host. Nothing repeats where every key is a total.
    """
    words = {key: set(tokens_of(key.rpartition("/")[2].lower())) for key in keys}
    totals = [key for key in keys if words[key] & TOTAL_WORDS and words[key] <= TOTAL_WORDS | FILLER]
    if len(totals) == len(keys):
        return []
    package = any(found & PACKAGE for found in words.values())
    parts = [key for key in keys if package and words[key] & IN_PACKAGE and not words[key] & PACKAGE]
    return totals + parts


def _variants(columns: list[Column], rows: Sequence[list[str]]) -> tuple[list[Column], list[Column]]:
    """One column for each device, and those that say the same in another way; empty columns lose."""
    groups: dict[tuple[str, str | None], list[Column]] = {}
    for column in columns:
        groups.setdefault((column.name, column.kind), []).append(column)
    chosen, others = [], []
    for group in groups.values():
        ranked = sorted(group, key=lambda c: (not _has_numbers(rows, c.place), _rank(c), c.place))
        chosen.append(ranked[0])
        others += ranked[1:]
    return chosen, others


def _rank(column: Column) -> int:
    words = column.header.lower()
    if re.search(r"average|avg|mean", words):
        return RANK["average"]
    return RANK["instant"] if "inst" in words or "current" in words else RANK[""]


def _has_numbers(rows: Sequence[list[str]], place: int) -> bool:
    for row in rows:
        try:
            if parse_number(row[place])[0] is not None:
                return True
        except NotANumber:
            continue
    return False


def _distinct(rows: Sequence[list[str]], place: int) -> int:
    return len({row[place] for row in rows if not is_missing(row[place])})


def _key(columns: Sequence[Column], rows: Sequence[list[str]]) -> Column | None:
    """Of the candidates the one with the most distinct values; the order of KEY_NAMES decides between equals."""
    candidates = sorted((c for c in columns if c.role == "key"), key=lambda c: KEY_NAMES.index(c.name))
    counted = [(c, _distinct(rows, c.place)) for c in candidates]
    counted = [(c, n) for c, n in counted if n]
    if not counted:
        return None
    return max(counted, key=lambda item: item[1])[0]


def _time(
    columns: Sequence[Column], rows: Sequence[list[str]], zone: str | None
) -> tuple[TimeParser | None, tuple[int, ...], str]:
    """The first candidate whose cells are times; a date column and a time of day are put together."""
    candidates = [c for c in columns if c.role in ("time", "date")]
    candidates.sort(key=lambda c: (TIME_NAMES.index(c.name), c.place))
    date = next((c for c in candidates if c.role == "date"), None)
    seen = [*rows[:500], *rows[500 :: max(1, len(rows) // 500)]]
    for column in candidates:
        sample = [row[column.place] for row in seen]
        parser = learn(sample, column.header, zone)
        if parser is None:
            continue
        if parser.kind == "clock" and date is not None and date is not column:
            both = [f"{row[date.place]} {row[column.place]}" for row in seen]
            if joined := learn(both, column.header, zone):
                return joined, (date.place, column.place), column.header
        if column.role == "date" and parser.numeric:
            continue
        return parser, (column.place,), column.header
    return (None, (), candidates[0].header) if candidates else _time_by_content(columns, rows, zone)


def _time_by_content(
    columns: Sequence[Column], rows: Sequence[list[str]], zone: str | None
) -> tuple[TimeParser | None, tuple[int, ...], str]:
    """Where no name says time (`Zeit`, `logged_at`): the one column that holds written dates, if there is just one."""
    found = []
    for column in columns:
        if column.role != "other":
            continue
        parser = learn([row[column.place] for row in rows[:500]], column.header, zone)
        if parser is not None and not parser.numeric:
            found.append((parser, (column.place,), column.header))
    return found[0] if len(found) == 1 else (None, (), "")


def columns_without_header(rows: Sequence[list[str]]) -> list[Column]:
    """Roles from the cells alone, where a file has no header.

    A cell with watts is power; a time is a time; a UUID or a bus id is a key; one number alone is power (that is what
    `--format=csv,noheader,nounits` of one field gives). Raises LogProblem where that leaves a choice.
    """
    width = max((len(row) for row in rows), default=0)
    if width > MAX_COLUMNS:
        raise LogProblem(f"{width} columns without a header: no power log")
    columns: list[Column] = []
    unclear: list[int] = []
    for place in range(width):
        cells = [row[place] for row in rows[:500] if len(row) > place and not is_missing(row[place])]
        role, name, factor = _role_of(cells)
        if role == "number":
            unclear.append(place)
            role = "other"
        columns.append(Column(place, f"column {place + 1}", role, name, factor=factor))
    has_power = any(c.role == "power" for c in columns)
    if not has_power and len(unclear) == 1:
        place = unclear.pop()
        columns[place] = Column(place, f"column {place + 1}", "power", "")
        has_power = True
    if not has_power and unclear:
        raise LogProblem("no header and no unit: which of the numbers is the power cannot be known; add a header line")
    if has_power and len(unclear) == 1 and not any(c.role == "key" for c in columns):
        columns[unclear[0]] = _index_column(rows, unclear[0])
    return columns


def _index_column(rows: Sequence[list[str]], place: int) -> Column:
    """A column of 0, 1, ... k-1 is the device's index."""
    values = {row[place] for row in rows if len(row) > place}
    counted = all(value.isdigit() for value in values) and sorted(map(int, values)) == list(range(len(values)))
    return Column(place, f"column {place + 1}", "key" if counted else "other", "index")


def _role_of(cells: list[str]) -> tuple[str, str, float | None]:
    if not cells:
        return "other", "", None
    if all(cell.startswith(("GPU-", "MIG-")) for cell in cells):
        return "key", "uuid", None
    if all(BUS_ID.match(cell) for cell in cells):
        return "key", "pci.bus_id", None
    units = set()
    for cell in cells:
        try:
            units.add(parse_number(cell)[1])
        except NotANumber:
            return ("time", "timestamp", None) if learn(cells) else ("other", "", None)
    if units & set(WATTS):
        return "power", "", None
    parser = learn(cells)
    if parser and parser.kind == "epoch":
        return "time", "timestamp", None
    return ("number", "", None) if units == {""} else ("other", "", None)
