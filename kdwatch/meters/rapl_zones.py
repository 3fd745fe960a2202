"""Energy zones of a powercap tree: the ones to read, each physical thing once.

Layouts: flat links under /sys/class/powercap, the nested tree under /sys/devices/virtual/powercap, and either as
mounted into a container. A zone is known by its directory name (`intel-rapl:0:1`) and what it is by its `name`
file, never by its number. Source: the kernel's Documentation/power/powercap/powercap.rst.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ZONE = re.compile(r"^(?P<control>[a-z]+-rapl(?:-mmio)?)(?P<path>(?::\d+)+)$")
PACKAGE = re.compile(r"^package-(\d+)(?:-die-(\d+))?$")
DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone whose energy adds up with the others': a package, or the memory of one."""

    path: Path
    control: str
    """`intel-rapl`, `intel-rapl-mmio`, `amd-rapl` …"""
    name: str
    """`package-0` or `dram`."""
    package: str
    """Name of the package that it is or belongs to."""

    @property
    def id(self) -> str:
        """Stable identity: `rapl:package-0`, `rapl:package-0/dram`."""
        return f"rapl:{self.package}" + ("" if self.name == self.package else f"/{self.name}")

    @property
    def energy_path(self) -> Path:
        """File with the counter, in microjoules."""
        return self.path / "energy_uj"

    def range_j(self) -> float | None:
        """Value at which the counter wraps, in joules; None where that cannot be read."""
        text = _line(self.path / "max_energy_range_uj")
        return int(text) * 1e-6 if text and text.isdigit() and int(text) > 0 else None


def root_path() -> Path:
    """`$KDWATCH_POWERCAP_ROOT`, else /sys/class/powercap."""
    return Path(os.environ.get("KDWATCH_POWERCAP_ROOT") or "/sys/class/powercap")


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def directories(root: Path) -> dict[str, Path]:
    """Every zone's directory by its name, wherever in the tree; links are followed, each directory once."""
    found: dict[str, Path] = {}
    seen: set[str] = set()

    def walk(folder: Path, depth: int) -> None:
        real = os.path.realpath(folder)
        if real in seen or depth > DEEPEST:
            return
        seen.add(real)
        for entry in _entries(folder):
            if ZONE.match(entry.name):
                found.setdefault(entry.name, entry)
            if "rapl" in entry.name:
                walk(entry, depth + 1)

    walk(root, 0)
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(e for e in folder.iterdir() if e.is_dir())
    except OSError:
        return []


def broken_links(root: Path) -> list[Path]:
    """Zone links that lead nowhere: the container has /sys/class/powercap without what it points to."""
    try:
        return sorted(e for e in root.iterdir() if "rapl" in e.name and e.is_symlink() and not e.exists())
    except OSError:
        return []


def candidates(root: Path) -> list[Zone]:
    """Packages and their memory, mirrors still among them; psys, core and uncore left out by name."""
    found = directories(root)
    zones = []
    for directory, path in sorted(found.items()):
        match = ZONE.match(directory)
        name = _line(path / "name")
        if match is None or name is None:
            continue
        if PACKAGE.match(name):
            zones.append(Zone(path, match["control"], name, name))
        elif name == "dram":
            parent = found.get(directory.rpartition(":")[0])
            package = _line(parent / "name") if parent is not None else None
            if package and PACKAGE.match(package):
                zones.append(Zone(path, match["control"], name, package))
    return zones


def readable(zone: Zone) -> bool:
    """Whether the counter can be read now."""
    text = _line(zone.energy_path)
    return bool(text) and str(text).isdigit()


def choose(zones: list[Zone]) -> tuple[list[Zone], list[Zone]]:
    """One zone for each identity: a readable one before an unreadable one, then the plain control type before its
    `mmio` mirror. Returns the readable and the unreadable, packages in order."""
    best: dict[str, tuple[bool, bool, Zone]] = {}
    for zone in zones:
        rank = (readable(zone), not zone.control.endswith("-mmio"))
        if zone.id not in best or rank > best[zone.id][:2]:
            best[zone.id] = (*rank, zone)
    ordered = sorted(best.values(), key=lambda b: _order(b[2]))
    return [z for ok, _, z in ordered if ok], [z for ok, _, z in ordered if not ok]


def _order(zone: Zone) -> tuple[int, int, bool]:
    match = PACKAGE.match(zone.package)
    assert match is not None
    return int(match[1]), int(match[2] or 0), zone.name == "dram"
