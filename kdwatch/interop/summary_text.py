"""An import as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kdwatch.ledger.units import format_energy
from kdwatch.rundir.text import clean


def file_lines(entry: dict[str, Any]) -> Iterator[str]:
    """A file: what it is, its energy, its devices, and what to know about it."""
    name = clean(entry["file"], 200)
    if entry["error"]:
        yield f"{name}: not imported"
        return
    yield f"{name}: {entry['format']}, {entry['rows']} rows"
    yield f"  energy    {energy(entry['total_energy_j'])} over {seconds(entry['duration_s'])}"
    if entry["n_samples"]:
        yield f"  samples   {entry['n_samples']}, gaps {seconds(entry['gap_seconds'])}"
    for device in entry["devices"][:64]:
        parts = [energy(device["energy_j"]), f"mean {watts(device['mean_w'])}", f"peak {watts(device['peak_w'])}"]
        label = clean(device["key"], 60) + (f" {clean(device['name'], 60)}" if device["name"] else "")
        yield f"  {device['kind']:9} {label}: {', '.join(parts)}" + (" (modelled)" if device["estimated"] else "")
    if entry["kwh"] is not None:
        kilograms = "n/a" if entry["kg_co2e"] is None else f"{entry['kg_co2e']:.4g} kg CO2e"
        yield f"  file says {entry['kwh']:.6g} kWh, {kilograms}"
    for warning in entry["warnings"]:
        yield f"  note      {clean(warning['text'], 400)}"


def energy(joules: float | None) -> str:
    """Energy with its unit, `n/a` where unknown."""
    return "n/a" if joules is None else format_energy(joules)


def seconds(value: float | None) -> str:
    """Seconds with their unit, `n/a` where unknown."""
    return "n/a" if value is None else f"{value:.6g} s"


def watts(value: float | None) -> str:
    """Watts with their unit, `n/a` where unknown."""
    return "n/a" if value is None else f"{value:.4g} W"
