"""Whole blocks of rows of a power CSV at once: what most rows of a large log are, several times faster.

A block is taken as the rows would be one by one, or not at all: a cell that needs a closer look sends all of it back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdwatch.interop.columns import Column
from kdwatch.interop.table import Block
from kdwatch.interop.values import SENTINELS, is_missing

if TYPE_CHECKING:
    from kdwatch.interop.formats.power_csv import PowerTable

MOST_W = 1e9
NO_SENTINEL_W = 2000.0
"""Below this no reading is a sentinel."""

Part = tuple[str, Sequence[float], Sequence[float | None]]
"""A device's key, seconds and watts, None for no reading."""


def take_block(power: PowerTable, block: Block) -> bool:
    """Add a block's readings to their series; False, and nothing was added, where it has to be read row by row."""
    plan = power.plan
    if plan.time is None or power.interval_s is not None or len(plan.time_places) != 1:
        return False
    times = plan.time.many(block.column(plan.time_places[0]))
    if times is None:
        return False
    columns = [(column, _watts(power, block.column(column.place), column)) for column in power.wanted]
    bases = _bases(power, block)
    if bases is not None and plan.shared and plan.name:
        bases = [plan.apart(base, name) for base, name in zip(bases, block.column(plan.name.place), strict=True)]
    if any(watts is None for _, watts in columns):
        return False
    for column, watts in columns:
        assert watts is not None
        for base, when, values in _by_device(bases, times, watts):
            key = power.device_key(base, column)
            known, readings = _known(when, values)
            power.put_many(key, column, known, readings)
            if len(readings) < len(values):
                power.missing[key, column.header] += len(values) - len(readings)
    if plan.name:
        _names(power, bases, block.column(plan.name.place))
    return True


def _watts(power: PowerTable, cells: list[str], column: Column) -> list[float | None] | None:
    """A reading for each cell, None for none; None for all where one has to be read by itself."""
    values: list[float | None]
    written = False
    try:
        factor = column.factor or 1.0
        values = [value * factor for value in map(float, cells)] if factor != 1.0 else list(map(float, cells))
    except ValueError:
        if not all(cell.endswith(" W") or is_missing(cell) for cell in cells):
            return None
        try:
            values = [float(cell[:-2]) if cell.endswith(" W") else None for cell in cells]
            written = True
        except ValueError:
            return None
    known = [value for value in values if value is not None]
    if not known:
        return None
    top = max(known)
    if not math.isfinite(sum(known)) or min(known) < 0 or top > MOST_W:
        return None
    if top >= NO_SENTINEL_W and not SENTINELS.isdisjoint(known):
        return None
    if written:
        power.units.add("w")
    return values


def _bases(power: PowerTable, block: Block) -> list[str] | None:
    """Each row's device as its key and host columns give it; None where there is no such column."""
    plan = power.plan
    keys = block.column(plan.key.place) if plan.key else None
    hosts = block.column(plan.host.place) if plan.host else None
    if keys is None or hosts is None:
        found = keys if keys is not None else hosts
        return None if found is None else [base or "0" for base in found]
    return [f"{host}/{key}" if key else host or "0" for host, key in zip(hosts, keys, strict=True)]


def _by_device(bases: list[str] | None, times: list[float], watts: Sequence[float | None]) -> list[Part]:
    """The rows of each device."""
    if bases is None:
        return [("", times, watts)]
    devices = list(dict.fromkeys(bases))
    turn = len(devices)
    if bases == (devices * (len(bases) // turn + 1))[: len(bases)]:
        return [(base, times[at::turn], watts[at::turn]) for at, base in enumerate(devices)]
    found: dict[str, tuple[list[float], list[float | None]]] = {base: ([], []) for base in devices}
    for base, t, value in zip(bases, times, watts, strict=True):
        when, values = found[base]
        when.append(t)
        values.append(value)
    return [(base, *columns) for base, columns in found.items()]


def _known(times: Sequence[float], watts: Sequence[float | None]) -> tuple[Sequence[float], list[float]]:
    readings = [value for value in watts if value is not None]
    if len(readings) < len(watts):
        times = [t for t, value in zip(times, watts, strict=True) if value is not None]
    return times, readings


def _names(power: PowerTable, bases: list[str] | None, names: list[str]) -> None:
    for base, name in dict.fromkeys(zip(bases or ["0"] * len(names), names, strict=True)):
        if name or bases is None:
            power.names.setdefault(base, name)
