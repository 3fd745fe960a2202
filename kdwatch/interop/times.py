"""Time columns: which kind of time a file holds, and seconds from its cells. Nothing is guessed silently."""

from __future__ import annotations

import math
import re
from calendar import timegm
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from kdwatch.interop.dates import (
    CLOCK,
    COMPACT,
    ORDERS,
    NotATime,
    numbers_of,
    order_of,
    ordered,
    split_clock,
    split_date,
    zone_of,
)
from kdwatch.interop.values import LONGEST, is_missing

NUMERIC = re.compile(r"^[+-]?\d+(?:[.,]\d*)?(?:[eE][+-]?\d+)?$|^[+-]?\.\d+$")
DAY = 86_400.0
FIRST_EPOCH, LAST_EPOCH = 1e8, 4.1e9
"""From 1973 to 2099: other seconds are no calendar time."""
QUARTER = 900.0
"""Clocks are put forward or back at full quarters of an hour."""
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class TimeParser:
    """Seconds from the cells of one column.

    `kind` is `epoch` (UTC), `local` (no zone known: seconds as if the written time were UTC), `elapsed`
    (from an unknown start) or `clock` (time of day, carried over midnight). `order` is that of the numbers in dates.
    """

    def __init__(self, kind: str, unit_s: float = 1.0, order: str = "dmy", zone: str | None = None) -> None:
        self.kind = kind
        self.unit_s = unit_s
        self._order = order
        self._zone = ZoneInfo(zone) if zone else None
        self._prefix, self._base, self._suffix = "", 0.0, ""
        self._last = -math.inf
        self._day = 0.0
        self.numeric = False
        self.spans = False
        """Cells are lengths of time: `1 day, 0:08:23`, `26:10:05`."""
        self.ambiguous_date = False
        self.zone_names: list[str] = []
        """Zones named in the cells whose names mean several offsets."""
        self._numbers: tuple[str, str, str] | None = None
        self._shift = 0.0
        self.unit_written = True

    def __call__(self, text: str) -> float:
        """Seconds. Raises NotATime."""
        if self.numeric:
            return self._number(text)
        if self.spans:
            return _span(text)
        if self.kind == "clock":
            return self._time_of_day(text)
        return self._date(text)

    @property
    def order_words(self) -> str:
        """How the numbers of dates are read."""
        return ORDERS[self._order]

    def many(self, cells: Sequence[str]) -> list[float] | None:
        """Seconds of cells of the same form, as they would come one by one; None where one needs a closer look."""
        if self.numeric:
            return self._many_numbers(cells)
        if self.kind == "clock" or self.spans:
            return None
        if self._zone is None or _has_offset(cells[0]):
            return self._dates(cells)
        written = TimeParser("local", order=self._order)._dates(cells)
        return None if written is None else self._all_in_zone(written)

    def _many_numbers(self, cells: Sequence[str]) -> list[float] | None:
        try:
            values = list(map(float, cells))
        except ValueError:
            return None
        if not math.isfinite(sum(values)) or max(map(abs, values)) > 1e20:
            return None
        return values if self.unit_s == 1.0 else [value * self.unit_s for value in values]

    def _dates(self, cells: Sequence[str]) -> list[float] | None:
        """Times that differ from each other in the minute before, and the seconds between, prefix and zone."""
        try:
            self._prefix = ""
            self._slow_date(cells[0])
        except NotATime:
            return None
        if not self._prefix:
            return None
        width, suffix = len(self._prefix), self._suffix
        if suffix and any(not cell.endswith(suffix) for cell in cells):
            return None
        end = -len(suffix) or None
        try:
            seconds = list(map(float, [cell[width:end] for cell in cells]))
        except ValueError:
            return None
        if not (math.isfinite(sum(seconds)) and min(seconds) >= 0 and max(seconds) < 61):
            return None
        minutes = [cell[:width] for cell in cells]
        bases = self._bases(minutes, dict(zip(minutes, cells, strict=True)))
        return None if bases is None else [bases[minute] + s for minute, s in zip(minutes, seconds, strict=True)]

    def _bases(self, minutes: Sequence[str], examples: Mapping[str, str]) -> dict[str, float] | None:
        """Seconds of each minute, by its text; `examples` holds a cell of each."""
        bases = {}
        for minute in dict.fromkeys(minutes):
            try:
                self._slow_date(examples[minute])
            except NotATime:
                return None
            if self._prefix != minute:
                return None
            bases[minute] = self._base
        return bases

    def _number(self, text: str) -> float:
        try:
            value = float(text) if "," not in text else float(text.replace(",", "."))
        except ValueError:
            raise NotATime(text) from None
        if not math.isfinite(value) or abs(value) > 1e20:
            raise NotATime(text)
        return value * self.unit_s

    def _time_of_day(self, text: str) -> float:
        try:
            seconds, _ = split_clock(text)
        except NotATime:
            seconds = _span(text)
        if seconds + self._day < self._last - DAY / 2:
            self._day += DAY
        self._last = seconds + self._day
        return self._last

    def _date(self, text: str) -> float:
        text = text.strip()
        if self._prefix and text.startswith(self._prefix) and text.endswith(self._suffix):
            middle = text[len(self._prefix) : len(text) - len(self._suffix)]
            try:
                seconds = float(middle)
            except ValueError:
                seconds = -1.0
            if 0 <= seconds < 61:
                return self._base + seconds
        return self._slow_date(text)

    def _slow_date(self, text: str) -> float:
        if self.ambiguous_date:
            self._settle_order(text)
        year, month, day, rest = split_date(text, self._order)
        seconds, offset = split_clock(rest, after_date=True)
        midnight = _midnight(year, month, day) + self._shift
        if self.kind == "local":
            offset = 0.0
        if offset is None and self._zone is not None:
            return self._in_zone(midnight + seconds)
        value = midnight + seconds - (offset or 0.0)
        self._remember(text, value)
        return value

    def _settle_order(self, text: str) -> None:
        """At the first new date: a log goes on with the next day. Times after it join those before it."""
        before, numbers = self._numbers, numbers_of(text)
        if before is not None and numbers is not None and numbers != before:
            order, self.ambiguous_date = order_of([before, numbers])
            if not self.ambiguous_date and order != self._order:
                self._shift = _midnight(*ordered(before, self._order)) - _midnight(*ordered(before, order))
                self._order = order
        self._numbers = numbers or before

    def _remember(self, text: str, value: float) -> None:
        """Keep the minute of this time: the next rows mostly differ in their seconds only."""
        match = re.match(r"^(.*\d\d:\d\d:)(\d\d(?:\.\d+)?)(\D.*)?$", text)
        if match and not re.search(r"[AaPp][Mm]", match[3] or ""):
            self._prefix, self._suffix = match[1], match[3] or ""
            self._base = value - float(match[2])

    def _all_in_zone(self, written: Sequence[float]) -> list[float] | None:
        """UTC seconds of local times; None where one is in an hour that clocks repeat or leave out."""
        quarters = [second // QUARTER for second in written]
        offsets = {}
        for quarter in dict.fromkeys(quarters):
            local = datetime.fromtimestamp(quarter * QUARTER, UTC).replace(tzinfo=self._zone)
            first, second = local.utcoffset(), local.replace(fold=1).utcoffset()
            if first is None or first != second:
                return None
            offsets[quarter] = first.total_seconds()
        found = [second - offsets[quarter] for second, quarter in zip(written, quarters, strict=True)]
        self._last = max(self._last, max(found))
        return found

    def _in_zone(self, written: float) -> float:
        """UTC seconds of a local time; of the two in the hour that clocks repeat, the one that does not go back."""
        whole = math.floor(written)
        local = datetime.fromtimestamp(whole, UTC).replace(tzinfo=self._zone)
        first, second = local.timestamp(), local.replace(fold=1).timestamp()
        chosen = first
        if second > first and first + (written - whole) < self._last - 1.0:
            chosen = second
        self._last = max(self._last, chosen + (written - whole))
        return chosen + (written - whole)


def _midnight(year: int, month: int, day: int) -> float:
    try:
        datetime(year, month, day)
        return float(timegm((year, month, day, 0, 0, 0)))
    except (ValueError, OverflowError):
        raise NotATime(f"{year}-{month}-{day}") from None


def _has_offset(text: str) -> bool:
    """Whether a written time has a zone of its own."""
    try:
        return split_clock(split_date(text)[3], after_date=True)[1] is not None
    except NotATime:
        return False


def _span(text: str) -> float:
    seconds = parse_span(text)
    if seconds is None:
        raise NotATime(text[:LONGEST])
    return seconds


def learn(samples: Sequence[str], header: str = "", zone: str | None = None) -> TimeParser | None:
    """The parser that fits a column's first cells; None where they are no times.

    `header` may carry a numeric column's unit (`time_ms`, `Time (s)`).
    """
    cells = [cell.strip() for cell in samples if len(cell) <= LONGEST and not is_missing(cell)]
    if not cells:
        return None
    if all(COMPACT.match(cell) for cell in cells) and (parser := _learn_dates(cells, zone)):
        return parser
    if sum(bool(NUMERIC.match(cell)) for cell in cells) > len(cells) / 2:
        return _learn_numeric([cell for cell in cells if NUMERIC.match(cell)], header)
    if any(map(_longer_than_a_day, cells)) and sum(bool(SPAN.match(cell)) for cell in cells) > len(cells) / 2:
        parser = TimeParser("elapsed")
        parser.spans = True
        return parser
    fits = sum(bool(CLOCK.match(cell)) for cell in cells)
    if fits > len(cells) / 2:
        return TimeParser("clock")
    return _learn_dates(cells, zone)


def _learn_numeric(cells: list[str], header: str) -> TimeParser | None:
    values = [float(cell.replace(",", ".")) for cell in cells]
    unit = header_unit(header)
    magnitude = max(abs(value) for value in values)
    if not math.isfinite(magnitude) or magnitude > 1e20:
        return None
    scale = 1e-9 if magnitude >= 1e17 else 1e-6 if magnitude >= 1e14 else 1e-3 if magnitude >= 1e11 else 1.0
    epoch = (
        min(values) * scale >= FIRST_EPOCH
        and magnitude * scale < LAST_EPOCH
        and (unit is None or abs(math.log10(UNITS[unit] / scale)) < 0.1)
    )
    parser = TimeParser("epoch" if epoch else "elapsed", scale if epoch else UNITS[unit or "s"])
    parser.numeric = True
    parser.unit_written = epoch or unit is not None
    return parser


def header_unit(header: str) -> str | None:
    """The unit of a numeric time column as its name gives it, else None."""
    tokens = re.split(r"[^a-zµ]+", header.lower().replace("µs", "us"))
    words = {
        "ns": "ns", "nanoseconds": "ns", "us": "us", "microseconds": "us", "ms": "ms", "msec": "ms", "millis": "ms",
        "milliseconds": "ms", "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "min",
        "minutes": "min", "h": "h", "hours": "h",
    }  # fmt: skip
    return next((words[token] for token in reversed(tokens) if token in words), None)


def _learn_dates(cells: list[str], zone: str | None) -> TimeParser | None:
    good = zoned = 0
    names = set()
    order, ambiguous = order_of([numbers for cell in cells if (numbers := numbers_of(cell))])
    for cell in cells:
        try:
            year, month, day, rest = split_date(cell, order)
            _midnight(year, month, day)
            _, offset = split_clock(rest, after_date=True)
        except NotATime:
            continue
        good += 1
        zoned += offset is not None
        if offset is None and (name := zone_of(rest, after_date=True)):
            names.add(name)
    if good <= len(cells) / 2:
        return None
    parser = TimeParser("epoch" if zoned == good or zone else "local", order=order, zone=zone)
    parser.ambiguous_date = ambiguous
    parser.zone_names = sorted(names)
    return parser


def _longer_than_a_day(cell: str) -> bool:
    """Whether the cell is a length of time that no time of day is."""
    match = SPAN.match(cell)
    return bool(match and (match["days"] or int(match["h"] or 0) > 24))


SPAN = re.compile(
    r"^\s*(?:(?P<days>\d+)\s*(?:days?,?\s*|-))?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+(?:[.,]\d+)?)\s*$", re.IGNORECASE
)


def parse_span(text: str) -> float | None:
    """Seconds of `0:00:33.57`, `1 day, 0:08:23`, `1-02:03:04`, `35:02` or a plain number; None for other text."""
    text = str(text)[:LONGEST]
    match = SPAN.match(text)
    if match:
        hours = int(match["days"] or 0) * 24 + int(match["h"] or 0)
        seconds = hours * 3600 + int(match["m"]) * 60 + float(match["s"].replace(",", "."))
        return seconds if math.isfinite(seconds) else None
    if NUMERIC.match(str(text).strip()):
        value = float(str(text).strip().replace(",", "."))
        return value if math.isfinite(value) and value >= 0 else None
    return None
