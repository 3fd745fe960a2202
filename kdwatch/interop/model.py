"""What every importer returns: devices with samples or totals, stages, rows, and what was noticed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdwatch.interop.series import PowerSeries, SeriesStats
from kdwatch.interop.spool import Spool
from kdwatch.rundir.errors import UsageProblem


class LogProblem(UsageProblem):
    """A log that gives no energy. `facts` says what it does contain: rows, columns, format, encoding."""

    def __init__(self, text: str, *, no_log: bool = False, **facts: Any) -> None:
        super().__init__(text)
        self.no_log = no_log
        """Whether the file is of no known format at all: in a directory of logs it is passed over."""
        self.facts = facts


@dataclass(frozen=True, slots=True)
class Note:
    """Something a reader of the numbers has to know; `code` is stable, `text` is one line."""

    code: str
    text: str


@dataclass(slots=True)
class LoggedDevice:
    """One thing whose power or energy the file holds."""

    key: str
    """Name in the file: a UUID, an index, `n1`, `package`."""
    kind: str = "other"
    """`gpu`, `cpu`, `dram`, `ram_estimated` or `other`, as in a run's manifest."""
    scope: str = "gpu"
    """What the number covers: `gpu`, `package`, `dram`, `machine`, `node`, `component`."""
    name: str | None = None
    host: str | None = None
    """The machine that the file names for it."""
    series: PowerSeries | None = None
    """Power over time, where the file has it."""
    drawn: PowerSeries | None = None
    """Watts for plots of a device whose energy comes from elsewhere."""
    counter: Spool | None = None
    """Pairs of seconds and joules since the start, in formats that hold a counter."""
    energy_j: float | None = None
    """Energy in joules as the file gives it, where it has no series (or a better one than the series)."""
    duration_s: float | None = None
    """Time in seconds that `energy_j` covers."""
    mean_w: float | None = None
    peak_w: float | None = None
    estimated: bool = False
    """The tool that wrote the file modelled this number."""
    stats: SeriesStats | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class LoggedStage:
    """One stretch of work: a CodeCarbon run, a Zeus window, a harness stage, a job, an epoch."""

    name: str
    kind: str = "other"
    start: float | None = None
    """Seconds on the file's own time line (`ImportedLog.time_kind` says which), or None."""
    duration_s: float | None = None
    energy_j: dict[str, float | None] = field(default_factory=dict)
    """Joules by device key."""
    tokens: int | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    points: list[dict[str, float | int]] = field(default_factory=list)
    """Progress inside the stage: `{"t_s", "step", "tokens", "loss", ...}`, `t_s` from the stage's start."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def total_j(self) -> float | None:
        """Sum of the known parts in joules; None if none is known."""
        known = [value for value in self.energy_j.values() if value is not None]
        return sum(known) if known else None


@dataclass(slots=True)
class ImportedLog:
    """All that one file, or one directory of a harness, gives."""

    path: Path
    format: str
    encoding: str = "utf-8"
    time_kind: str | None = None
    """`epoch` (UTC seconds), `local` (no zone in the file, none given), `elapsed` (from a start that is not
    on a calendar), or None: the file has no time."""
    devices: list[LoggedDevice] = field(default_factory=list)
    stages: list[LoggedStage] = field(default_factory=list)
    rows: int = 0
    """Data rows of the file, good or bad."""
    n_gpus: int | None = None
    duration_s: float | None = None
    total_j: float | None = None
    """Energy of the whole file in joules; None where it cannot be known."""
    kwh: float | None = None
    """Kilowatt-hours as the file itself gives them."""
    kg_co2e: float | None = None
    """Kilograms of CO2e as the file itself gives them."""
    untimed_samples: int = 0
    """Power samples without times, in formats that hold such."""
    details: dict[str, Any] = field(default_factory=dict)
    """What only this format has; names are in docs/import-export.md."""
    notes: list[Note] = field(default_factory=list)

    def note(self, code: str, text: str) -> None:
        """Add a note once."""
        found = Note(code, text)
        if found not in self.notes:
            self.notes.append(found)

    @property
    def n_samples(self) -> int:
        return self.untimed_samples + sum(d.stats.n_samples for d in self.devices if d.stats)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the caller knows and the file may not say."""

    format: str | None = None
    interval_s: float | None = None
    """Seconds between samples, for files without times."""
    zone: str | None = None
    """IANA zone of local times, for files without a zone."""
