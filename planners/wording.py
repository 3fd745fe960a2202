"""Numbers in sentences and on axes: energies with the unit that fits them, from joules to kWh."""

from __future__ import annotations

from typing import Any

from kdwatch.ledger.units import KWH_J, format_energy, three_digits
from planners.rounding import Rounding, nearest

LEAST_KWH = 0.1
"""Energies below are told in J or kJ."""
_AXES = (("kWh", 1.0, LEAST_KWH), ("kJ", 3600.0, 1 / 3600), ("J", KWH_J, 0.0))
"""Unit of an axis, its number to a kWh, and the largest energy from which it is used, kWh."""


def energy(kwh: float | None, rounding: Rounding = nearest) -> str:
    """`19.50 kWh`, `0.500 kWh`, `0 kWh`; below a tenth of a kWh in J or kJ with three digits; `n/a` for None.

    `rounding`: to which side, where the number is a limit.
    """
    if kwh is None:
        return "n/a"
    if kwh == 0:
        return "0 kWh"
    if abs(kwh) >= 1:
        return f"{rounding(kwh, len(str(int(abs(kwh)))) + 2):.2f} kWh"
    if abs(kwh) >= LEAST_KWH:
        return f"{three_digits(rounding(kwh, 3))} kWh"
    return format_energy(rounding(kwh * KWH_J, 3))


def axis(largest_kwh: float) -> tuple[str, float]:
    """Unit of an energy axis that goes up to `largest_kwh`, and what a kWh is in it."""
    return next((unit, scale) for unit, scale, least in _AXES if largest_kwh >= least)


def basis_text(basis: str, scope: str | None) -> str:
    """What an answer rests on, for people: no run of which a model told all energy is called `measured`."""
    return "run, energy estimated" if basis == "measured" and scope == "cpu_estimated" else basis


def setting(value: Any) -> str:
    """A setting as a recipe has it: 6000, not 6000.0."""
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e6 else str(value)
