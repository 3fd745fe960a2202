"""A run directory from imported logs: status `imported`, every number with the file it came from."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kdwatch import __version__
from kdwatch.interop.merge import attach_progress, merge_codecarbon
from kdwatch.interop.model import ImportedLog, LoggedDevice
from kdwatch.interop.readings import has_readings, rows_of, stage_energy, windows
from kdwatch.interop.timeline import Piece, Timeline, build_timeline
from kdwatch.ledger.core import Ledger
from kdwatch.ledger.device import LARGEST_W
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.writer import RunWriter

STREAM = "import"
ROWS_PER_SEGMENT = 50_000
ROWS_WITHOUT_CHECKPOINT = 10_000
"""A run of more rows ends with a checkpoint, so that it opens at once."""
MAX_NOTES = 200
REFRESH_S = 1e-4
"""Imported counters hold at the moment of their sample."""


class ImportWriter(RunWriter):
    """Writes rows of the past: many at once, not every half second."""

    def rows(self, stream: str, times: Sequence[float], texts: Sequence[str]) -> None:
        """Write rows whose cells are text already."""
        self._streams[stream].add_rows(times, texts)
        self._flush_rows()


@dataclass(slots=True)
class RunDevice:
    """A device of the run to be."""

    key: str
    device: LoggedDevice
    log: ImportedLog


def write_run(
    path: Path,
    logs: list[ImportedLog],
    *,
    run_id: str,
    name: str,
    zone: str | None = None,
    watch: Callable[[int], None] | None = None,
) -> list[str]:
    """Write the run of these logs. Returns what was noted about putting them together.

    Raises UsageProblem where no log has both energy and time, or the directory cannot be written.
    """
    merge_codecarbon(logs)
    notes = attach_progress(logs)
    timeline = build_timeline(logs)
    if not timeline.pieces:
        raise UsageProblem("no run made: no file has a duration; give --interval SECONDS if you know it")
    devices = devices_of(timeline)
    manifest = manifest_of(timeline, devices, logs, run_id, name, zone)
    writer = ImportWriter.create(path, manifest)
    assert isinstance(writer, ImportWriter)
    try:
        _write(writer, timeline, devices, logs, watch)
    finally:
        writer.close()
    problem = writer.take_problem()
    if problem is not None:
        raise UsageProblem(f"{path}: the run is not whole ({problem}); free space and import again")
    return notes + [note.text for note in timeline.notes]


def devices_of(timeline: Timeline) -> list[RunDevice]:
    """Each device of each log once, with a key of its own."""
    found: dict[int, RunDevice] = {}
    for piece in timeline.pieces:
        for device in piece.devices:
            if _has_energy(device) and id(device) not in found:
                found[id(device)] = RunDevice(f"d{len(found)}", device, piece.log)
    return list(found.values())


def _has_energy(device: LoggedDevice) -> bool:
    return device.energy_j is not None or bool(device.stats and device.stats.energy_j is not None)


def manifest_of(
    timeline: Timeline, devices: list[RunDevice], logs: list[ImportedLog], run_id: str, name: str, zone: str | None
) -> dict[str, Any]:
    """The manifest of an imported run; `clock.wall_origin` is null where the files give no calendar time."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "kdwatch_version": __version__,
        "run_id": run_id,
        "name": name,
        "regime": "custom",
        "created_at": now,
        "clock": {"monotonic_origin": time.monotonic(), "wall_origin": timeline.wall_origin, "boottime_origin": None},
        "stages": [_stage_entry(piece, devices) for piece in timeline.pieces],
        "devices": [_device_entry(device, timeline) for device in devices],
        "sensors": [],
        "hardware": {"cpu": None, "cores": None, "memory_b": None, "gpus": _gpu_names(devices)},
        "environment": [],
        "protocol": "default",
        "imported": {
            "at": now,
            "zone": zone,
            "local_start": _local(timeline.local_start),
            "files": [
                {"file": str(log.path), "format": log.format, "rows": log.rows, "kwh": log.kwh, "kg_co2e": log.kg_co2e}
                for log in logs
            ],
        },
    }


def _shown(device: LoggedDevice) -> str:
    name = device.name or (f"GPU {device.key}" if device.kind == "gpu" and device.key.isdigit() else device.key)
    return f"{name} (modelled by the tool)" if device.estimated else name


def _local(seconds: float | None) -> str | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def _gpu_names(devices: list[RunDevice]) -> list[str]:
    return [d.device.name or d.device.key for d in devices if d.device.kind == "gpu"]


def _stage_entry(piece: Piece, devices: list[RunDevice]) -> dict[str, Any]:
    """A stage claims the devices that its file has energy of: what another file has says nothing about this one."""
    read = {id(device) for device in piece.devices if has_readings(device, piece)}
    own = [found for found in devices if id(found.device) in read]
    gpus = [_device_id(found) for found in own if found.device.kind == "gpu"]
    return {
        "name": piece.name,
        "kind": piece.stage.kind,
        "uses": None,
        "command": [],
        "gpus": gpus or None,
        "devices": [found.key for found in own],
        "needs": [],
        "imported": {"file": str(piece.log.path), "start": piece.origin, "time": piece.log.time_kind},
    }


