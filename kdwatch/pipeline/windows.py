"""Energy of each window of a measured program: what its stage and those inside it used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kdwatch.ledger.core import Totals

KEPT = 1000
"""Windows whose result is kept."""

Energies = dict[tuple[str, str], float]
"""Joules by (stage, device key)."""


def energies(totals: Totals | None) -> Energies:
    """Joules so far by stage and device."""
    stages = totals.stages if totals else ()
    return {(s.name, d.key): d.energy_j for s in stages for d in s.devices if d.energy_j is not None}


@dataclass
class Window:
    """One window: what was used before it, which stages it holds."""

    stage: str
    before: Energies
    inside: set[str] = field(default_factory=set)
    result: list[dict[str, Any]] | None = None


class Windows:
    """All windows of a run, by the client's numbers."""

    def __init__(self) -> None:
        self._all: dict[int, Window] = {}
        self._open: dict[int, Window] = {}
        self._ending: dict[int, Window] = {}

    def begin(self, number: int, stage: str, parent: str | None, totals: Totals | None) -> None:
        """A window opens."""
        self.settle(totals)
        for window in self._open.values():
            if parent is not None and parent in window.inside:
                window.inside.add(stage)
        window = Window(stage, energies(totals), {stage})
        self._all[number] = self._open[number] = window
        while len(self._all) > KEPT:
            self._all.pop(next(iter(self._all)))

    def end(self, number: int) -> None:
        """A window closes; its result waits for the readings around its end."""
        window = self._open.pop(number, None)
        if window:
            self._ending[number] = window

    def settle(self, totals: Totals | None) -> None:
        """Fix the results of the windows that have closed."""
        for number in list(self._ending):
            window = self._ending.pop(number)
            window.result = self._compute(window, totals)

    def result(self, number: Any, totals: Totals | None) -> list[dict[str, Any]] | None:
        """Energy by device of a window, closed or open; None if it is not known."""
        window = self._all.get(number)
        if window is None:
            return None
        return window.result if window.result is not None else self._compute(window, totals)

    @staticmethod
    def _compute(window: Window, totals: Totals | None) -> list[dict[str, Any]]:
        now = energies(totals)
        found = []
        for device in _devices(totals, window.inside):
            used = [
                joules - window.before.get((stage, key), 0.0)
                for (stage, key), joules in now.items()
                if stage in window.inside and key == device.key
            ]
            entry = {"id": device.id, "name": device.name, "kind": device.kind, "source": device.source}
            found.append({**entry, "key": device.key, "energy_j": max(0.0, sum(used))})
        return found


def _devices(totals: Totals | None, stages: set[str]) -> Iterable[Any]:
    """Devices with known energy in any of these stages, each once."""
    found: dict[str, Any] = {}
    for stage in totals.stages if totals else ():
        if stage.name in stages:
            for device in stage.devices:
                if device.energy_j is not None:
                    found.setdefault(device.key, device)
    return found.values()
