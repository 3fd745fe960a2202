"""Joules and seconds inside; what people write and read at the edges."""

from __future__ import annotations

import math
import re

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

KWH_J = 3.6e6
"""Joules in a kilowatt-hour."""

_ENERGY_J = {"mj": 1e-3, "j": 1.0, "kj": 1e3, "gj": 1e9, "wh": 3600.0, "kwh": KWH_J, "mwh": KWH_J * 1e3}
_DURATION_S = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_QUANTITY = re.compile(r"([+]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]+)")
_SHOWN = (("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("GJ", 1e9))
_SHOWN_WH = (("Wh", 3600.0), ("kWh", KWH_J), ("MWh", KWH_J * 1e3))
SPACE = " "


def parse_energy(text: str) -> float:
    """`20kWh`, `72MJ`, `500 Wh` in joules. `mJ` and `MJ` differ by case; other units do not mind it.

    Raises UsageProblem for anything else, zero and negatives included.
    """
    shown = clean(text, 40)
    match = _QUANTITY.fullmatch(str(text).strip())
    unit = match[2] if match else ""
    factor = 1e6 if unit in {"MJ", "Mj"} else _ENERGY_J.get(unit.lower())
    if match is None or factor is None:
        raise UsageProblem(f"'{shown}' is no energy: write a number with J, kJ, MJ, Wh, kWh or MWh, such as 20kWh")
    joules = float(match[1]) * factor
    if not (0 < joules < math.inf):
        raise UsageProblem(f"'{shown}': an energy must be greater than 0 and finite")
    return joules


def parse_duration(text: str) -> float:
    """`90`, `10s`, `2h`, `1h30m`, `30d` in seconds; a bare number is seconds. Raises UsageProblem."""
    whole = str(text).strip()
    shown = clean(whole, 40)
    try:
        seconds = float(whole)
    except ValueError:
        parts = _QUANTITY.findall(whole)
        rest = _QUANTITY.sub("", whole).strip()
        units = [_DURATION_S.get(unit.lower()) for _, unit in parts]
        if not parts or rest or None in units:
            raise UsageProblem(f"'{shown}' is no duration: write a number with s, min, h or d, such as 2h") from None
        seconds = sum(float(number) * (factor or 0.0) for (number, _), factor in zip(parts, units, strict=True))
    if not (0 <= seconds < math.inf):
        raise UsageProblem(f"'{shown}': a duration must be finite and not negative")
    return seconds


def three_digits(value: float) -> str:
    """A number with three significant digits, without an exponent; larger ones keep their whole digits."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    if rounded:  # 9.999 has become 10.00, which needs a digit less
        decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def format_energy(joules: float | None, unit: str = "auto") -> str:
    """`12.3 kJ`; `n/a` for None. `unit`: `auto` (J, kJ, MJ, then kWh), `J`, `kJ`, `MJ`, `Wh`, `kWh`, `MWh`."""
    if joules is None or not math.isfinite(joules):
        return "n/a"
    scales = dict((*_SHOWN, *_SHOWN_WH))
    if unit != "auto":
        return f"{three_digits(joules / scales[unit])}{SPACE}{unit}"
    if abs(joules) >= KWH_J:
        return f"{three_digits(joules / KWH_J)}{SPACE}kWh"
    name, scale = next(((n, s) for n, s in reversed(_SHOWN[:3]) if abs(joules) >= s), _SHOWN[0])
    return f"{three_digits(joules / scale)}{SPACE}{name}"


def format_duration(seconds: float | None) -> str:
    """`6.71 ms`, `0.520 s`, `12.3 s`, `3:07`, `2:03:07`, `3 d 2:03:07`; `n/a` for None."""
    if seconds is None or not math.isfinite(seconds):
        return "n/a"
    if 0 < seconds < 0.1:
        return f"{three_digits(seconds * 1000)} ms"
    if seconds < 60:
        return f"{three_digits(seconds)} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {clock}" if days else clock


def format_number(value: float | None) -> str:
    """Three significant digits with k, M, G or T; `n/a` for None."""
    if value is None or not math.isfinite(value):
        return "n/a"
    for suffix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{three_digits(value / scale)}{suffix}"
    return three_digits(value)
