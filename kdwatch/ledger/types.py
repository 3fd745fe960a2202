"""What the ledger answers: frozen snapshots. Joules, watts, seconds; None is unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Bound:
    """Error bound in joules, its causes apart. The edge and gap terms together hold in at least 95 % of windows."""

    edge_j: float
    """From not knowing the counter's state at the window's edges, or from sampling power at intervals."""
    gap_j: float
    """Largest energy that time without any reading may hide."""
    systematic_j: float
    """The sensor's own gain error (docs/protocol.md)."""

    @property
    def total_j(self) -> float:
        """All causes, added."""
        return self.edge_j + self.gap_j + self.systematic_j


@dataclass(frozen=True, slots=True)
class StageDevice:
    """One device's part in one stage."""

    key: str
    id: str
    name: str
    kind: str
    energy_j: float | None
    mean_w: float | None
    """Energy over the covered time."""
    peak_w: float | None
    source: str
    """`counter`, `integrated`, `estimated` or `imported`."""
    coverage: float | None
    """Share of the stage's time that some reading covers."""
    scope: str
    flags: tuple[str, ...]
    bound_j: float | None
    bound: Bound | None = None
    net_energy_j: float | None = None
    """Idle baseline taken off, never below 0; None without a baseline of this device."""
    counted: bool = True
    """Whether it enters sums; otherwise it stands beside them (docs/protocol.md, "What enters totals")."""


@dataclass(frozen=True, slots=True)
class StageTotals:
    """One stage, pending ones included."""

    name: str
    kind: str
    status: str
    exit_code: int | None
    start_s: float | None
    end_s: float | None
    duration_s: float | None
    """Time inside the stage's windows: a repeated stage counts each."""
    phases_s: dict[str, float]
    reused_from: dict[str, Any] | None
    tokens: int | None
    input_tokens: int | None
    step: int | None
    total_steps: int | None
    loss: float | None
    devices: tuple[StageDevice, ...]
    energy_j: dict[str, Any]
    """`gpu`, `cpu`, `dram`, `ram_estimated`, `other`, `total`, `measured`, `estimated`, `missing`."""
    net_energy_j: float | None
    bound_j: float | None
    tokens_per_s: float | None = None
    j_per_token: float | None = None
    mean_w: float | None = None
    """Sum of its devices' `mean_w`: each over the time that the device worked for this stage alone, so that neither
    nested or overlapping stages nor gaps lower it."""
    share: float | None = None
    """Of the run's total energy."""
    phase: str | None = None
    """Phase that a running stage is in."""
    shared_j: float = 0.0
    """Energy of this stage's devices while another stage claimed them too: flagged, in `unattributed`."""
    artifacts: tuple[dict[str, Any], ...] = ()
    cpu_s: float | None = None
    """CPU seconds of the stage's processes, exited ones included."""
    cpu_process_j: float | None = None
    """Estimated share of `energy_j["cpu"]` by that CPU time, beside the whole."""


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """One device over the whole run."""

    key: str
    id: str
    name: str
    kind: str
    total_j: float | None
    unattributed_j: float | None
    source: str
    coverage: float | None
    scope: str
    power_w: float | None = None
    """Newest power reading; None where the newest is older than a few seconds."""
    flags: tuple[str, ...] = ()
    counted: bool = True
    """Whether it enters sums."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole run at one moment."""

    t: float
    status: str
    stages: tuple[StageTotals, ...]
    devices: tuple[DeviceTotals, ...]
    unattributed_j: float | None
    total_j: float | None
    warnings: tuple[dict[str, Any], ...]
    quality: dict[str, Any] | None
    teacher_reuse: dict[str, Any] | None
    budget_j: float | None = None
    power_w: float | None = None
    """Newest power of all counted devices together."""
    idle_w: dict[str, float] = field(default_factory=dict)
    exit_code: int | None = None
