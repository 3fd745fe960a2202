"""The ledger: events and samples of a run in, energy by stage and device out.

Pure: no files, no clocks. It takes readings one at a time, and its answer does not depend on how they were
cut into batches, saved and restored, or looked at in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kdwatch.ledger.accounts import Boundary
from kdwatch.ledger.device import DeviceTrack
from kdwatch.ledger.stages import StageBook
from kdwatch.ledger.stretch import LEAST, LONGEST, take_stretch
from kdwatch.ledger.totals import build_totals
from kdwatch.ledger.types import Totals
from kdwatch.ledger.warnings import Warnings
from kdwatch.rundir.shape import mapping, shaped

STATE = 3
"""Number of the state's format and of the rules that made it; a state of another number is not continued."""


class Ledger:
    """Accounts of one run. `manifest` needs `devices`, `stages` and `clock` (docs/run-directory.md)."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self.manifest = manifest = shaped(manifest)
        imported = bool(manifest.get("imported"))
        self.devices: dict[str, DeviceTrack] = {d["key"]: DeviceTrack(d, imported) for d in manifest["devices"]}
        self.book = StageBook(manifest["stages"])
        self.warnings = Warnings(mapping(manifest.get("clock")))
        self.status = "imported" if imported else "running"
        self.exit_code: int | None = None
        self.quality: dict[str, Any] | None = None
        self.teacher_reuse: dict[str, Any] | None = None
        self.idle_w: dict[str, float] = {}
        self.budget_j: float | None = number(manifest.get("budget_j"))
        self.cpus = cpu_count(manifest)
        mirrored = {d["key"]: text_or_none(d["details"].get("mirror_of")) for d in manifest["devices"]}
        self.mirrors = {key for key, of in mirrored.items() if of in self.devices}
        """Packages that show another one's counter: beside the sums for as long as their meter says so."""
        self.last_t = 0.0
        self.ended_t: float | None = None
        for entry in manifest.get("warnings", []):
            self.warnings.add(str(entry.get("code")), str(entry.get("text")))

    # -- input

    def sample(
        self, t: float, key: str, counter_j: float | None, power_w: float | None, average_w: float | None
    ) -> None:
        """Take one reading of one device at run time `t`. A device that the manifest does not name is ignored."""
        device = self.devices.get(key)
        if device is not None:
            if t > self.last_t:
                self.last_t = t
            device.sample(t, counter_j, power_w, average_w)

    def samples(
        self,
        key: str,
        times: Sequence[float],
        counters_j: Sequence[float | None],
        powers_w: Sequence[float | None],
    ) -> None:
        """Take readings of one device in order of time, as `sample` would one after the other."""
        device = self.devices.get(key)
        if device is not None and times:
            self.last_t = max(self.last_t, times[-1])
            at = 0
            while at < len(times):
                part = slice(at, at + LONGEST)
                at += take_stretch(device, times[part], counters_j[part], powers_w[part])
                part = slice(at, at + LEAST)
                for t, counter_j, power_w in zip(times[part], counters_j[part], powers_w[part], strict=True):
                    device.sample(t, counter_j, power_w, None)
                at += LEAST

    def event(self, event: Mapping[str, Any]) -> None:
        """Take one event. Unknown types and damaged fields are ignored."""
        t = number(event.get("t"))
        if t is None:
            return
        self.last_t = max(self.last_t, t)
        if self.book.event(event, t):
            self._owners_changed(t)
            return
        act = _ACTIONS.get(str(event.get("type")))
        if act is not None:
            act(self, event, t)

    def _owners_changed(self, t: float) -> None:
        for device in self.devices.values():
            owner, shared = self.book.owner(device.spec)
            device.own(Boundary(t, owner, shared))
            if shared:
                names = ", ".join(shared)
                text = f"{names} ran at the same time on {device.key}: that energy is in unattributed"
                self.warnings.add("overlap", text, device=device.key)

    def _run_ended(self, event: Mapping[str, Any], t: float) -> None:
        status = str(event.get("status") or "completed")
        self.ended_t = t
        if self.status != "imported":
            self.status = status
        code = event.get("exit_code")
        self.exit_code = code if isinstance(code, int) and not isinstance(code, bool) else None
        if self.book.interrupt(t, status):
            self._owners_changed(t)

    def interrupt(self) -> None:
        """The recorder is gone without an end: the run ends with its last reading or event."""
        if self.ended_t is None:
            self._run_ended({"status": "interrupted"}, self.last_t)

    def _quality(self, event: Mapping[str, Any], t: float) -> None:
        known = dict(self.quality["benchmarks"]) if self.quality else {}
        for name, scores in mapping(event.get("benchmarks")).items():
            if isinstance(scores, Mapping):
                known[str(name)] = {who: number(scores.get(who)) for who in ("student", "teacher")}
        q = number(event.get("q"))
        self.quality = {"q": q if q is not None or not self.quality else self.quality["q"], "benchmarks": known}

    def _reuse(self, event: Mapping[str, Any], t: float) -> None:
        count = event.get("reuse_count")
        self.teacher_reuse = {
            "artifact": str(event.get("artifact")),
            "reuse_count": count if isinstance(count, int) and not isinstance(count, bool) else None,
            "teacher_j": number(event.get("teacher_j")),
            "estimated": event["estimated"] if isinstance(event.get("estimated"), bool) else None,
        }

    def _baseline(self, event: Mapping[str, Any], t: float) -> None:
        for key, watts in mapping(event.get("idle_w")).items():
            if (idle := number(watts)) is not None and idle >= 0.0:
                self.idle_w[str(key)] = idle

    def _sensor(self, event: Mapping[str, Any], t: float) -> None:
        key, what, text = (str(event.get(k) or "") for k in ("device", "what", "text"))
        if key in self.devices and what == "mirror":
            self.mirrors.add(key)
        elif key in self.devices and what == "distinct":
            self.mirrors.discard(key)
        elif key in self.devices and what and what != "recovered":
            self.devices[key].note(what, t)
        code = {"lost": "sensor_lost", "reset": "counter_reset"}.get(what, what)
        if code and what != "recovered":
            self.warnings.add(code, text or f"{key}: {what}", device=key or None)

    def _warning(self, event: Mapping[str, Any], t: float) -> None:
        self.warnings.add(
            str(event.get("code") or "other"),
            str(event.get("text") or ""),
            stage=text_or_none(event.get("stage")),
            device=text_or_none(event.get("device")),
        )

    def _clock(self, event: Mapping[str, Any], t: float) -> None:
        self.warnings.clock(event, t)

    def _control(self, event: Mapping[str, Any], t: float) -> None:
        value = number(event.get("value"))
        if event.get("action") == "extend_budget" and value is not None and value > (self.budget_j or 0.0):
            self.budget_j = value

    # -- output

    def totals(self, now: float | None = None) -> Totals:
        """Everything as of run time `now` (default: the newest event or reading). Changes nothing."""
        end = self.last_t if now is None else max(now, self.last_t)
        if self.ended_t is not None:
            end = max(self.ended_t, self.last_t)
        return build_totals(self, end)

    def state(self) -> dict[str, Any]:
        """Everything, as JSON; `from_state` continues from it with equal results."""
        return {
            "format": STATE,
            "devices": {key: track.state() for key, track in self.devices.items()},
            "book": self.book.state(),
            "warnings": self.warnings.state(),
            "mirrors": sorted(self.mirrors),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @classmethod
    def from_state(cls, manifest: Mapping[str, Any], state: Mapping[str, Any]) -> Ledger:
        """A ledger that continues from a state. Raises ValueError for a state of another format or manifest."""
        ledger = cls(manifest)
        try:
            if state["format"] != STATE or set(state["devices"]) != set(ledger.devices):
                raise ValueError("a state of another format or of other devices")
            for key, track in ledger.devices.items():
                track.restore(state["devices"][key])
            ledger.book.restore(state["book"])
            ledger.warnings.restore(state["warnings"])
            ledger.mirrors = set(state["mirrors"])
            for name in _PLAIN:
                setattr(ledger, name, state[name])
        except (KeyError, TypeError, AttributeError, IndexError) as problem:
            raise ValueError(f"damaged ledger state: {problem}") from None
        return ledger


_PLAIN = ("status", "exit_code", "quality", "teacher_reuse", "idle_w", "budget_j", "last_t", "ended_t")

_ACTIONS = {
    "run_ended": Ledger._run_ended,
    "quality": Ledger._quality,
    "teacher_reuse": Ledger._reuse,
    "baseline": Ledger._baseline,
    "sensor": Ledger._sensor,
    "warning": Ledger._warning,
    "clock": Ledger._clock,
    "run_started": Ledger._clock,
    "control": Ledger._control,
}


def cpu_count(manifest: Mapping[str, Any]) -> float | None:
    """Logical CPUs of the machine as recorded."""
    counts = [number(d["details"].get("cpus")) for d in manifest["devices"]]
    known = next((c for c in counts if c), None)
    return known or number(mapping(manifest.get("hardware")).get("cores"))


def text_or_none(value: Any) -> str | None:
    """The value if it is text."""
    return value if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
