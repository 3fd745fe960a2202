"""Who used how much of one device: accounts, and the moments at which the owner changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdwatch.ledger.edge import Level


@dataclass(slots=True)
class Account:
    """What one owner (a stage, or nobody) used of one device."""

    joules: float = 0.0
    bridged_j: float = 0.0
    time_s: float = 0.0
    uncovered_s: float = 0.0
    variance: float = 0.0
    power_j: float = 0.0
    average_j: float = 0.0
    power_s: float = 0.0
    peak_w: float | None = None
    flags: list[str] = field(default_factory=list)

    def see_peak(self, watts: float | None) -> None:
        """Keep the largest power."""
        if watts is not None:
            self.peak_w = watts if self.peak_w is None else max(self.peak_w, watts)

    def flag(self, code: str) -> None:
        """Note a fault once."""
        if code not in self.flags:
            self.flags.append(code)


@dataclass(slots=True)
class Boundary:
    """From `t` on the device belongs to `owner` (None: nobody); `shared` names those who claim it together."""

    t: float
    owner: str | None
    shared: tuple[str, ...] = ()
    start: bool = False
    """The first reading: opens an account if no stage did."""


@dataclass(slots=True)
class Open:
    """The interval that is going on."""

    level: Level
    owner: str | None
    shared: tuple[str, ...]
