"""A simulated powercap tree: zones with names, ranges and wraps, in the layouts that machines and containers show."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

INTEL_RANGE_UJ = 262143328850
AMD_RANGE_UJ = 65712999613


class FakeZone:
    """One zone's directory."""

    def __init__(self, path: Path, name: str, range_uj: int, start_uj: int) -> None:
        self.path = path
        self.range_uj = range_uj
        path.mkdir(parents=True)
        (path / "name").write_text(name + "\n")
        (path / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.value_uj = start_uj
        self._write()

    def _write(self) -> None:
        # in place and padded, as sysfs shows one whole line at any moment to a reader that keeps the file open
        with (self.path / "energy_uj").open("r+b" if (self.path / "energy_uj").exists() else "w+b") as f:
            f.write(f"{self.value_uj}\n".ljust(24).encode())

    def add_j(self, joules: float) -> None:
        """Let the zone use energy; the counter wraps at its own range, as often as it must."""
        self.value_uj = (self.value_uj + round(joules * 1e6)) % self.range_uj
        self._write()

    def set_uj(self, value: int) -> None:
        """Set the counter."""
        self.value_uj = value
        self._write()

    def close(self, *names: str) -> None:
        """Take read permission from files (`energy_uj` by default). Root reads them all the same, so the file is put
        out of reach by a directory in its place, which fails for everyone."""
        for name in names or ("energy_uj",):
            (self.path / name).unlink()
            (self.path / name).mkdir()


class PowercapTree:
    """Zones under a root. `layout`: `flat` (links under class/, as the kernel has it), `nested` (zones inside their
    control type) or `virtual` (the tree that the links lead to)."""

    def __init__(self, base: Path, layout: str = "flat") -> None:
        self.layout = layout
        self.real = base / "devices" / "virtual" / "powercap"
        self.real.mkdir(parents=True)
        self.links = base / "class" / "powercap"
        if layout == "flat":
            self.links.mkdir(parents=True)
        self.zones: dict[str, FakeZone] = {}

    @property
    def root(self) -> Path:
        """What KDWATCH_POWERCAP_ROOT should name."""
        return self.links if self.layout == "flat" else self.real

    def add(self, zone_id: str, name: str, range_uj: int = INTEL_RANGE_UJ, start_uj: int = 1_000_000) -> FakeZone:
        """Add a zone such as `intel-rapl:0:1`; its parents must be there."""
        control, *numbers = zone_id.split(":")
        path = self.real / control
        if not path.exists():
            path.mkdir()
            self._link(control, path)
        for depth in range(1, len(numbers) + 1):
            path = path / ":".join([control, *numbers[:depth]])
        zone = FakeZone(path, name, range_uj, start_uj)
        self._link(zone_id, path)
        self.zones[zone_id] = zone
        return zone

    def _link(self, name: str, path: Path) -> None:
        if self.layout == "flat":
            (self.links / name).symlink_to(os.path.relpath(path, self.links))

    def break_links(self) -> None:
        """As in a container that mounts /sys/class/powercap alone."""
        self.real.rename(self.real.with_name("gone"))


class Driver:
    """Moves zones at given powers in real time while it is entered, each at its own watts."""

    def __init__(self, watts: Mapping[FakeZone, float], step_s: float = 0.002) -> None:
        self._watts = dict(watts)
        self._step_s = step_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Driver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(self._step_s):
            now = time.monotonic()
            for zone, watts in self._watts.items():
                zone.add_j(watts * (now - before))
            before = now


def two_sockets(base: Path, layout: str = "flat", range_uj: int = INTEL_RANGE_UJ) -> PowercapTree:
    """Two packages with memory, core and uncore each, and a psys beside them that contains all."""
    tree = PowercapTree(base, layout)
    for n in range(2):
        tree.add(f"intel-rapl:{n}", f"package-{n}", range_uj, 1_000_000 + n)
        tree.add(f"intel-rapl:{n}:0", "core", range_uj)
        tree.add(f"intel-rapl:{n}:1", "uncore", range_uj)
        tree.add(f"intel-rapl:{n}:2", "dram", AMD_RANGE_UJ)
    tree.add("intel-rapl:2", "psys", range_uj)
    return tree
