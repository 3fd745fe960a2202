"""Packages that repeat another one's counter: first-generation EPYC shows the socket's value in a zone for each die."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kdwatch.meters.base import Device

LOOKS = 2
"""Moments at which the values must agree, the counter having moved between."""
PATIENCE_S = 0.05
"""How long to wait for a counter to move; a real one moves every millisecond."""


def mirrors(
    reads: Sequence[Callable[[], float | None]], sleep: Callable[[float], object] = time.sleep
) -> dict[int, int]:
    """Number of each counter that repeats an earlier one, and that one's number."""
    found: dict[int, int] = {}
    for b in range(1, len(reads)):
        for a in range(b):
            if a not in found and _repeats(reads[a], reads[b], sleep):
                found[b] = a
                break
    return found


def _repeats(a: Callable[[], float | None], b: Callable[[], float | None], sleep: Callable[[float], object]) -> bool:
    """Whether `b` lies between two reads of `a`, at `LOOKS` different values of `a`."""
    agreed: set[float] = set()
    end = time.monotonic() + PATIENCE_S
    while len(agreed) < LOOKS:
        before, between, after = a(), b(), a()
        if before is None or between is None or after is None or not before <= between <= after:
            return False
        agreed.add(after)
        if time.monotonic() > end:
            return False
        sleep(0.002)
    return True


class MirrorWatch:
    """Finds mirrors whose counters stood still when the sensors were opened. A mirror is known in the very poll in
    which its counter first moves, so that nothing is counted twice."""

    def __init__(self, packages: Sequence[Device]) -> None:
        self._packages = list(packages)
        self._first: dict[str, float] = {}
        self._open = len(self._packages) > 1
        self.found: set[str] = set()
        """Keys of mirrors."""

    def check(self, joules: Mapping[str, float | None]) -> list[tuple[Device, Device]]:
        """(mirror, original) pairs that this poll shows."""
        now = {d.key: joules.get(d.key) for d in self._packages}
        if not self._open or any(v is None for v in now.values()):
            return []
        known = {k: v for k, v in now.items() if v is not None}
        if not self._first:
            self._first = known
            self._open = len(set(known.values())) < len(known)
            return []
        pairs = [(b, a) for i, b in enumerate(self._packages) for a in self._packages[:i] if self._same(a, b, known)]
        originals = {b.key: a for b, a in reversed(pairs)}
        if any(known[k] != v for k, v in self._first.items()):
            self._open = False
            self.found = set(originals)
            return [(b, originals[b.key]) for b in self._packages if b.key in originals]
        return []

    def _same(self, a: Device, b: Device, now: Mapping[str, float]) -> bool:
        return self._first[a.key] == self._first[b.key] and now[a.key] == now[b.key] != self._first[a.key]
