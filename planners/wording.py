"""Numbers in sentences: energies with their unit, from joules to kWh."""

from __future__ import annotations

from kdwatch.ledger.units import KWH_J, format_energy


def energy(kwh: float | None) -> str:
    """`19.50 kWh`; below a tenth of a kWh in J, kJ or MJ with three digits; `n/a` for None."""
    if kwh is None:
        return "n/a"
    return f"{kwh:.2f} kWh" if abs(kwh) >= 0.1 or kwh == 0 else format_energy(kwh * KWH_J)
