"""A small finished run on disk, for tests of reports and commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ledger_inputs import gpu, model

from kdwatch.rundir.writer import RunWriter

CLOCK = {"monotonic_origin": 100.0, "wall_origin": 1767225600.0, "boottime_origin": 100.0}
"""2026-01-01T00:00:00Z."""

Event = tuple[str, float, Mapping[str, Any]]


def write_run(
    path: Path,
    events: Iterable[Event],
    until: float = 21.5,
    devices: list[dict[str, Any]] | None = None,
    **manifest: Any,
) -> Path:
    """A board at a constant 300 W and an estimated CPU at 40 W, ten and one times a second."""
    devices = [gpu(), model()] if devices is None else devices
    writer = RunWriter.create(path, {"name": "n", "regime": "kd", "clock": CLOCK, "devices": devices, **manifest})
    writer.open_stream("nvml", ["g0_j", "g0_w", "g0_avg_w"])
    writer.open_stream("estimate", ["cpu0_w"])
    for kind, t, fields in events:
        writer.event(kind, t, **fields)
    for k in range(int(until * 10) + 1):
        t = k / 10
        writer.sample("nvml", t, [300.0 * t, 300.0, 300.0])
        if k % 10 == 0:
            writer.sample("estimate", t, [40.0])
    writer.close()
    return path


def stage(name: str, begin: float, finish: float, **ended: Any) -> list[Event]:
    """Events of one stage that ran."""
    return [
        ("stage_started", begin, {"stage": name}),
        ("stage_ended", finish, {"stage": name, "status": "completed", "exit_code": 0, **ended}),
    ]


def whole_story() -> list[Event]:
    """prerun's baseline, a teacher, a reused stage, a student with tokens, its evaluation, the end."""
    return [
        ("run_started", 0.0, {}),
        ("baseline", 0.0, {"idle_w": {"g0": 60.0}, "duration_s": 5.0}),
        *stage("teacher", 1.0, 6.0),
        ("progress", 5.0, {"stage": "teacher", "tokens": 1000, "input_tokens": 900}),
        ("artifact", 6.0, {"stage": "teacher", "artifact": "ab" * 32, "kind": "logits", "energy_j": 1700.0}),
        ("stage_reused", 6.0, {"stage": "data", "reused_from": {"run": "r0", "artifact": "cd" * 32, "energy_j": 55.0}}),
        *stage("student", 7.0, 17.0, cpu_s=20.0),
        ("phase", 7.0, {"stage": "student", "name": "import"}),
        ("phase", 9.0, {"stage": "student", "name": "work"}),
        ("progress", 16.0, {"stage": "student", "tokens": 5000}),
        ("quality", 16.5, {"stage": "student", "q": 0.9, "benchmarks": {"tasks": {"student": 0.81, "teacher": 0.9}}}),
        ("teacher_reuse", 16.6, {"artifact": "ab" * 32, "reuse_count": 4, "teacher_j": 1700.0}),
        ("run_ended", 20.0, {"status": "completed", "exit_code": 0}),
    ]


STAGES = [
    {"name": "teacher", "kind": "teacher"},
    {"name": "data", "kind": "preprocess"},
    {"name": "student", "kind": "student"},
    {"name": "extra", "kind": "other"},
]
