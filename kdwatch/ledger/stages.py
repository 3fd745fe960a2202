"""The run's story: events in, stages and boundaries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OVER = {"completed", "failed", "stopped", "skipped", "interrupted", "reused"}


@dataclass(slots=True)
class Stage:
    """One stage as far as events tell."""

    name: str
    kind: str = "other"
    gpus: list[Any] | None = None
    """Declared GPUs, by index or UUID; None: not declared, all of them."""
    devices: list[str] | None = None
    """Keys of all that this stage has readings of (imported logs); None: not declared."""
    parent: str | None = None
    """Stage that this one is nested in: its energy goes to the inner one meanwhile."""
    status: str = "pending"
    exit_code: int | None = None
    windows: list[list[float | None]] = field(default_factory=list)
    """[start, end] of each time it ran; end None while it runs."""
    phases_s: dict[str, float] = field(default_factory=dict)
    phase: str | None = None
    phase_t: float = 0.0
    reused_from: dict[str, Any] | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    cpu_s: float | None = None
    """CPU seconds as the recorder took them at the end, all windows together."""

    @property
    def running(self) -> bool:
        """Whether a window is open."""
        return bool(self.windows) and self.windows[-1][1] is None

    def enter_phase(self, name: str | None, t: float) -> None:
        """End the phase that is going on and begin another."""
        if self.phase is not None:
            self.phases_s[self.phase] = self.phases_s.get(self.phase, 0.0) + max(0.0, t - self.phase_t)
        self.phase, self.phase_t = name, t

    def phases_at(self, now: float) -> dict[str, float]:
        """Seconds by phase, the running one included."""
        found = dict(self.phases_s)
        if self.phase is not None:
            found[self.phase] = found.get(self.phase, 0.0) + max(0.0, now - self.phase_t)
        return found

    def duration_at(self, now: float) -> float | None:
        """Seconds inside the windows; None before it began."""
        if not self.windows:
            return None
        return sum(max(0.0, (now if end is None else end) - (start or 0.0)) for start, end in self.windows)

    def claims(self, device: Mapping[str, Any]) -> bool:
        """Whether this stage uses a device: as declared; without that GPUs as declared, everything else always."""
        if self.devices is not None:
            return device.get("key") in self.devices
        if device.get("kind") != "gpu" or self.gpus is None:
            return True
        return any(_names(entry, device) for entry in self.gpus)


def _origin(source: Mapping[str, Any]) -> dict[str, Any]:
    """`reused_from` in its shape: texts, a known energy or null, whether a model told a part of it or null."""
    energy = source.get("energy_j")
    known = isinstance(energy, int | float) and not isinstance(energy, bool) and abs(energy) < 1e300
    texts = {k: source[k] if isinstance(source.get(k), str) else None for k in ("run", "artifact")}
    estimated = source["estimated"] if isinstance(source.get("estimated"), bool) else None
    return {**source, **texts, "energy_j": energy if known else None, "estimated": estimated}


def _names(entry: Any, device: Mapping[str, Any]) -> bool:
    if isinstance(entry, int) and not isinstance(entry, bool):
        return device.get("index") == entry
    text = str(entry)
    if text.isdigit():
        return device.get("index") == int(text)
    return bool(text) and str(device.get("id", "")).startswith(text)


class StageBook:
    """Stages in order, who owns a device at any moment, and what belongs to the run as a whole."""

    def __init__(self, stages: Iterable[Any]) -> None:
        self.stages: dict[str, Stage] = {}
        self.active: list[str] = []
        for spec in stages:
            if isinstance(spec, Mapping) and spec.get("name"):
                self._stage(str(spec["name"]), spec)

    def _stage(self, name: str, spec: Mapping[str, Any]) -> Stage:
        stage = self.stages.get(name)
        if stage is None:
            stage = self.stages[name] = Stage(name)
        if spec.get("kind"):
            stage.kind = str(spec["kind"])
        gpus = spec.get("gpus")
        if gpus is not None:
            stage.gpus = list(gpus) if isinstance(gpus, list | tuple) else [gpus]
        if isinstance(spec.get("devices"), list):
            stage.devices = [str(key) for key in spec["devices"]]
        if spec.get("parent"):
            stage.parent = str(spec["parent"])
        return stage

    def event(self, event: Mapping[str, Any], t: float) -> bool:
        """Take one event of a stage; True where owners may have changed."""
        name = event.get("stage")
        if not isinstance(name, str) or not name:
            return False
        act = _ACTIONS.get(str(event.get("type")))
        return act(self, name, event, t) if act else False

    def _started(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        stage = self._stage(name, event)
        if stage.running:
            return False
        stage.windows.append([t, None])
        stage.status, stage.exit_code = "running", None
        stage.phase = None
        self.active.append(name)
        return True

    def _ended(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        stage = self._stage(name, {})
        code = event.get("exit_code")
        stage.exit_code = code if isinstance(code, int) and not isinstance(code, bool) else None
        cpu_s = event.get("cpu_s")
        if isinstance(cpu_s, int | float) and not isinstance(cpu_s, bool) and 0 <= cpu_s < 1e12:
            stage.cpu_s = (stage.cpu_s or 0.0) + cpu_s
        status = event.get("status")
        fallback = "completed" if stage.exit_code == 0 else "failed"
        stage.status = status if isinstance(status, str) and status in OVER else fallback
        return self._close(stage, t)

    def _close(self, stage: Stage, t: float) -> bool:
        if not stage.running:
            return False
        stage.enter_phase(None, t)
        stage.windows[-1][1] = max(t, stage.windows[-1][0] or 0.0)
        self.active.remove(stage.name)
        return True

    def _skipped(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        stage = self._stage(name, event)
        stage.status = "skipped"
        return self._close(stage, t)

    def _reused(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        stage = self._stage(name, event)
        source = event.get("reused_from")
        stage.status = "reused"
        stage.reused_from = _origin(source) if isinstance(source, Mapping) else {}
        return self._close(stage, t)

    def _phase(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        stage = self._stage(name, {})
        phase = event.get("part") or event.get("name")
        if stage.running and isinstance(phase, str) and phase:
            stage.enter_phase(phase[:60], t)
        return False

    def _progress(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        stage = self._stage(name, {})
        if event.get("part"):  # counts of a part are none of the stage's own
            return False
        for key in ("tokens", "input_tokens", "step", "total_steps"):
            value = event.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63:
                stage.progress[key] = int(value)
        loss = event.get("loss")
        if isinstance(loss, int | float) and not isinstance(loss, bool) and abs(loss) < 1e300:
            stage.progress["loss"] = float(loss)
        return False

    def _artifact(self, name: str, event: Mapping[str, Any], t: float) -> bool:
        energy = event.get("energy_j")
        known = isinstance(energy, int | float) and not isinstance(energy, bool)
        made = {k: str(event.get(k)) for k in ("artifact", "kind")} | {"energy_j": energy if known else None}
        self._stage(name, {}).artifacts.append(made)
        return False

    def interrupt(self, t: float, status: str) -> bool:
        """The run is over: what still runs ended with it."""
        changed = False
        for name in list(self.active):
            stage = self.stages[name]
            stage.status = status if status in OVER else "interrupted"
            changed = self._close(stage, t) or changed
        return changed

    def owner(self, device: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
        """The one stage that a device works for now, else None and those who claim it together."""
        claimants = [n for n in self.active if self.stages[n].claims(device)]
        outer = {p for n in claimants for p in self._ancestors(n)}
        inner = [n for n in claimants if n not in outer]
        if len(inner) == 1:
            return inner[0], ()
        return None, tuple(inner)

    def _ancestors(self, name: str) -> set[str]:
        found: set[str] = set()
        parent = self.stages[name].parent
        while parent is not None and parent not in found:
            found.add(parent)
            parent = self.stages[parent].parent if parent in self.stages else None
        return found

    def state(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {"stages": [asdict(s) for s in self.stages.values()], "active": self.active}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.stages = {s["name"]: Stage(**s) for s in state["stages"]}
        self.active = list(state["active"])


_ACTIONS = {
    "stage_started": StageBook._started,
    "stage_ended": StageBook._ended,
    "stage_skipped": StageBook._skipped,
    "stage_reused": StageBook._reused,
    "phase": StageBook._phase,
    "progress": StageBook._progress,
    "artifact": StageBook._artifact,
}
