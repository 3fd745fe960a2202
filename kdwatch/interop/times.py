"""Time columns: which kind of time a file holds, and seconds from its cells. Nothing is guessed silently."""

from __future__ import annotations

import math
import re
from calendar import timegm
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from kdwatch.interop.values import LONGEST, is_missing

MONTHS = {
    m: i + 1 for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
}
YEAR_FIRST = re.compile(
    r"^(?P<y>\d{4})(?P<s>[-/.]?)(?P<m>\d\d?)(?P=s)(?P<d>\d\d?)[T _,-]+(?P<rest>\d.*)$", re.IGNORECASE
)
YEAR_LAST = re.compile(r"^(?P<a>\d\d?)[-/.](?P<b>\d\d?)[-/.](?P<y>\d{4})[T _,-]+(?P<rest>\d.*)$", re.IGNORECASE)
DAY_MONTH_NAME = re.compile(
    r"^(?:[A-Za-z]{3,9},?\s+)?(?P<d>\d\d?)[ -](?P<mon>[A-Za-z]{3})[A-Za-z]*[ -](?P<y>\d{4})[ T,]+(?P<rest>\d.*)$"
)
MONTH_NAME_DAY = re.compile(
    r"^(?:[A-Za-z]{3},?\s+)?(?P<mon>[A-Za-z]{3})[A-Za-z]*\s+(?P<d>\d\d?),?\s+"
    r"(?:(?P<y>\d{4}),?\s+(?P<rest>\d.*)|(?P<rest2>\d[\d:.,]*(?:\s*[AaPp][Mm])?)(?:\s+(?P<zone>[A-Z]{3,4}))?\s+(?P<y2>\d{4}))$"
)
CLOCK = re.compile(
    r"^(?P<h>\d\d?):(?P<mi>\d\d)(?::(?P<s>\d\d)(?:[.,:](?P<f>\d{1,9})\d*)?)?\s*(?P<half>[AaPp]\.?\s?[Mm]\.?)?"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d|[+-]\d\d)?$"
)
BARE_CLOCK = re.compile(
    r"^(?P<h>\d\d)(?P<mark>[-.]?)(?P<mi>\d\d)(?P=mark)(?P<s>\d\d)(?P<rest>(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)$"
)
"""The clock of `20260103T153653Z` and `2026-01-03_15-36-53`, after a date only."""
NUMERIC = re.compile(r"^[+-]?\d+(?:[.,]\d*)?(?:[eE][+-]?\d+)?$|^[+-]?\.\d+$")
DAY = 86_400.0
QUARTER = 900.0
"""Clocks are put forward or back at full quarters of an hour."""
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class NotATime(ValueError):
    """The cell holds no time of the column's kind."""