def _device_id(found: RunDevice) -> str:
    key = found.device.key
    return key if key.startswith(("GPU-", "MIG-")) else f"{found.log.path.name}:{key}"


def _highest_w(device: LoggedDevice, timeline: Timeline) -> float:
    """Largest power that the device has anywhere: of a reading, or on average in a stage."""
    found = [device.peak_w, device.mean_w, device.stats.peak_w if device.stats else None]
    for piece in timeline.pieces:
        if any(d is device for d in piece.devices):
            energy = stage_energy(device, piece)
            found.append(None if energy is None else energy / piece.duration_s)
    return max((watts for watts in found if watts is not None), default=0.0)


def _device_entry(found: RunDevice, timeline: Timeline) -> dict[str, Any]:
    device = found.device
    highest = _highest_w(device, timeline)
    return {
        "key": found.key,
        "id": _device_id(found),
        "name": _shown(device),
        "kind": device.kind,
        "scope": device.scope,
        "source": "imported",
        "index": int(device.key) if device.key.isdigit() and len(device.key) < 6 else None,
        "wrap_j": None,
        "limit_w": highest if highest > 0.8 * LARGEST_W.get(device.kind, 20_000.0) else None,
        "average_window_s": 0.0,
        "systematic": 0.05,
        "refresh_s": REFRESH_S,
        "details": {
            "file": str(found.log.path),
            "format": found.log.format,
            "key": device.key,
            "host": device.host,
            "estimated": device.estimated,
        },
        "stream": STREAM,
    }


def _write(
    writer: ImportWriter,
    timeline: Timeline,
    devices: list[RunDevice],
    logs: list[ImportedLog],
    watch: Callable[[int], None] | None,
) -> None:
    ledger = Ledger(writer.manifest)
    writer.open_stream(STREAM, [f"{d.key}{suffix}" for d in devices for suffix in ("_w", "_j")])
    events = deque(sorted(_events(timeline, logs), key=lambda event: event[0]))

    def until(t: float) -> None:
        while events and events[0][0] <= t:
            at, kind, fields = events.popleft()
            ledger.event(writer.event(kind, at, **fields))

    rows = sealed = 0
    for batches in windows(timeline, [d.device for d in devices], [event[0] for event in events]):
        times, texts = rows_of(batches)
        until(times[0])
        for device, batch in zip(devices, batches, strict=True):
            ledger.samples(device.key, batch.times, batch.joules, batch.watts)
        writer.rows(STREAM, times, texts)
        rows += len(times)
        if watch:
            watch(rows)
        if rows - sealed >= ROWS_PER_SEGMENT:
            sealed = rows
            writer.seal(ledger.state())
    until(math.inf)
    if rows > ROWS_WITHOUT_CHECKPOINT:
        writer.seal(ledger.state())


def _events(timeline: Timeline, logs: list[ImportedLog]) -> list[tuple[float, str, dict[str, Any]]]:
    end = max(piece.end for piece in timeline.pieces)
    events: list[tuple[float, str, dict[str, Any]]] = [
        (0.0, "run_started", {"wall": timeline.wall_origin, "boottime": None})
    ]
    for log in logs:
        for note in log.notes[:MAX_NOTES]:
            events.append((0.0, "warning", {"code": note.code, "text": f"{log.path.name}: {note.text}"}))
    for note in timeline.notes:
        events.append((0.0, "warning", {"code": note.code, "text": note.text}))
    for piece in timeline.pieces:
        events.append((piece.start, "stage_started", {"stage": piece.name, "kind": piece.stage.kind}))
        events += _progress(piece)
        events.append((piece.end, "stage_ended", {"stage": piece.name, "status": "completed", "exit_code": 0}))
    events.append((end, "run_ended", {"status": "completed", "exit_code": 0, "reason": "imported"}))
    return [(round(t, 6), kind, fields) for t, kind, fields in events]


def _progress(piece: Piece) -> Iterator[tuple[float, str, dict[str, Any]]]:
    for point in piece.stage.points:
        if "t_s" in point:
            t = piece.start + min(max(0.0, float(point["t_s"])), piece.duration_s)
            yield t, "progress", {"stage": piece.name, **{k: v for k, v in point.items() if k != "t_s"}}
    final = {
        "tokens": piece.stage.tokens,
        "step": piece.stage.step,
        "total_steps": piece.stage.total_steps,
        "loss": piece.stage.loss,
    }
    known = {key: value for key, value in final.items() if value is not None}
    if known:
        yield piece.end, "progress", {"stage": piece.name, **known}
