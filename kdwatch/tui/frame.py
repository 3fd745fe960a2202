"""What one picture shows: frozen data, made by a feed, drawn by views that know nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MARKS = {"estimated": "~", "imported": "^", "predicted": "?"}
"""Mark before a number that no sensor measured; a measured one has none."""


def mark(source: str | None) -> str:
    """The mark of a source, empty for `counter` and `integrated`."""
    return MARKS.get(source or "", "")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the manifest says and no event changes."""

    run_id: str
    name: str
    regime: str
    path: str
    started_wall: float | None
    """UTC epoch seconds of run time 0; None where the manifest does not say."""
    recorder_pid: int | None
    pue: float = 1.0
    region: str | None = None
    g_per_kwh: float | None = None


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage as a table shows it. Joules, watts, seconds."""

    number: int
    name: str
    kind: str
    status: str
    start_s: float | None
    duration_s: float | None
    mean_w: float | None
    energy_j: float | None
    share: float | None
    source: str | None
    """`estimated` if any part of the energy is; else how it was measured."""
    tokens: int | None = None
    tokens_per_s: float | None = None
    j_per_token: float | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    phase: str | None = None
    exit_code: int | None = None
    reused_run: str | None = None
    reused_j: float | None = None
    bound_j: float | None = None
    flags: tuple[str, ...] = ()

    @property
    def done(self) -> float | None:
        """Share of the steps done, or None where the stage does not say."""
        if not self.total_steps or self.step is None:
            return None
        return min(self.step / self.total_steps, 1.0)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device now and since the start."""

    key: str
    label: str
    name: str
    kind: str
    power_w: float | None
    limit_w: float | None
    energy_j: float | None
    source: str | None
    scope: str
    coverage: float | None = None
    utilization: float | None = None
    memory_b: float | None = None
    temperature_c: float | None = None
    state: str = "ok"
    """`ok`, `lost` or `silent`."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where the running stage, or with it the run, is heading."""

    remaining_s: float | None
    total_j: float | None
    low_j: float | None = None
    high_j: float | None = None
    whole: bool = True
    """The energies are the run's, because no stage is still to come; else the running stage's."""


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The clock of a replay."""

    speed: float
    paused: bool
    loop: bool
    end_t: float


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should be told once."""

    kind: str
    """`stage_ended`, `stage_failed`, `budget_80`, `budget_100`, `sensor_lost`, `warning` or `run_ended`."""
    text: str
    severity: str = "information"
    """`information`, `warning` or `error`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a run at one run time."""

    run: RunInfo
    t: float
    status: str
    live: bool
    """A recorder is alive behind this run."""
    stages: tuple[StageRow, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    power_w: float | None = None
    total_j: float | None = None
    total_source: str | None = None
    unattributed_j: float | None = None
    budget_j: float | None = None
    forecast: Forecast | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    quality: float | None = None
    silent_s: float | None = None
    """Seconds since the recorder last wrote, when that is longer than its rhythm explains."""
    replay: ReplayState | None = None
    notices: tuple[Notice, ...] = field(default=())
    log_title: str = ""
    """What the log pane shows: a stage's log, or the events of a replay."""
    log: Sequence[str] = ()
    """Its last lines, harmless."""
    cpu_share: float | None = None
    """This screen's own CPU time over wall time."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Kinds of device whose energy is not in the total, because nothing is known of it."""
        if self.total_j is None:
            return ()
        return tuple(dict.fromkeys(d.kind for d in self.devices if d.energy_j is None))

    @property
    def running(self) -> StageRow | None:
        """The stage that runs now; the last one if several do."""
        return next((s for s in reversed(self.stages) if s.status == "running"), None)

    @property
    def budget_share(self) -> float | None:
        """Energy used over budget; None without a budget or without a total."""
        if not self.budget_j or self.total_j is None:
            return None
        return self.total_j / self.budget_j
