"""AMD GPUs through amdsmi, where that library is installed and finds its driver."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from kdwatch.meters import visible
from kdwatch.meters.base import Device, Reading, SensorEvent
from kdwatch.meters.board_meter import BoardMeter
from kdwatch.meters.lanes import within

MICRO = 1e-6
KFD = Path("/dev/kfd")
"""Exists where the AMD compute driver is loaded."""
RETRY_S = 1.0
DEADLINE_S = 0.08
"""A call longer than this leaves the other GPUs to another thread."""
LIMIT_S = 5.0
"""A GPU that has not said by then what it gives is left out."""


def number(value: Any) -> float | None:
    """A reading above 0; amdsmi says `N/A`, 0 or a largest integer where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 0xFFFF_FFFF_FFFF_FFFF:
        return None
    return float(value)


class AmdSensor:
    """One GPU (or a card of two dies that share one reading). Used by one thread at a time; never raises."""

    def __init__(self, smi: Any, handle: Any, device: Device, clock: Callable[[], float]) -> None:
        self.smi = smi
        self.handle = handle
        self.device = device
        self.events: deque[SensorEvent] = deque()
        self.lost = False
        self._clock = clock
        self._retry_at = 0.0

    def read(self) -> Reading:
        """One reading; what could not be read is None."""
        began = self._clock()
        if self.lost and began < self._retry_at:
            return Reading(self.device.key, began)
        joules, watts = energy_j(self.smi, self.handle), power_w(self.smi, self.handle)
        t = (began + self._clock()) / 2
        gone = joules is None and watts is None
        if gone:
            self._retry_at = t + RETRY_S
        if gone != self.lost:
            self.lost = gone
            what, text = ("lost", "amdsmi gives no reading") if gone else ("recovered", "answers again")
            self.events.append(SensorEvent(self.device.key, t, what, text))
        return Reading(self.device.key, t, joules, watts)


def energy_j(smi: Any, handle: Any) -> float | None:
    """Energy counter in joules: the accumulator counts steps of `counter_resolution` microjoules, not joules."""
    try:
        found: Mapping[str, Any] = smi.amdsmi_get_energy_count(handle)
    except smi.AmdSmiException:
        return None
    steps = number(found.get("energy_accumulator", found.get("power")))
    resolution = number(found.get("counter_resolution"))
    return None if steps is None or resolution is None else steps * resolution * MICRO


def power_w(smi: Any, handle: Any) -> float | None:
    """Power of the socket in watts: present, else averaged."""
    try:
        found: Mapping[str, Any] = smi.amdsmi_get_power_info(handle)
    except smi.AmdSmiException:
        return None
    names = ("current_socket_power", "socket_power", "average_socket_power")
    return next((w for w in (number(found.get(n)) for n in names) if w is not None), None)


class AmdMeter(BoardMeter[AmdSensor, Reading]):
    """All selected AMD GPUs."""

    name = "amd"
    period_s = 0.1

    def __init__(self, sensors: Sequence[AmdSensor]) -> None:
        super().__init__(sensors, DEADLINE_S)

    def poll(self) -> Sequence[Reading]:
        """Read every GPU once; one that hangs costs no other a reading."""
        return self._crew.run(AmdSensor.read)

    def edge(self) -> Sequence[Reading]:
        """One poll: the counters are renewed about every millisecond."""
        return self.poll()

    def info(self) -> dict[str, dict[str, float | str | None]]:
        """Nothing slower is read yet."""
        return {}

    def _shut_down(self) -> None:
        if self._sensors:
            smi = self._sensors[0].smi
            with contextlib.suppress(smi.AmdSmiException):
                smi.amdsmi_shut_down()


@dataclass(frozen=True)
class Found:
    """What amdsmi offers here."""

    sensors: list[AmdSensor]
    notes: list[str]
    problem: str | None = None


