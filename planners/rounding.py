"""Limits as people will type them again: rounded to the side on which they still hold."""

from __future__ import annotations

import math
from collections.abc import Callable

NOISE = 1e-9
"""Relative error of sums of decimal numbers, which is not rounded away from."""
Rounding = Callable[[float, int], float]
"""(value, significant digits) -> value."""


def up(value: float, digits: int) -> float:
    """The smallest number of so many significant digits that is not below the value."""
    return _rounded(value, digits, math.ceil, -NOISE)


def down(value: float, digits: int) -> float:
    """The largest number of so many significant digits that is not above the value."""
    return _rounded(value, digits, math.floor, NOISE)


def nearest(value: float, digits: int) -> float:
    """The value, for the format to round."""
    return value


def _rounded(value: float, digits: int, toward: Callable[[float], int], noise: float) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    places = digits - 1 - math.floor(math.log10(abs(value)))
    number = value * 10.0**places
    return round(toward(number + abs(number) * noise) / 10.0**places, max(places, 0))
