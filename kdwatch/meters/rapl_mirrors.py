"""Packages that repeat another one's counter: first-generation EPYC shows the socket's value in a zone for each die.

Equal values alone prove little: two counters may start equal, and move alike for a while. So the number of sockets
decides, as the kernel's topology gives it, and how often both agreed when the counter had moved. Nothing is dropped:
a mirror's readings are recorded like any other's, and the ledger leaves them out for as long as this watch says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdwatch.meters.base import Device

TOPOLOGY = Path("/sys/devices/system/cpu")
FEWER_SOCKETS = 3
"""Moves of the counter at which both must agree, where there are more packages than sockets: then some are mirrors."""
UNKNOWN_SOCKETS = 10
"""The same where the number of sockets is not known."""
SUSPICIOUS = 10
"""Moves after which agreement is said, where each package has a socket of its own: both count."""
MIRROR_OF = "mirror_of"
"""In a device's details: key of the package that it was seen to repeat when the sensors were opened."""
SKEW_J = 1.0
"""Copies of one counter may be renewed a millisecond or two apart; a socket uses less than this meanwhile."""
PATIENCE_S = 0.05
"""How long to look when the sensors are opened; a real counter moves every millisecond."""


class Counter(Protocol):
    """As much of an open counter as is needed here."""

    device: Device

    def read_j(self) -> float | None:
        """Joules, or None."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the watch now holds of one device; `what` as in SensorEvent."""

    device: Device
    what: str
    text: str


@dataclass(slots=True)
class _Suspect:
    """A package that agreed with an earlier one at every look so far."""

    counter: Counter
    of: Counter
    last_j: float
    moves: int = 0
    said: bool = False
    mirror: bool = False


def sockets(topology: Path = TOPOLOGY) -> int | None:
    """Number of CPU sockets; None where the kernel does not tell."""
    found = set()
    for path in topology.glob("cpu[0-9]*/topology/physical_package_id"):
        try:
            found.add(int(path.read_text()))
        except (OSError, ValueError):
            return None
    return len(found) or None


class MirrorWatch:
    """Watches all packages of a machine, a look at a time."""

    def __init__(self, packages: Sequence[Counter], count_sockets: Callable[[], int | None]) -> None:
        self._packages = list(packages)
        self._suspects: list[_Suspect] | None = None
        self._needed: int | None = None
        """Agreeing moves that make a mirror; None: none do."""
        if len(self._packages) < 2:
            self._suspects = []
        elif (count := count_sockets()) is None:
            self._needed = UNKNOWN_SOCKETS
        elif len(self._packages) > count:
            self._needed = FEWER_SOCKETS

    @property
    def mirrors(self) -> dict[str, str]:
        """Key of each known mirror, and that of the package which it repeats."""
        return {s.counter.device.key: s.of.device.key for s in self._suspects or () if s.mirror}

    @property
    def undecided(self) -> bool:
        """Whether more looks may show a mirror."""
        return self._suspects is None or any(not s.said for s in self._suspects)

    def look(self, joules: Mapping[str, float | None]) -> list[Finding]:
        """Compare one round of readings, by key and made in order of the packages. The earlier of two is read once
        more, so that the later lies between two readings of one counter if it is the same counter."""
        if self._suspects is None:
            return self._first_look(joules)
        findings = []
        for suspect in list(self._suspects):
            now = joules.get(suspect.counter.device.key)
            same = agree(joules.get(suspect.of.device.key), now, suspect.of.read_j)
            if same is False:
                self._suspects.remove(suspect)
                findings += [_distinct(suspect.counter.device)] if suspect.said else []
                self._suspect(suspect.counter, joules, known=False)
            elif same and now is not None and now != suspect.last_j:
                suspect.last_j, suspect.moves = now, suspect.moves + 1
                findings += self._judge(suspect)
        return findings

    def _first_look(self, joules: Mapping[str, float | None]) -> list[Finding]:
        if any(joules.get(c.device.key) is None for c in self._packages):
            return []
        self._suspects = []
        findings = []
        for counter in self._packages:
            known = MIRROR_OF in counter.device.details
            if not self._suspect(counter, joules, known) and known:
                findings.append(_distinct(counter.device))
        return findings

    def _suspect(self, counter: Counter, joules: Mapping[str, float | None], known: bool) -> bool:
        """Suspect a package to repeat the first of the earlier ones with which it agrees now; False if it does not."""
        assert self._suspects is not None
        now, mirrors = joules.get(counter.device.key), [s.counter for s in self._suspects]
        for of in self._packages[: self._packages.index(counter)]:
            if of in mirrors or now is None:
                continue
            if agree(joules.get(of.device.key), now, of.read_j) is not False:
                self._suspects.append(_Suspect(counter, of, now, said=known, mirror=known))
                return True
        return False

    def _judge(self, suspect: _Suspect) -> list[Finding]:
        name, of = suspect.counter.device.name, suspect.of.device.name
        if suspect.said:
            return []
        if self._needed is not None and suspect.moves >= self._needed:
            suspect.said = suspect.mirror = True
            return [Finding(suspect.counter.device, "mirror", f"{name} repeats {of}: counted once")]
        if self._needed is None and suspect.moves >= SUSPICIOUS:
            suspect.said = True
            text = f"{name} shows what {of} shows at every reading; each has a socket of its own: both are counted"
            return [Finding(suspect.counter.device, "mirror_suspected", text)]
        return []


def agree(before: float | None, between: float | None, again: Callable[[], float | None]) -> bool | None:
    """Whether a value lies between two readings of one counter, give or take `SKEW_J`; None where that cannot be told:
    a reading failed, or the counter wrapped meanwhile."""
    if before is None or between is None:
        return None
    after = again()
    if after is None or after < before:
        return None
    return before - SKEW_J <= between <= after + SKEW_J


def _distinct(device: Device) -> Finding:
    return Finding(
        device, "distinct", f"{device.name} has a counter of its own after all: it is counted, from its start"
    )


def look_closely(
    packages: Sequence[Counter], count_sockets: Callable[[], int | None], sleep: Callable[[float], object] = time.sleep
) -> dict[str, str]:
    """Mirrors that a moment of fast looks shows: key of each, and that of the package which it repeats."""
    watch = MirrorWatch(packages, count_sockets)
    end = time.monotonic() + PATIENCE_S
    while watch.undecided and time.monotonic() < end:
        watch.look({c.device.key: c.read_j() for c in packages})
        sleep(0.002)
    return watch.mirrors
