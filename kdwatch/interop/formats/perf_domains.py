"""perf's energy domains: which are devices and which are parts of another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kdwatch.interop.model import ImportedLog, LoggedDevice

PARTS_OF_PACKAGE = ("energy-cores", "energy-gpu")
KINDS = {"energy-pkg": ("cpu", "package"), "energy-ram": ("dram", "dram"), "energy-psys": ("other", "machine")}


def domain_of(event: str) -> str:
    """`power/energy-pkg/` -> `energy-pkg`."""
    return event.strip().strip("/").split("/")[-1].split(":")[0] or event


def keys_of(events: Iterable[str]) -> dict[str, str]:
    """A device key for each event: its domain, or the whole event where two have one domain."""
    names = list(events)
    domains = [domain_of(event) for event in names]
    return {e: d if domains.count(d) == 1 else e for e, d in zip(names, domains, strict=True)}


def counted(events: Mapping[str, float | None]) -> list[str]:
    """The events that add up: the package and the memory; the platform only where the package is not there."""
    if any(domain_of(event).startswith("energy-pkg") for event in events):
        skipped = (*PARTS_OF_PACKAGE, "energy-psys")
        return [event for event in events if not domain_of(event).startswith(skipped)]
    return list(events)


def add_domains(log: ImportedLog, energies: Mapping[str, float | None], seconds: float | None) -> None:
    """Devices for the domains that add up; all of them in details."""
    log.details["energy_j_by_event"] = dict(energies)
    keys = keys_of(energies)
    for event in counted(energies):
        domain = domain_of(event)
        kind, scope = KINDS.get(domain, ("other", "component"))
        energy = energies[event]
        mean = energy / seconds if energy is not None and seconds else None
        log.devices.append(
            LoggedDevice(keys[event], kind, scope, event, energy_j=energy, duration_s=seconds, mean_w=mean)
        )
        if energy is None:
            log.note("not_counted", f"{event}: <not counted> or <not supported>: unknown, not zero")
    left = [event for event in energies if event not in counted(energies)]
    if left:
        log.note("parts_left_out", f"{', '.join(left)}: inside or around the package, not added to it")
    known = [device.energy_j for device in log.devices if device.energy_j is not None]
    log.total_j = math.fsum(known) if known else None
    log.duration_s = seconds
    log.n_gpus = 0
