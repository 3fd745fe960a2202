"""What every meter speaks: devices and readings. A meter knows nothing of stages or runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Device:
    """One thing whose power or energy can be read."""

    key: str
    """Short column key, unique in a run: `g0`, `cpu0`, `dram0`, `ram`."""
    id: str
    """Stable identity: a GPU's UUID, `rapl:package-0`, `estimate:cpu`."""
    name: str
    """What a person calls it: `NVIDIA H100 80GB HBM3`, `package-0`."""
    kind: str
    """`gpu`, `cpu`, `dram`, `ram_estimated` or `other` (a module-scope counter)."""
    scope: str
    """What the number covers: `gpu`, `module`, `package`, `dram`, `machine`, `process_tree`."""
    source: str
    """Best source that a probing call found: `counter`, `integrated` or `estimated`."""
    index: int | None = None
    """Position in the vendor's own order, for display only."""
    wrap_j: float | None = None
    """Range in joules of a counter that wraps to zero (RAPL); None where it does not."""
    limit_w: float | None = None
    """Enforced power limit in watts."""
    average_window_s: float = 0.0
    """Length in seconds of the trailing mean that `average_w` reports; 0 where it is instantaneous."""
    systematic: float = 0.05
    """Relative systematic error of the sensor (NVML: 5 %, docs/protocol.md says from where)."""
    details: dict[str, Any] = field(default_factory=dict)
    """What belongs in the manifest beside: model, TDP, where the TDP came from, driver, warnings."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One poll of one device. A field that could not be read is None, never 0."""

    key: str
    """`Device.key`."""
    t: float
    """CLOCK_MONOTONIC seconds, midway through the sensor call."""
    counter_j: float | None = None
    """Raw cumulative energy counter in joules, wraps and resets not yet taken out."""
    power_w: float | None = None
    """Instantaneous power in watts, or the model's power where the source is `estimated`."""
    average_w: float | None = None
    """Power in watts averaged by the sensor over `Device.average_window_s`."""


@dataclass(frozen=True, slots=True)
class SensorEvent:
    """Something that happened to a sensor: `lost`, `recovered`, `reset`, `discarded`, `contended`; of packages `mirror`
    (repeats another one's counter), `mirror_suspected`, `distinct` (does not after all)."""

    key: str
    t: float
    what: str
    text: str


class Meter(Protocol):
    """A source of readings. `poll` never raises for a sensor's failure: it leaves the field None
    and puts a SensorEvent into `events`."""

    name: str
    """Stream name in the run directory: `nvml`, `rapl`, `estimate`."""
    period_s: float
    """Time between polls that suits this sensor."""
    devices: Sequence[Device]
    """Another list once more is known of a device; keys and their order stay."""

    def poll(self) -> Sequence[Reading]:
        """Read every device once."""

    def edge(self) -> Sequence[Reading]:
        """Read around a stage's edge as finely as the sensor allows: a burst that times the counter's
        next tick where there is one, else one poll. Bounded by about 0.2 s."""

    def info(self) -> dict[str, dict[str, float | str | None]]:
        """Slow facts by device key: memory_b, utilization, clock_mhz, temperature_c, limit_w, throttle."""

    def drain_events(self) -> Sequence[SensorEvent]:
        """Events since the last call."""

    def close(self) -> None:
        """Release the sensor; idempotent."""
