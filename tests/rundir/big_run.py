"""A run of days on 8 GPUs at 10 Hz, made in a second or two: for tests of opening, plotting and replaying.

The newest checkpoint, the rollups and the open segment are real. Sealed segments are one packed segment under many
names (hard links), unless `real_segments` asks for the last few to be true: whoever opens a run must not read them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import Ledger
from kdwatch.rundir.diskfile import write_whole
from kdwatch.rundir.layout import CHECKPOINTS, ROLLUPS, SAMPLES, segment_name
from kdwatch.rundir.rollup import encode
from kdwatch.rundir.stream import seal_segment
from kdwatch.rundir.writer import RunWriter, to_json

SEGMENT_S = 600.0
HZ = 10.0
DAY_S = 86400.0


def devices(gpus: int) -> list[dict[str, Any]]:
    """Boards with counter, instantaneous and averaged power."""
    return [
        {
            "key": f"g{i}", "id": f"GPU-{i:08d}", "name": "simulated board", "kind": "gpu", "scope": "gpu",
            "source": "counter", "index": i, "limit_w": 700.0, "average_window_s": 1.0, "systematic": 0.05,
            "stream": "nvml", "details": {},
        }
        for i in range(gpus)
    ]  # fmt: skip


def columns(gpus: int) -> list[str]:
    """Columns of the nvml stream."""
    return [f"g{i}{suffix}" for i in range(gpus) for suffix in ("_j", "_w", "_avg_w")]


def power(t: float, gpu: int) -> float:
    """A training load with its own rhythm for each board, to the milliwatt, as boards report it."""
    wave = 60.0 * math.sin(t * 2.1 + gpu) + 25.0 * math.sin(t * 17.3 + 2 * gpu) + 7.0 * math.sin(t * 191.7 + gpu)
    return round(520.0 + wave, 3)


def readings(t: float, gpus: int) -> list[float]:
    """One row."""
    row = []
    for i in range(gpus):
        row += [round(520.0 * t + 28.0 * (1 - math.cos(t * 2.1 + i)), 3), power(t, i), round(520.0 + 0.4 * i, 3)]
    return row


def write_big_run(
    path: Path, days: float = 3.0, gpus: int = 8, tail_s: float = 590.0, real_segments: int = 0, ended: bool = True
) -> Path:
    """Write the run; its last `tail_s` seconds are in the open segment."""
    manifest = {
        "name": "big", "regime": "kd", "devices": devices(gpus), "budget_j": 2e9,
        "stages": [{"name": "teacher", "kind": "teacher"}, {"name": "student", "kind": "student"}],
    }  # fmt: skip
    writer = RunWriter.create(path, manifest)
    whole = int(days * DAY_S / SEGMENT_S)
    ledger = Ledger(writer.manifest)
    ledger.event(writer.event("run_started", 0.0))
    ledger.event(writer.event("stage_started", 0.0, stage="teacher", kind="teacher"))
    _coarse(ledger, writer, whole * SEGMENT_S, gpus)
    offset = (path / "events.jsonl").stat().st_size
    _sealed(path, whole, gpus, real_segments)
    body = {"number": whole, "t": whole * SEGMENT_S, "events_offset": offset, "ledger": ledger.state()}
    write_whole(path / CHECKPOINTS / f"{whole:06d}.json", to_json(body).encode())
    _open_segment(path, whole, gpus, tail_s)
    last = whole * SEGMENT_S + tail_s
    if ended:
        writer.event("stage_ended", last, stage="student", status="completed", exit_code=0)
        writer.event("run_ended", last, status="completed", exit_code=0)
    writer.close()
    return path


def _coarse(ledger: Ledger, writer: RunWriter, until: float, gpus: int) -> None:
    """Bring the ledger to the checkpoint with a reading each 20 s and, at the end, ten a second."""
    half = round(until / 2)
    times = [20.0 * k for k in range(int((until - 10) / 20) + 1)]
    times += [until - 10 + k / HZ for k in range(int(10 * HZ) + 1)]
    handed_over = False
    for t in times:
        if t >= half and not handed_over:
            handed_over = True
            ledger.event(writer.event("stage_ended", half, stage="teacher", status="completed", exit_code=0))
            ledger.event(writer.event("stage_started", half, stage="student", kind="student"))
        row = readings(t, gpus)
        for i in range(gpus):
            ledger.sample(t, f"g{i}", *row[3 * i : 3 * i + 3])


def _sealed(path: Path, count: int, gpus: int, real: int) -> None:
    """Sealed segments 1 to `count` and their rollups."""
    first = rows(path, 1, 0.0, SEGMENT_S, gpus)
    packed = seal_segment(first)
    lines = []
    for number in range(1, count + 1):
        start = (number - 1) * SEGMENT_S
        if number > 1 and number > count - real:
            seal_segment(rows(path, number, start, SEGMENT_S, gpus))
        elif number > 1:
            os.link(packed, path / SAMPLES / (segment_name("nvml", number) + ".gz"))
        lines.append(encode(number, _rollup(start, gpus)))
    (path / ROLLUPS).write_bytes(b"".join(lines))


def rows(path: Path, number: int, start: float, seconds: float, gpus: int) -> Path:
    """Write a plain segment of rows at 10 Hz; returns its file."""
    file = path / SAMPLES / segment_name("nvml", number)
    text = [",".join(["t_s", *columns(gpus)])]
    for k in range(int(seconds * HZ)):
        t = start + k / HZ
        text.append(f"{t:.6f}," + ",".join(["%.3f" % v for v in readings(t, gpus)]))  # noqa: UP031
    file.write_text("\n".join(text) + "\n")
    return file


def _rollup(start: float, gpus: int) -> Mapping[str, list[list[float]]]:
    slots = range(int(SEGMENT_S / 10))
    return {
        f"g{i}": [[start + 10 * k, start + 10 * k + 9.9, 430.0 + i, 520.0, 612.0 - k % 7, 100] for k in slots]
        for i in range(gpus)
    }


def _open_segment(path: Path, whole: int, gpus: int, seconds: float) -> None:
    rows(path, whole + 1, whole * SEGMENT_S, seconds, gpus)


def totals_expected(days: float, gpus: int, tail_s: float) -> float:
    """Joules of the whole run."""
    last = int(days * DAY_S / SEGMENT_S) * SEGMENT_S + tail_s - 1 / HZ
    first: Sequence[float] = readings(0.0, gpus)
    return sum(readings(last, gpus)[0::3]) - sum(first[0::3])
