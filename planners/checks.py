"""Checks of numbers that people and files give: one clear line, never a silent default."""

from __future__ import annotations

import math
from fractions import Fraction

from kdwatch.rundir.errors import UsageProblem

LARGEST = 10**9
"""Students, GPUs: more is a slip."""
SAME = 1e-9
"""Relative difference below which two energies are the same number written twice."""


def finite(value: float, what: str, *, above: float | None = None, at_least: float | None = None) -> float:
    """`value` as a float, or a `UsageProblem` that names `what` and the range it must be in."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageProblem(f"{what}: {value!r} is not a number; give a number{_range(above, at_least)}") from None
    if not math.isfinite(number) or (above is not None and number <= above) or _below(number, at_least):
        raise UsageProblem(f"{what}: {number:g} cannot be used; give a number{_range(above, at_least)}")
    return number


def _below(number: float, at_least: float | None) -> bool:
    return at_least is not None and number < at_least


def _range(above: float | None, at_least: float | None) -> str:
    if above is not None:
        return f" above {above:g}"
    return f" of at least {at_least:g}" if at_least is not None else ""


def whole(value: float, what: str, *, at_least: int = 1) -> int:
    """`value` as an int, or a `UsageProblem`."""
    number = finite(value, what, at_least=at_least)
    if number > LARGEST:
        raise UsageProblem(f"{what}: {number:g} cannot be used; give a whole number of at most {LARGEST:g}")
    if number != int(number):
        raise UsageProblem(f"{what}: {value!r} is not a whole number; give one of at least {at_least}")
    return int(number)


def exact(value: float) -> Fraction:
    """The decimal number of 12 digits nearest to `value`: 6.30 - 5.20 is then exactly 1.10."""
    return Fraction(f"{float(value):.12g}")


def same(a: float, b: float) -> bool:
    """Equal but for rounding in the last digits."""
    return math.isclose(a, b, rel_tol=SAME, abs_tol=1e-12)


def difference(a: float, b: float) -> float:
    """a - b, and 0 where only rounding is left of it."""
    return 0.0 if same(a, b) else a - b