def split_clock(text: str, after_date: bool = False) -> tuple[float, float | None]:
    """Seconds since midnight of `15:36:53.507`, and the zone's offset in seconds (None where none is given)."""
    text = text.strip() if len(text) <= LONGEST else ""
    if after_date and (bare := BARE_CLOCK.match(text)):
        text = f"{bare['h']}:{bare['mi']}:{bare['s']}{bare['rest']}"
    match = CLOCK.match(text)
    if not match:
        raise NotATime(text[:LONGEST])
    hour, minute, second = int(match["h"]), int(match["mi"]), int(match["s"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise NotATime(text)
        hour = hour % 12 + (12 if match["half"][0] in "Pp" else 0)
    if hour > 24 or minute > 59 or second > 60:
        raise NotATime(text)
    fraction = float(f"0.{match['f']}") if match["f"] else 0.0
    return hour * 3600 + minute * 60 + second + fraction, _offset(match["zone"])


def _offset(zone: str | None) -> float | None:
    if zone is None:
        return None
    if zone in ("Z", "UTC", "GMT"):
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60
    return float(-seconds if zone[0] == "-" else seconds)


class TimeParser:
    """Seconds from the cells of one column.

    `kind` is `epoch` (UTC), `local` (no zone known: seconds as if the written time were UTC), `elapsed`
    (from an unknown start) or `clock` (time of day, carried over midnight).
    """

    def __init__(self, kind: str, unit_s: float = 1.0, month_first: bool = False, zone: str | None = None) -> None:
        self.kind = kind
        self.unit_s = unit_s
        self._month_first = month_first
        self._zone = ZoneInfo(zone) if zone else None
        self._prefix, self._base, self._suffix = "", 0.0, ""
        self._last = -math.inf
        self._day = 0.0
        self.numeric = False
        self.ambiguous_date = False
        self.unit_written = True

    def __call__(self, text: str) -> float:
        """Seconds. Raises NotATime."""
        if self.numeric:
            return self._number(text)
        if self.kind == "clock":
            return self._time_of_day(text)
        return self._date(text)

    def many(self, cells: Sequence[str]) -> list[float] | None:
        """Seconds of cells of the same form, as they would come one by one; None where one needs a closer look."""
        if self.numeric:
            return self._numbers(cells)
        if self.kind == "clock":
            return None
        if self._zone is None:
            return self._dates(cells)
        written = TimeParser("local", month_first=self._month_first)._dates(cells)
        return None if written is None else self._all_in_zone(written)

    def _numbers(self, cells: Sequence[str]) -> list[float] | None:
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
        bases = self._bases(dict(zip(reversed(minutes), reversed(cells), strict=True)))
        return None if bases is None else [bases[minute] + s for minute, s in zip(minutes, seconds, strict=True)]

    def _bases(self, examples: Mapping[str, str]) -> dict[str, float] | None:
        """Seconds of each minute, by its text; `examples` holds a cell of each."""
        bases = {}
        for minute, cell in examples.items():
            try:
                self._slow_date(cell)
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
        seconds, _ = split_clock(text)
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
        year, month, day, rest = split_date(text, self._month_first)
        seconds, offset = split_clock(rest, after_date=True)
        try:
            midnight = float(timegm((year, month, day, 0, 0, 0)))
            datetime(year, month, day)
        except (ValueError, OverflowError):
            raise NotATime(text) from None
        if offset is not None:
            self._remember(text, midnight + seconds - offset)
            return midnight + seconds - offset
        if self._zone is not None:
            return self._in_zone(midnight + seconds)
        self._remember(text, midnight + seconds)
        return midnight + seconds

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


def split_date(text: str, month_first: bool = False) -> tuple[int, int, int, str]:
    """Year, month, day and the rest of a written date. Raises NotATime."""
    if len(text) > LONGEST:
        raise NotATime(text[:LONGEST])
    text = text.strip()
    if match := YEAR_FIRST.match(text):
        return int(match["y"]), int(match["m"]), int(match["d"]), match["rest"]
    if match := YEAR_LAST.match(text):
        a, b = int(match["a"]), int(match["b"])
        month, day = (a, b) if month_first else (b, a)
        return int(match["y"]), month, day, match["rest"]
    if match := DAY_MONTH_NAME.match(text):
        return int(match["y"]), _month(match["mon"]), int(match["d"]), match["rest"]
    if match := MONTH_NAME_DAY.match(text):
        zone = f" {match['zone']}" if match["zone"] in ("UTC", "GMT") else ""
        return (
            int(match["y"] or match["y2"]),
            _month(match["mon"]),
            int(match["d"]),
            match["rest"] or match["rest2"] + zone,
        )
    raise NotATime(text)


def _month(name: str) -> int:
    try:
        return MONTHS[name.lower()]
    except KeyError:
        raise NotATime(name) from None


def learn(samples: Sequence[str], header: str = "", zone: str | None = None) -> TimeParser | None:
    """The parser that fits a column's first cells; None where they are no times.

    `header` may carry a numeric column's unit (`time_ms`, `Time (s)`).
    """
    cells = [cell.strip() for cell in samples if len(cell) <= LONGEST and not is_missing(cell)]
    if not cells:
        return None
    if sum(bool(NUMERIC.match(cell)) for cell in cells) > len(cells) / 2:
        return _learn_numeric([cell for cell in cells if NUMERIC.match(cell)], header)
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
    epoch = min(values) * scale >= 1e8 and (unit is None or abs(math.log10(UNITS[unit] / scale)) < 0.1)
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
    good, zoned = 0, 0
    day_first = month_first = 0
    numeric_dates = set()
    for cell in cells:
        try:
            _, _, _, rest = split_date(cell)
            _, offset = split_clock(rest, after_date=True)
        except NotATime:
            continue
        good += 1
        zoned += offset is not None
        if match := YEAR_LAST.match(cell):
            numeric_dates.add((match["a"], match["b"]))
            day_first += int(match["a"]) > 12
            month_first += int(match["b"]) > 12
    if good <= len(cells) / 2:
        return None
    known = zoned == good
    parser = TimeParser("epoch" if known or zone else "local", month_first=month_first > 0, zone=zone)
    parser.ambiguous_date = bool(numeric_dates) and not day_first and not month_first
    return parser


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
