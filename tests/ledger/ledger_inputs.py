"""Short ways to make manifests and to feed a ledger in tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.types import StageDevice, StageTotals, Totals


def gpu(key: str = "g0", **more: Any) -> dict[str, Any]:
    """A board with an energy counter, 700 W limit."""
    index = int(key[1:])
    return {
        "key": key, "id": f"GPU-{index}", "name": f"board {index}", "kind": "gpu", "scope": "gpu", "source": "counter",
        "index": index, "limit_w": 700.0, "average_window_s": 1.0, "systematic": 0.05, **more,
    }  # fmt: skip


def package(key: str = "cpu0", **more: Any) -> dict[str, Any]:
    """A RAPL package zone of the usual Intel range."""
    return {
        "key": key, "id": f"rapl:{key}", "name": key, "kind": "cpu", "scope": "package", "source": "counter",
        "wrap_j": 262143.328850, "systematic": 0.05, **more,
    }  # fmt: skip


def model(key: str = "cpu0", kind: str = "cpu", **more: Any) -> dict[str, Any]:
    """An estimate."""
    return {
        "key": key, "id": f"estimate:{key}", "name": key, "kind": kind, "scope": "machine", "source": "estimated",
        "systematic": 0.5, **more,
    }  # fmt: skip


def manifest(devices: Sequence[Mapping[str, Any]], stages: Iterable[Any] = (), **more: Any) -> dict[str, Any]:
    """A manifest with these devices and stages (names or objects)."""
    listed = [{"name": s, "kind": "other"} if isinstance(s, str) else dict(s) for s in stages]
    return {"schema": 1, "run_id": "r", "devices": list(devices), "stages": listed, **more}


def start(t: float, stage: str, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "stage_started", "stage": stage, **more}


def end(t: float, stage: str, code: int = 0, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "stage_ended", "stage": stage, "exit_code": code, "status": "completed", **more}


def fill(
    ledger: Ledger,
    events: Iterable[Mapping[str, Any]],
    key: str,
    times: Iterable[float],
    counter: Callable[[float], float | None] | None = None,
    power: Callable[[float], float | None] | None = None,
    average: Callable[[float], float | None] | None = None,
) -> Ledger:
    """Feed events and one device's readings in order of time; each field is a function of time."""
    waiting = sorted(events, key=lambda e: e["t"])
    for t in times:
        while waiting and waiting[0]["t"] <= t:
            ledger.event(waiting.pop(0))
        ledger.sample(t, key, *(f(t) if f else None for f in (counter, power, average)))
    for event in waiting:
        ledger.event(event)
    return ledger


def every(period: float, begin: float, stop: float) -> list[float]:
    """Times from `begin` to `stop`, both in, `period` apart."""
    return [round(begin + k * period, 9) for k in range(int((stop - begin) / period + 1e-9) + 1)]


def stage(totals: Totals, name: str) -> StageTotals:
    return next(s for s in totals.stages if s.name == name)


def part(totals: Totals, name: str, key: str) -> StageDevice:
    return next(d for d in stage(totals, name).devices if d.key == key)
