"""Written dates and clocks: numbers in any order, month names of several languages, names of zones."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date
from itertools import pairwise

from kdwatch.interop.values import LONGEST

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan gen ene", "feb fev", "mar mrt mrz maa mae", "apr avr abr", "may mai mei mag", "jun juin giu",
            "jul juil lug", "aug aou ago", "sep set", "oct okt ott out", "nov", "dec dez dic",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
"""By their first letters without accents: English, French, German, Spanish, Italian, Portuguese, Dutch."""

HOURS = {
    "Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "MEZ": 1, "MESZ": 2, "EET": 2, "EEST": 3,
    "MSK": 3, "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8,
    "HST": -10, "JST": 9, "KST": 9, "HKT": 8, "AWST": 8, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13,
}  # fmt: skip
"""Names of zones that mean one offset, in hours; CST, IST, BST and others mean several."""

WORD = r"[^\W\d_]"
WEEKDAY = rf"(?:{WORD}{{2,10}}\.?,?\s+)?"
CLOCK_PART = r"(?P<clock>\d[\d:.,]*(?:\s*[AaPp]\.?[Mm]\.?)?)(?:\s+(?P<zone>[A-Z]{3,5}|[+-]\d{2,4}))?"
YEAR_FIRST = re.compile(
    r"^(?P<y>\d{4})(?P<s>[-/.]?)(?P<m>\d\d?)(?P=s)(?P<d>\d\d?)[T _,-]+(?P<rest>\d.*)$", re.IGNORECASE
)
COMPACT = re.compile(r"^(?P<y>\d{4})(?P<m>\d\d)(?P<d>\d\d)(?P<rest>\d{6}(?:\.\d+)?)$")
NUMBERS = re.compile(
    r"^(?P<a>\d\d?)[-/.](?P<b>\d\d?)[-/.](?P<c>\d{4}|\d\d)[T _,-]+(?P<rest>\d.*)$",
    re.IGNORECASE,
)
DAY_MONTH_YEAR = re.compile(
    rf"^{WEEKDAY}(?P<d>\d\d?)(?:\.|er|st|nd|rd|th)?[ /-](?P<mon>{WORD}{{3,}})\.?,?[ /-](?P<y>\d{{4}})[ T,:]+"
    r"(?P<rest>\d.*)$"
)
DAY_MONTH_CLOCK = re.compile(rf"^{WEEKDAY}(?P<d>\d\d?)\.?\s+(?P<mon>{WORD}{{3,}})\.?\s+{CLOCK_PART}\s+(?P<y>\d{{4}})$")
MONTH_DAY_YEAR = re.compile(
    rf"^{WEEKDAY}(?P<mon>{WORD}{{3,}})\.?\s+(?P<d>\d\d?),?\s+(?P<y>\d{{4}}),?\s+(?P<rest>\d.*)$"
)
MONTH_DAY_CLOCK = re.compile(rf"^{WEEKDAY}(?P<mon>{WORD}{{3,}})\.?\s+(?P<d>\d\d?),?\s+{CLOCK_PART}\s+(?P<y>\d{{4}})$")
EAST = re.compile(r"^(?P<y>\d{4})年\s*(?P<m>\d\d?)月\s*(?P<d>\d\d?)日\s*(?:[^\W\d_()]+\s+)?(?P<rest>\d.*)$")
CLOCK = re.compile(
    r"^(?P<h>\d\d?):(?P<mi>\d\d)(?::(?P<s>\d\d)(?:[.,:](?P<f>\d{1,9})\d*)?)?\s*(?P<half>[AaPp]\.?\s?[Mm]\.?)?"
    r"\s*(?P<zone>Z|(?:UTC|GMT)?[+-]\d\d?(?::?\d\d)?|[A-Z]{3,5})?(?:\[[\w/+-]+\])?$"
)
BARE_CLOCK = re.compile(
    r"^(?P<h>\d\d)(?P<mark>[-.]?)(?P<mi>\d\d)(?P=mark)(?P<s>\d\d)(?P<rest>(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)$"
)
"""The clock of `20260103T153653Z` and `2026-01-03_15-36-53`, after a date only."""
FIRST_YEAR, LAST_YEAR = 2009, 2060
"""Years that a date with two digits may mean."""
ORDERS = {"dmy": "day, month, year", "mdy": "month, day, year", "ymd": "year, month, day"}


class NotATime(ValueError):
    """The cell holds no time of the column's kind."""


