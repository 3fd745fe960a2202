"""Quantities as people type them: energy in kWh, carbon in kg CO2e. A missing or wrong unit is an error."""

from __future__ import annotations

import re

from kdwatch.ledger.units import KWH_J, parse_energy
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

G_PER_LB = 453.59237
"""Grams in a pound, exactly."""

_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_POWER = re.compile(_NUMBER + r"\s*([mkMG]?[wW])")
_ZERO = re.compile(r"[+-]?(?:0+\.?0*|\.0+)\s*(mJ|J|kJ|MJ|GJ|Wh|kWh|MWh)", re.IGNORECASE)
_MASS = re.compile(_NUMBER + r"\s*(kg|g|t)\s*(?:co2e?)?", re.IGNORECASE)
_KG = {"g": 1e-3, "kg": 1.0, "t": 1e3}


class UnitRequired(UsageProblem):
    """A bare number where a unit is needed: the planner asks, it does not guess."""

    code = "unit_required"


class UnitWrong(UsageProblem):
    """A unit of another quantity, such as kW for an energy."""

    code = "unit_wrong"


def energy_kwh(text: str, what: str = "energy") -> float:
    """`20kWh`, `72MJ`, `0 kWh` in kWh; 0 is a real energy. Raises UsageProblem."""
    written = str(text).strip()
    shown = clean(written, 40)
    if re.fullmatch(_NUMBER, written):
        raise UnitRequired(f"{what}: {shown!r} has no unit; write for example {shown}kWh or {shown}MJ")
    if power := _POWER.fullmatch(written):
        unit = power[2][:-1] + "Wh"
        raise UnitWrong(f"{what}: {shown!r} is a power, not an energy; did you mean {power[1]}{unit}?")
    if _ZERO.fullmatch(written):
        return 0.0
    if written.startswith("-"):
        raise UsageProblem(f"{what}: {shown!r} is negative; give an energy of at least 0, such as 20kWh")
    try:
        return parse_energy(written) / KWH_J
    except UsageProblem as problem:
        raise UsageProblem(f"{what}: {problem}") from None


def carbon_kg(text: str, what: str = "co2") -> float:
    """`5kg`, `500 g`, `1t`, with or without CO2e, in kg CO2e. Raises UsageProblem."""
    written = str(text).strip()
    shown = clean(written, 40)
    if re.fullmatch(_NUMBER, written):
        raise UnitRequired(f"{what}: {shown!r} has no unit; write for example {shown}kg")
    match = _MASS.fullmatch(written)
    if match is None:
        raise UnitWrong(f"{what}: {shown!r} is no mass of CO2e; write a number with g, kg or t, such as 5kg")
    kg = float(match[1]) * _KG[match[2].lower()]
    if kg < 0:
        raise UsageProblem(f"{what}: {shown!r} is negative; give a mass of at least 0")
    return kg


def g_per_kwh_from_lb_per_mwh(lb_per_mwh: float) -> float:
    """Carbon intensity in g/kWh from the lb/MWh that US tables use (1 lb = 453.59237 g)."""
    return lb_per_mwh * G_PER_LB / 1000.0


def from_kwh(kwh: float, tokens: float | None = None) -> dict[str, float]:
    """The same energy in other units; with `tokens`, J per token too."""
    joules = kwh * KWH_J
    units = {"kwh": kwh, "wh": kwh * 1e3, "mj": joules / 1e6, "j": joules}
    return units | ({"j_per_token": joules / tokens} if tokens else {})
