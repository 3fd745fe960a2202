"""Energies for people: `~` before each that is a model's, in whole or in part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kdwatch.ledger.units import format_energy


def marked(joules: float | None, estimated: float | bool | None) -> str:
    """`~12.3 kJ` where a model told it; `n/a` for None."""
    return ("~" if estimated and joules is not None else "") + format_energy(joules)


def is_estimated(device: Mapping[str, Any]) -> bool:
    """Whether a device's energy is a model's, ours or that of the tool whose log was imported."""
    return device["source"] == "estimated" or "estimated" in (device.get("flags") or ())


def modelled(devices: Sequence[Mapping[str, Any]]) -> set[str]:
    """Kinds of device of which a part in the sums is a model's."""
    return {str(d["kind"]) for d in devices if d["counted"] and is_estimated(d)}


def component_energies(stage: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Energy of a stage: total, GPU, CPU, memory (measured, else estimated)."""
    energy, kinds = stage["energy_j"], modelled(stage["devices"])
    memory = "dram" if energy["dram"] is not None else "ram_estimated"
    parts = [marked(energy[kind], kind in kinds) for kind in ("gpu", "cpu", memory)]
    return marked(energy["total"], bool(energy["estimated"])), parts[0], parts[1], parts[2]
