"""Run directories for the screens' tests: written by the real writer, on a fixed clock, so that pictures repeat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.rundir.writer import RunWriter

WALL = 1_767_225_600.0
"""2026-01-01 00:00:00 UTC: run time 0 of every fixture."""

STAGES = (
    ("prerun", "prerun", 5.0, None),
    ("preprocess", "preprocess", 25.0, None),
    ("teacher logits", "teacher", 120.0, 240_000),
    ("student", "student", 90.0, 90_000),
    ("evaluate", "evaluate", 20.0, 8_000),
)
"""Name, kind, seconds, tokens."""


@dataclass
class Shape:
    """What kind of run to write."""

    gpus: int = 1
    cpu: bool = True
    dram: bool = True
    estimated: bool = False
    budget_j: float | None = 400_000.0
    until: float | None = None
    """Stop writing at this run time: the run is then interrupted."""
    names: tuple[str, ...] = tuple(s[0] for s in STAGES)
    gap: tuple[float, float] | None = (80.0, 95.0)
    """No GPU readings between these run times."""
    log: str = ""
    region: str | None = "FRA"
    power_missing: bool = False
    """GPUs give neither power nor energy."""
    hz: float = 2.0
    q: float | None = None
    """Quality that the evaluate stage gives."""


def devices(shape: Shape) -> list[dict[str, Any]]:
    """The manifest's devices."""
    out: list[dict[str, Any]] = []
    for i in range(shape.gpus):
        out.append(_device(f"g{i}", f"GPU-{i:08d}-0000", "NVIDIA H100 80GB HBM3", "gpu", "gpu", "counter", i, "nvml"))
        out[-1]["limit_w"] = 700.0
    source, stream = ("estimated", "estimate") if shape.estimated else ("counter", "rapl")
    if shape.cpu:
        out.append(_device("cpu0", "rapl:package-0", "package-0", "cpu", "package", source, 0, stream))
    if shape.dram:
        kind = "ram_estimated" if shape.estimated else "dram"
        out.append(_device("dram0", "rapl:dram-0", "dram-0", kind, "dram", source, 0, stream))
    return out


def _device(key, id, name, kind, scope, source, index, stream) -> dict[str, Any]:
    return {
        "key": key, "id": id, "name": name, "kind": kind, "scope": scope, "source": source, "index": index,
        "wrap_j": None, "limit_w": None, "average_window_s": 0.0, "systematic": 0.05, "details": {}, "stream": stream,
    }  # fmt: skip


LEVELS = ((0.0, 90.0), (30.0, 610.0), (150.0, 480.0), (240.0, 320.0))
"""From which run time on a GPU draws how many watts, before the ripple."""


def gpu_power(t: float, gpu: int) -> float:
    """Watts of a GPU at run time t: a level per stage and a ripple."""
    level = next(w for start, w in reversed(LEVELS) if t >= start)
    return level + 40.0 * math.sin(t / 3.0 + gpu) + gpu


def gpu_energy(t: float, gpu: int) -> float:
    """Joules of a GPU up to run time t: the exact integral of `gpu_power`."""
    ends = [start for start, _ in LEVELS[1:]] + [math.inf]
    levels = sum(w * max(min(t, end) - start, 0.0) for (start, w), end in zip(LEVELS, ends, strict=True))
    return levels + gpu * t + 120.0 * (math.cos(gpu) - math.cos(t / 3.0 + gpu))


def make_run(path: Path, shape: Shape | None = None) -> Path:
    """Write a whole run; with `until`, one that was cut off there."""
    shape = shape or Shape()
    manifest = {
        "run_id": path.name, "name": "kd-qwen", "regime": "kd", "created_at": "2026-01-01T00:00:00Z",
        "clock": {"monotonic_origin": 0.0, "wall_origin": WALL, "boottime_origin": 0.0},
        "recorder": {"pid": 4_000_000, "start_time": 1, "boot_id": "none", "host_hash": None},
        "stages": [{"name": n, "kind": k, "uses": None, "command": ["x"], "gpus": None, "needs": []}
                   for n, (_, k, _, _) in zip(shape.names, STAGES, strict=True)],
        "devices": devices(shape), "sensors": sensors(shape), "hardware": {}, "versions": {}, "environment": [],
        "budget_j": shape.budget_j, "pue": 1.2, "region": shape.region, "protocol": "default",
    }  # fmt: skip
    writer = RunWriter.create(path, manifest)
    events = list(_events(shape))
    end = shape.until if shape.until is not None else events[-1][0]
    open_streams(writer, shape)
    write_samples(writer, shape, 0.0, end)
    for t, kind, fields in events:
        if t <= end:
            writer.event(kind, t=t, **fields)
    if shape.log:
        (path / "logs" / f"{shape.names[2]}.log").write_text(shape.log, encoding="utf-8")
    writer.close()
    return path