def split_clock(text: str, after_date: bool = False) -> tuple[float, float | None]:
    """Seconds since midnight of `15:36:53.507`, and the zone's offset in seconds.

    The offset is None where no zone is written or its name means several (`zone_of` gives the name).
    """
    match = _clock(text, after_date)
    hour, minute, second = int(match["h"]), int(match["mi"]), int(match["s"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise NotATime(text)
        hour = hour % 12 + (12 if match["half"][0] in "Pp" else 0)
    if hour > 24 or minute > 59 or second > 60:
        raise NotATime(text)
    fraction = float(f"0.{match['f']}") if match["f"] else 0.0
    return hour * 3600 + minute * 60 + second + fraction, offset_of(match["zone"])


def zone_of(text: str, after_date: bool = False) -> str | None:
    """The zone written behind a clock, or None."""
    return _clock(text, after_date)["zone"]


def _clock(text: str, after_date: bool) -> re.Match[str]:
    text = text.strip() if len(text) <= LONGEST else ""
    if after_date and (bare := BARE_CLOCK.match(text)):
        text = f"{bare['h']}:{bare['mi']}:{bare['s']}{bare['rest']}"
    match = CLOCK.match(text)
    if not match:
        raise NotATime(text[:LONGEST])
    return match


def offset_of(zone: str | None) -> float | None:
    """Seconds east of UTC of `+01:00`, `UTC-5` or `CET`; None for names that mean several offsets or none."""
    if zone is None or zone in HOURS:
        return None if zone is None else 3600.0 * HOURS[zone]
    match = re.match(r"^(?:UTC|GMT)?([+-])(\d\d?):?(\d\d)?$", zone)
    if not match:
        return None
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60
    return float(-seconds if match[1] == "-" else seconds)


def split_date(text: str, order: str = "dmy") -> tuple[int, int, int, str]:
    """Year, month, day and the clock of a written date; `order` is that of dates that do not begin with a year of
    four digits. Raises NotATime."""
    if len(text) > LONGEST:
        raise NotATime(text[:LONGEST])
    text = text.strip()
    for pattern in (YEAR_FIRST, COMPACT, EAST):
        if match := pattern.match(text):
            return int(match["y"]), int(match["m"]), int(match["d"]), match["rest"]
    if match := NUMBERS.match(text):
        return *ordered((match["a"], match["b"], match["c"]), order), match["rest"]
    for pattern in (DAY_MONTH_YEAR, MONTH_DAY_YEAR):
        if match := pattern.match(text):
            return int(match["y"]), month_of(match["mon"]), int(match["d"]), match["rest"]
    for pattern in (DAY_MONTH_CLOCK, MONTH_DAY_CLOCK):
        if match := pattern.match(text):
            clock = f"{match['clock']} {match['zone']}" if match["zone"] else match["clock"]
            return int(match["y"]), month_of(match["mon"]), int(match["d"]), clock
    raise NotATime(text)


def month_of(name: str) -> int:
    """The number of a month by its name or the beginning of it."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name.lower()) if c.isalpha() and c.isascii())
    found = MONTHS.get(plain[:4]) or MONTHS.get(plain[:3])
    if found is None:
        raise NotATime(name)
    return found


def numbers_of(text: str) -> tuple[str, str, str] | None:
    """The three numbers of a date such as `03/01/2026` or `03.01.26`; None for other dates."""
    match = NUMBERS.match(text.strip()) if len(text) <= LONGEST else None
    return (match["a"], match["b"], match["c"]) if match else None


def ordered(numbers: tuple[str, str, str], order: str) -> tuple[int, int, int]:
    """Year, month and day of three numbers."""
    found = dict(zip("dmy" if len(numbers[2]) == 4 and order == "ymd" else order, numbers, strict=True))
    year = int(found["y"])
    return year if len(found["y"]) == 4 else 2000 + year, int(found["m"]), int(found["d"])


def order_of(dates: Sequence[tuple[str, str, str]]) -> tuple[str, bool]:
    """The order of the numbers in a file's dates, and whether another one is as possible.

    Impossible days, months and years rule an order out; where dates follow each other, so does a longer way from
    the first to the last: a log goes on with the next day, not with the next month.
    """
    distinct = list(dict.fromkeys(dates))
    spans = {}
    for order in ORDERS:
        try:
            days = [_day(numbers, order) for numbers in distinct]
        except ValueError:
            continue
        spans[order] = sum(abs(b - a) for a, b in pairwise(days))
    if not distinct or not spans:
        return "dmy", False
    best = min(spans, key=lambda order: spans[order])
    return best, sum(span == spans[best] for span in spans.values()) > 1


def _day(numbers: tuple[str, str, str], order: str) -> int:
    """The day's number; ValueError where the numbers are no date in this order."""
    year, month, day = ordered(numbers, order)
    if (len(numbers[2]) == 4 and order == "ymd") or (len(numbers[2]) == 2 and not FIRST_YEAR <= year <= LAST_YEAR):
        raise ValueError(numbers)
    return date(year, month, day).toordinal()
