"""Numbers as text for the screens: fixed widths, three significant digits, the unit always printed.

Unknown is `n/a` and never 0. Inside everything is joules, watts and seconds; `Units` turns joules into what
the user chose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NA = "n/a"
"""What every unknown number shows."""

JOULES_PER_KWH = 3.6e6
"""Joules in one kilowatt-hour, exact."""

UNIT_CYCLE = ("J", "Wh", "kWh", "co2e", "money")
"""Order in which the unit key walks."""

_PREFIXES = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))


def three_digits(value: float) -> str:
    """`value` with three significant digits (a larger one keeps its whole digits), and no exponent between 0.001 and
    10 million."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 0.0009995 or size >= 9_999_500:
        digits, exponent = f"{value:.2e}".split("e")
        return f"{digits}e{int(exponent)}"
    decimals = max(0, 2 - math.floor(math.log10(size)))
    text = f"{value:.{decimals}f}"
    if len(text.lstrip("-").replace(".", "").lstrip("0")) > 3 and decimals > 0:
        text = f"{value:.{decimals - 1}f}"
    return text


def scaled(value: float | None, unit: str) -> str:
    """`value` with an SI prefix: `scaled(25.8e6, "J")` is `25.8 MJ`."""
    if value is None or not math.isfinite(value):
        return NA
    prefix, factor = "", 1.0
    for name, step in _PREFIXES:
        if abs(value) >= step * 0.9995:
            prefix, factor = name, step
    return f"{three_digits(value / factor)} {prefix}{unit}"


_SMALL_WH = (("Wh", 0.9995e-3, 1.0), ("mWh", 0.0, 1e-3))
_WH = (("MWh", 9.9995e6, 1e6), *_SMALL_WH)
_KWH = (("GWh", 9.9995e9, 1e9), ("kWh", 0.9995, 1e3), *_SMALL_WH)
_CO2E = (
    ("tCO2e", 0.9995e6, 1e6),
    ("kgCO2e", 0.9995e3, 1e3),
    ("gCO2e", 0.0995, 1.0),
    ("mgCO2e", 0.9995e-3, 1e-3),
    ("ugCO2e", 0.0, 1e-6),
)
"""Units by size: name, from which value on (in Wh, Wh, grams), what one of it is."""


@dataclass(frozen=True, slots=True)
class Units:
    """The unit for energy, with what it takes to convert."""

    name: str = "J"
    """One of UNIT_CYCLE."""
    g_per_kwh: float | None = None
    """Grid intensity in grams of CO2e per kilowatt-hour; None where unknown."""
    pue: float = 1.0
    """Facility energy over IT energy; CO2e and money count the facility's."""
    price_per_kwh: float | None = None
    """Energy price in `currency` per kilowatt-hour; None where unknown."""
    currency: str = "EUR"

    def energy(self, joules: float | None) -> str:
        """Energy in the chosen unit, unit included; at most 11 characters."""
        if joules is None or not math.isfinite(joules):
            return NA
        if self.name == "J":
            return scaled(joules, "J")
        kwh = joules / JOULES_PER_KWH
        if self.name == "Wh":
            return _fitting(kwh * 1e3, _WH, "Wh")
        if self.name == "kWh":
            return _fitting(kwh * 1e3, _KWH, "kWh")
        if self.name == "co2e":
            return self._co2e(kwh)
        return self._money(kwh)

    def _co2e(self, kwh: float) -> str:
        if self.g_per_kwh is None:
            return NA
        grams = kwh * self.pue * self.g_per_kwh
        return "<1 ugCO2e" if 0 < grams < 0.9995e-6 else _fitting(grams, _CO2E, "gCO2e")

    def _money(self, kwh: float) -> str:
        if self.price_per_kwh is None:
            return NA
        price = kwh * self.pue * self.price_per_kwh
        return f"{'<1e-9' if 0 < price < 0.9995e-9 else three_digits(price)} {self.currency[:3]}"

    def label(self) -> str:
        """The unit in words, with what it rests on, for messages."""
        if self.name == "co2e":
            if self.g_per_kwh is None:
                return "kg CO2e: n/a, set region or intensity (kdwatch config)"
            return f"kg CO2e at {three_digits(self.g_per_kwh)} g/kWh, PUE {self.pue:g}"
        if self.name == "money":
            if self.price_per_kwh is None:
                return "money: n/a, set energy_price (kdwatch config)"
            return f"{self.currency} at {self.price_per_kwh:g} per kWh, PUE {self.pue:g}"
        return self.name


def _fitting(value: float, units: tuple[tuple[str, float, float], ...], usual: str) -> str:
    """`value` in the first of `units` (name, least value, what one of it is) that it reaches; 0 in the usual."""
    if value == 0:
        return f"0 {usual}"
    name, _, factor = next((u for u in units if abs(value) >= u[1]), units[-1])
    return f"{three_digits(value / factor)} {name}"


def next_unit(name: str) -> str:
    """The unit after `name` in UNIT_CYCLE."""
    position = UNIT_CYCLE.index(name) if name in UNIT_CYCLE else -1
    return UNIT_CYCLE[(position + 1) % len(UNIT_CYCLE)]


def watts(value: float | None) -> str:
    """Power without its unit, for a column headed W: whole watts, `12.3k` from 10 kW on."""
    if value is None or not math.isfinite(value):
        return NA
    if abs(value) >= 9999.5:
        return f"{three_digits(value / 1e3)}k"
    if abs(value) < 9.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """`H:MM:SS`; from 100 hours on, `DdHH:MM`."""
    if seconds is None or not math.isfinite(seconds):
        return NA
    sign = "-" if seconds < 0 else ""
    whole = int(abs(seconds))
    hours, rest = divmod(whole, 3600)
    if hours >= 100:
        days, hours = divmod(hours, 24)
        return f"{sign}{days}d{hours:02d}:{rest // 60:02d}"
    return f"{sign}{hours}:{rest // 60:02d}:{rest % 60:02d}"


def count(value: float | None) -> str:
    """A count with an SI prefix and no unit: `41.2k`."""
    return NA if value is None else scaled(value, "").replace(" ", "")


def ratio(value: float | None) -> str:
    """A share of one as whole percent; shares that would round to 0 or 100 without being so say it."""
    if value is None or not math.isfinite(value):
        return NA
    if 0 < value < 0.005:
        return "<1%"
    if 0.995 <= value < 1:
        return ">99%"
    return f"{value * 100:.0f}%"


def plain(value: float | None, unit: str = "") -> str:
    """Three significant digits with a unit, or `n/a`."""
    if value is None or not math.isfinite(value):
        return NA
    return f"{three_digits(value)} {unit}".rstrip()