def sensors(shape: Shape) -> list[dict[str, Any]]:
    """The manifest's sensors, one without permission."""
    gpu = f"{shape.gpus} x NVIDIA H100 80GB HBM3, energy counter" if shape.gpus else "no NVIDIA driver"
    return [
        {"stream": "nvml", "status": "ok" if shape.gpus else "absent", "text": gpu, "fix": None},
        {"stream": "rapl", "status": "denied" if shape.estimated else "ok", "text": "energy_uj", "fix": "chmod a+r"},
    ]


def _events(shape: Shape):
    yield 0.0, "run_started", {"wall": WALL, "boottime": 0.0}
    t = 0.0
    for name, (_, kind, seconds, tokens) in zip(shape.names, STAGES, strict=True):
        yield t, "stage_started", {"stage": name, "kind": kind, "pid": 4_000_001, "pgid": 4_000_001}
        yield t + 0.5, "phase", {"stage": name, "name": "work"}
        if tokens:
            for k in range(1, 11):
                at = t + seconds * k / 10 - 0.01
                fields = {"tokens": tokens * k // 10, "step": k * 100, "total_steps": 1000, "loss": 3.0 / k}
                yield at, "progress", {"stage": name, **fields}
        t += seconds
        if kind == "evaluate" and shape.q is not None:
            yield t, "quality", {"stage": name, "q": shape.q, "benchmarks": {}}
        yield t, "stage_ended", {"stage": name, "status": "completed", "exit_code": 0, "cpu_s": 1.0}
    yield t + 0.5, "run_ended", {"status": "completed", "exit_code": 0, "reason": None}


def write_facts(run: Path, gpus: int) -> None:
    """Slow facts each 5 s: GPU i has i GiB in use and at run time t a utilisation of t / 4 %."""
    columns = [c for i in range(gpus) for c in (f"g{i}_memory_b", f"g{i}_utilization", f"g{i}_temperature_c")]
    rows = [["t_s", *columns]]
    for k in range(52):
        rows.append([str(k * 5.0), *(x for i in range(gpus) for x in (str(i * 2**30), str(k * 1.25), "61"))])
    (run / "samples" / "info-000001.csv").write_text("".join(",".join(row) + "\n" for row in rows))


def open_streams(writer: RunWriter, shape: Shape) -> None:
    """The streams of a shape's devices."""
    if shape.gpus:
        columns = [c for i in range(shape.gpus) for c in (f"g{i}_j", f"g{i}_w")]
        writer.open_stream("nvml", columns)
    rest = [k for k, on in (("cpu0", shape.cpu), ("dram0", shape.dram)) if on]
    if rest:
        suffix = "w" if shape.estimated else "j"
        writer.open_stream("estimate" if shape.estimated else "rapl", [f"{k}_{suffix}" for k in rest])


def write_samples(writer: RunWriter, shape: Shape, start: float, end: float) -> None:
    """GPU rows at `hz`, the rest at 1 Hz, from `start` to `end`; counters grow by the power that is written."""
    steps = range(math.ceil(start * shape.hz), int(end * shape.hz) + 1)
    for k in steps if shape.gpus else ():
        t = k / shape.hz
        if shape.gap and shape.gap[0] < t < shape.gap[1]:
            continue
        row: list[float | None] = []
        for i in range(shape.gpus):
            row += [None, None] if shape.power_missing else [1000.0 + gpu_energy(t, i), gpu_power(t, i)]
        writer.sample("nvml", t, row)
    rest = [w for w, on in ((150.0, shape.cpu), (20.0, shape.dram)) if on]
    for second in range(math.ceil(start), int(end) + 1) if rest else ():
        t = second + 0.0
        values = rest if shape.estimated else [500.0 + w * t for w in rest]
        writer.sample("estimate" if shape.estimated else "rapl", t, values)
