"""Open the CPU's energy counters: powercap, else perf events; and say what is closed and how to open it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdwatch.meters import perf_energy
from kdwatch.meters.rapl import Counter, ZoneCounter, device_of
from kdwatch.meters.rapl_mirrors import MIRROR_OF, look_closely, sockets
from kdwatch.meters.rapl_zones import Zone, broken_links, candidates, choose, root_path

FIX = (
    "as root: `chmod a+r {path}` until the next boot; for good, a udev rule that gives a group the right "
    "(docs/sensors.md has it); or `setcap cap_perfmon=ep` on the Python binary and kernel.perf_event_paranoid=0"
)


@dataclass(frozen=True)
class Opened:
    """The counters and how it went."""

    counters: list[Counter] = field(default_factory=list)
    status: str = "unavailable"
    """`ok`, `warn` or `unavailable`."""
    text: str = ""
    fix: str | None = None


def open_rapl(root: Path | None = None) -> Opened:
    """The CPU counters of this machine. Never raises."""
    root = root or root_path()
    good, closed = choose(candidates(root))
    if good:
        return _powercap(good, closed)
    counters: list[Counter] = list(perf_energy.open_counters())
    if counters:
        return Opened(counters, "ok", f"{_count(counters)} through perf_event (powercap is closed)")
    if closed:
        names = ", ".join(str(z.energy_path) for z in closed)
        return Opened([], "unavailable", f"no permission to read {names}", FIX.format(path=closed[0].energy_path))
    return _nothing(root)


def _powercap(good: Sequence[Zone], closed: Sequence[Zone]) -> Opened:
    measured = any(z.name == z.package for z in good)
    counters, notes = _counters(good, closed if measured else ())
    if closed:
        notes.append("no permission to read " + ", ".join(str(z.energy_path) for z in closed))
    rangeless = [c.device.name for c in counters if c.device.wrap_j is None]
    if rangeless:
        notes.append(f"max_energy_range_uj of {', '.join(rangeless)} cannot be read: a wrap counts as a reset")
    fix = FIX.format(path=closed[0].energy_path) if closed else None
    text = _count([c for c in counters if c.read_j() is not None])
    return Opened(counters, "warn" if notes else "ok", "; ".join([text, *notes]), fix)


def _counters(good: Sequence[Zone], closed: Sequence[Zone]) -> tuple[list[Counter], list[str]]:
    """A counter for each zone; a package that mirrors another one says so in its details. Closed ones are devices too:
    their energy is then missing, where leaving them out would make the sum of the others look whole."""
    names = sorted({z.package for z in (*good, *closed)}, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    opened = {z.id: ZoneCounter(device_of(z, names.index(z.package)), z) for z in (*good, *closed)}
    packages = {c.device.key: c for c in (opened[z.id] for z in good if z.name == z.package)}
    notes = []
    for mirror, of in look_closely(list(packages.values()), sockets).items():
        device = packages[mirror].device
        packages[mirror].device = replace(device, details={**device.details, MIRROR_OF: of})
        notes.append(f"{device.name} repeats {packages[of].device.name}: counted once")
    return list(opened.values()), notes


def _count(counters: Sequence[Counter]) -> str:
    packages = sum(c.device.kind == "cpu" and MIRROR_OF not in c.device.details for c in counters)
    dram = sum(c.device.kind == "dram" for c in counters)
    return f"{packages} CPU package{'' if packages == 1 else 's'}" + (f", {dram} memory zones" if dram else "")


def _nothing(root: Path) -> Opened:
    dangling = broken_links(root)
    if dangling:
        text = f"{dangling[0]} leads nowhere: the container lacks what it points to"
        return Opened([], "unavailable", text, "mount /sys/devices/virtual/powercap into the container as well")
    if not root.exists() and os.environ.get("KDWATCH_POWERCAP_ROOT"):
        fix = "point KDWATCH_POWERCAP_ROOT to a powercap tree, or unset it"
        return Opened([], "unavailable", f"KDWATCH_POWERCAP_ROOT: {root} does not exist", fix)
    if not root.exists():
        text = f"{root} does not exist: a virtual machine, a container, or a CPU without RAPL"
    else:
        text = f"{root} holds no package zone: a virtual machine, a container, or a CPU without RAPL"
    return Opened([], "unavailable", text)
