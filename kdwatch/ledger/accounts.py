"""Who used how much of one device: accounts, and the moments at which the owner changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
    dark_s: float = 0.0
    """Part of `power_s` in which power was silent."""
    dark_j: float = 0.0
    """Part of a counter's `joules` from that time."""
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
class Accounts:
    """All of one device."""

    of: dict[str | None, Account] = field(default_factory=dict)
    """By owner: a stage's name, or None for nobody. Together they are the device's total."""
    shared_j: dict[str, float] = field(default_factory=dict)
    """By stage: what nobody owns because this stage and others claimed it together."""

    def owner(self, name: str | None) -> Account:
        """The account of an owner, opened if need be."""
        return self.of.setdefault(name, Account())

    def copy(self) -> Accounts:
        """One that can be changed without changing this."""
        return Accounts({k: replace(a, flags=list(a.flags)) for k, a in self.of.items()}, dict(self.shared_j))


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