def load() -> Any:
    """The amdsmi module. Raises ImportError with the reason; what the module prints goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return import_module("amdsmi")
        except ImportError:
            raise
        except Exception as problem:  # it raises what it likes where its library is missing
            raise ImportError(str(problem)) from None


@dataclass(frozen=True, slots=True)
class Said:
    """What one GPU said of itself."""

    uuid: str
    name: str
    serial: Any
    """Of its card; two dies of one card have the same."""
    joules: float | None
    watts: float | None
    limit_w: float | None


def find(
    environment: Mapping[str, str], smi: Any, clock: Callable[[], float] = time.monotonic, limit_s: float = LIMIT_S
) -> Found:
    """Open the GPUs that HIP_VISIBLE_DEVICES, else ROCR_VISIBLE_DEVICES, selects (unset: all). A library that hangs
    costs `limit_s`, and so do GPUs that do, all together."""
    handles = within([("handles", lambda: _handles(smi))], limit_s).get("handles", f"no answer within {limit_s:g} s")
    if isinstance(handles, str):
        return Found([], [], f"amdsmi: {handles}")
    said: dict[int, Said] = within([(i, partial(_ask, smi, h, i)) for i, h in enumerate(handles)], limit_s)
    boards = [visible.Board(i, said[i].uuid if i in said else f"unknown-{i}", f"{i:04d}") for i in range(len(handles))]
    value = environment.get("HIP_VISIBLE_DEVICES", environment.get("ROCR_VISIBLE_DEVICES"))
    chosen = sorted(b.index for b in visible.select(value, boards, "PCI_BUS_ID").boards)
    sensors, notes = [], []
    for i in chosen:
        described = describe(said, i) if i in said else f"GPU {i} gives no answer within {limit_s:g} s: left out"
        if isinstance(described, Device):
            sensors.append(AmdSensor(smi, handles[i], described, clock))
        else:
            notes.append(described)
    return Found(sensors, notes, None if sensors else "; ".join(notes) or "amdsmi finds no GPU")


def _handles(smi: Any) -> list[Any] | str:
    """Handles of all GPUs, or why there are none."""
    try:
        smi.amdsmi_init()
        return list(smi.amdsmi_get_processor_handles())
    except smi.AmdSmiException as problem:
        return str(problem)


def _ask(smi: Any, handle: Any, i: int) -> Said:
    asic = _asic(smi, handle)
    return Said(
        uuid=_uuid(smi, handle, i),
        name=str(asic.get("market_name") or "AMD GPU"),
        serial=asic.get("asic_serial"),
        joules=energy_j(smi, handle),
        watts=power_w(smi, handle),
        limit_w=_limit_w(smi, handle),
    )


def describe(said: Mapping[int, Said], i: int) -> Device | str:
    """A GPU as a device, or a line that says why it is none: a second die whose card reports on the first, or a GPU
    that gives nothing."""
    own = said[i]
    same = [k for k, other in said.items() if k != i and own.serial and other.serial == own.serial]
    dead = [k for k in same if said[k].watts is None]
    if own.watts is None and len(dead) < len(same):
        return f"GPU {i} ({own.name}) is a second die: its card's power is read on the first"
    if own.joules is None and own.watts is None:
        return f"GPU {i} ({own.name}) gives neither energy nor power"
    return Device(
        key=f"a{i}",
        id=own.uuid,
        name=own.name,
        kind="gpu",
        scope="card" if dead else "gpu",
        source="counter" if own.joules is not None else "integrated",
        index=i,
        limit_w=own.limit_w,
        details={"interface": "amdsmi"},
    )


def _asic(smi: Any, handle: Any) -> Mapping[str, Any]:
    try:
        return smi.amdsmi_get_gpu_asic_info(handle)
    except smi.AmdSmiException:
        return {}


def _uuid(smi: Any, handle: Any, i: int) -> str:
    try:
        return str(smi.amdsmi_get_gpu_device_uuid(handle))
    except smi.AmdSmiException:
        return f"amd-{i}"


def _limit_w(smi: Any, handle: Any) -> float | None:
    """Power cap in watts; amdsmi gives microwatts."""
    try:
        cap = number(smi.amdsmi_get_power_cap_info(handle).get("power_cap"))
    except smi.AmdSmiException:
        return None
    return cap * MICRO if cap is not None else None
