"""Cells to numbers: units, decimal commas, and everything that means "no reading"."""

from __future__ import annotations

import math
import re

MISSING = {
    "",
    "-",
    "--",
    "---",
    "?",
    "n/a",
    "na",
    "nan",
    "none",
    "null",
    "nil",
    "inf",
    "-inf",
    "err",
    "err!",
    "error",
    "unknown",
    "unavailable",
    "not supported",
    "not available",
    "not found",
    "unknown error",
    "gpu requires reset",
    "insufficient permissions",
    "<not counted>",
    "<not supported>",
    "function not found",
}
SENTINELS = {2.0**k - 1 for k in (31, 32, 63, 64)} | {2.0**64, 2.0**63}
SENTINELS |= {value / 1e3 for value in SENTINELS} | {value / 1e6 for value in SENTINELS}
SENTINELS |= {2147483.64, 2147483.65, 4294967.29, 4294967.3}
"""All-ones integers that drivers return for "no value": as such, in milli- or micro-units, or in watts with
two digits."""

WATTS = {
    "w": 1.0,
    "watt": 1.0,
    "watts": 1.0,
    "mw": 1e-3,
    "milliwatt": 1e-3,
    "milliwatts": 1e-3,
    "uw": 1e-6,
    "µw": 1e-6,
    "μw": 1e-6,
    "microwatt": 1e-6,
    "microwatts": 1e-6,
    "kw": 1e3,
    "kilowatt": 1e3,
    "kilowatts": 1e3,
}
JOULES = {
    "j": 1.0,
    "joule": 1.0,
    "joules": 1.0,
    "mj": 1e-3,
    "millijoules": 1e-3,
    "uj": 1e-6,
    "µj": 1e-6,
    "kj": 1e3,
    "wh": 3600.0,
    "mwh": 3.6,
    "kwh": 3.6e6,
}
NUMBER = re.compile(r"^([+-]?(?:\d[\d., '_\u00a0\u202f]*|[.,]\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ%°/]*)$")

GROUPED = re.compile(r"^[+-]?\d{1,3}(?:(?:,\d{3})+(?:\.\d*)?|(?:\.\d{3})+(?:,\d*)?)(?:[eE][+-]?\d+)?$")
"""Thousands marks stand before three digits each: `1.020.51` is two numbers run together."""
BLANK = re.compile(r"[\s\u00a0\u202f'_]")
GROUPED_BY_BLANKS = re.compile(r"^[+-]?\d{1,3}(?:[\s\u00a0\u202f'_]\d{3})+(?:[.,]\d*)?(?:[eE][+-]?\d+)?$")
"""A blank inside a number is a thousands mark: `0.0 100` is two numbers."""
LONGEST = 120
"""Characters of a cell that may still be a number or a time."""


class NotANumber(ValueError):
    """The cell holds something that is neither a number nor a known word for "no reading"."""


def is_missing(text: str) -> bool:
    """Whether the cell says that there is no reading."""
    return text.strip().strip("[]()\"'").strip().lower() in MISSING


def parse_number(text: str, decimal_comma: bool = False) -> tuple[float | None, str]:
    """The number of a cell and its unit in lower case ("" where none stands there); None for "no reading".

    Raises NotANumber for other text. `1e999` and the like are no reading.
    """
    match = NUMBER.match(text.strip().strip('"').strip()) if len(text) <= LONGEST else None
    if not match:
        if is_missing(text):
            return None, ""
        raise NotANumber(text)
    try:
        return to_float(match[1], decimal_comma), match[2].lower()
    except OverflowError:
        return None, match[2].lower()


def to_float(digits: str, decimal_comma: bool = False) -> float:
    """Digits with thousands marks and either decimal mark to a float. Raises NotANumber.

    Where both `.` and `,` occur the last one is the decimal mark; a single kind repeated is a thousands mark;
    a single `,` is the decimal mark if `decimal_comma`, else a thousands mark before three digits where no 0 leads.
    Raises OverflowError where no float is large enough.
    """
    text = BLANK.sub("", digits)
    if text != digits.strip() and not GROUPED_BY_BLANKS.match(digits.strip()):
        raise NotANumber(digits)
    commas, points = text.count(","), text.count(".")
    if max(commas, points) > 1 and not GROUPED.match(text):
        raise NotANumber(digits)
    if commas and points:
        decimal = max(",", ".", key=text.rfind)
        text = text.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    elif commas == 1 and (decimal_comma or not re.search(r"^[+-]?[1-9]\d{0,2},\d{3}$", text)):
        text = text.replace(",", ".")
    elif commas:
        text = text.replace(",", "")
    elif points > 1:
        text = text.replace(".", "")
    try:
        value = float(text)
    except ValueError:
        raise NotANumber(digits) from None
    if not math.isfinite(value):
        raise OverflowError(digits)
    return value


def positive_or_none(value: object) -> float | None:
    """A number of a JSON or CSV field that is above 0, else None: in these files 0 means "not measured"."""
    number = number_or_none(value)
    return number if number is not None and number > 0 else None


def number_or_none(value: object) -> float | None:
    """A finite number out of a JSON or CSV field, else None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float) else _from_text(str(value))
    except OverflowError:
        return None
    return number if number is not None and math.isfinite(number) else None


def _from_text(text: str) -> float | None:
    """The number of a text; what Python reads as one is tried first, because nearly all are."""
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    try:
        return parse_number(text)[0]
    except NotANumber:
        return None


def integer_or_none(value: object) -> int | None:
    """A finite whole number out of a field, else None."""
    number = number_or_none(value)
    return int(number) if number is not None and abs(number) < 2**63 else None
