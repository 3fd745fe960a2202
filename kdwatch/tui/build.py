"""From the ledger's totals and the manifest to a Frame. The only place that knows both shapes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kdwatch.ledger.types import DeviceTotals, StageTotals
from kdwatch.rundir.text import clean
from kdwatch.tui.frame import DeviceRow, RunInfo, StageRow
from kdwatch.tui.history import History

NAME_LIMIT = 80
"""Longest name of a run, stage or device that is shown."""


def run_info(manifest: Mapping[str, Any], path: str, g_per_kwh: float | None) -> RunInfo:
    """What the header needs of a manifest, made harmless."""
    clock = manifest.get("clock")
    wall = clock.get("wall_origin") if isinstance(clock, dict) else None
    recorder = manifest.get("recorder")
    pid = recorder.get("pid") if isinstance(recorder, dict) else None
    pue = manifest.get("pue")
    return RunInfo(
        run_id=clean(manifest.get("run_id"), NAME_LIMIT),
        name=clean(manifest.get("name") or manifest.get("run_id") or "run", NAME_LIMIT),
        regime=clean(manifest.get("regime"), 20),
        path=path,
        started_wall=_number(wall) if _number(wall) is not None else _created(manifest),
        recorder_pid=pid if isinstance(pid, int) else None,
        pue=_number(pue) or 1.0,
        region=clean(manifest.get("region"), 20) or None,
        g_per_kwh=g_per_kwh,
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _created(manifest: Mapping[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(manifest.get("created_at")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def stage_rows(stages: Sequence[StageTotals], t: float) -> tuple[StageRow, ...]:
    """Rows of the stage table out of the ledger's StageTotals."""
    return tuple(_stage_row(i + 1, s, t) for i, s in enumerate(stages))


def _stage_row(number: int, stage: StageTotals, t: float) -> StageRow:
    took = stage.duration_s
    if took is None and stage.status == "running" and stage.start_s is not None:
        took = max(t - stage.start_s, 0.0)
    reused = stage.reused_from if isinstance(stage.reused_from, dict) else None
    return StageRow(
        number=number,
        name=clean(stage.name, NAME_LIMIT),
        kind=clean(stage.kind, 20),
        status=clean(stage.status, 20),
        start_s=stage.start_s,
        duration_s=took,
        mean_w=stage.mean_w,
        energy_j=stage.energy_j.get("total"),
        share=stage.share,
        source=_source(d.source for d in stage.devices if d.energy_j),
        tokens=stage.tokens,
        tokens_per_s=stage.tokens_per_s,
        j_per_token=stage.j_per_token,
        step=stage.step,
        total_steps=stage.total_steps,
        loss=stage.loss,
        phase=clean(stage.phase, 20) or None,
        exit_code=stage.exit_code,
        reused_run=clean(reused.get("run"), NAME_LIMIT) if reused else None,
        reused_j=_number(reused.get("energy_j")) if reused else None,
        bound_j=stage.bound_j,
        flags=tuple(sorted({clean(f, 30) for d in stage.devices for f in (d.flags or ())})),
    )


def _source(sources: Any) -> str | None:
    """One word for several sources: the least certain one speaks for all."""
    found = {s for s in sources if s}
    for word in ("predicted", "imported", "estimated", "integrated", "counter"):
        if word in found:
            return word
    return None


@dataclass(frozen=True, slots=True)
class DeviceNames:
    """What a manifest says of one device, made harmless once: it is asked for in every frame."""

    key: str
    """As in the streams."""
    shown: Mapping[str, str]
    """`key`, `label`, `name`, `kind` and `scope` of its rows."""
    limit_w: float | None
    source: str


def device_names(manifest: Mapping[str, Any]) -> list[DeviceNames]:
    """The devices of a manifest, in its order."""
    devices = manifest.get("devices")
    found = []
    for device in devices if isinstance(devices, list) else ():
        if not isinstance(device, dict) or not isinstance(device.get("key"), str):
            continue
        shown = {
            "key": clean(device["key"], 12),
            "label": _label(device),
            "name": clean(device.get("name"), NAME_LIMIT),
            "kind": clean(device.get("kind"), 20),
            "scope": clean(device.get("scope"), 20),
        }
        limit = _number(device.get("limit_w"))
        found.append(DeviceNames(device["key"], shown, limit, clean(device.get("source"), 12)))
    return found


def device_rows(
    devices: Sequence[DeviceNames],
    totals: Sequence[DeviceTotals],
    history: History,
    t: float,
    info: Mapping[str, Any],
    lost: set[str],
) -> tuple[DeviceRow, ...]:
    """Rows of the device table: manifest, ledger totals, newest power, slow facts."""
    by_key = {d.key: d for d in totals}
    return tuple(_device_row(d, by_key.get(d.key), history, t, info, lost) for d in devices)


def _device_row(
    device: DeviceNames,
    total: DeviceTotals | None,
    history: History,
    t: float,
    info: Mapping[str, Any],
    lost: set[str],
) -> DeviceRow:
    key = device.key
    series = history.series.get(key)
    fresh = series is not None and series.fresh(t)
    limit = _fact(info, key, "limit_w")
    return DeviceRow(
        **device.shown,
        power_w=series.last_value if series is not None and fresh else None,
        limit_w=limit if limit is not None else device.limit_w,
        energy_j=total.total_j if total is not None else None,
        source=(total.source if total is not None else "") or device.source or None,
        coverage=total.coverage if total is not None else None,
        utilization=_fact(info, key, "utilization"),
        memory_b=_fact(info, key, "memory_b"),
        temperature_c=_fact(info, key, "temperature_c"),
        state="lost" if key in lost else "ok" if fresh else "silent",
    )


def _fact(info: Mapping[str, Any], key: str, name: str) -> float | None:
    try:
        return float(info[f"{key}_{name}"])
    except (KeyError, TypeError, ValueError):
        return None


def _label(device: Mapping[str, Any]) -> str:
    """What a person calls the device: `GPU 3 H100 80GB`, `CPU package-0`."""
    kind = str(device.get("kind"))
    name = clean(device.get("name"), NAME_LIMIT)
    for vendor in ("NVIDIA ", "AMD ", "Intel(R) "):
        name = name.removeprefix(vendor)
    index = device.get("index")
    if kind == "gpu":
        return f"GPU {index} {name}" if isinstance(index, int) else f"GPU {name}"
    words = {"cpu": "CPU", "dram": "DRAM", "ram_estimated": "RAM"}
    word = words.get(kind, "other")
    return word if name == word else f"{word} {name}".rstrip()


class CpuShare:
    """This process's own CPU time over wall time, smoothed over about ten readings."""

    def __init__(self) -> None:
        self._before = (time.monotonic(), _cpu_s())
        self._share: float | None = None

    def read(self) -> float | None:
        """Share of one core since the last reading, smoothed; None on the first."""
        now, cpu = time.monotonic(), _cpu_s()
        wall = now - self._before[0]
        if wall < 0.2:
            return self._share
        share = (cpu - self._before[1]) / wall
        self._before = (now, cpu)
        self._share = share if self._share is None else 0.8 * self._share + 0.2 * share
        return self._share


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system
