"""docs/protocol.md is enough to get the report's numbers: an implementation written from it agrees to 1e-6."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from board_simulation import TRACES, Board, polls
from ledger_inputs import gpu, model, package
from protocol_by_the_book import levels
from run_files import CLOCK

from kdwatch.ledger.report import build_report
from kdwatch.rundir.writer import RunWriter

ROOT = Path(__file__).parents[2]
RECORDED = [ROOT / "tests/data/schema1/run", *sorted((ROOT / "sample_runs").glob("**/demo-*"))]


def readings(run: Path, device: dict[str, Any]) -> Iterator[list[Any]]:
    """[t, counter, power, averaged power] from all segments of the device's stream; None where a field is missing."""
    for name in sorted({p.name.split(".")[0] for p in (run / "samples").glob(f"{device.get('stream', '*')}-0*")}):
        packed = run / "samples" / f"{name}.csv.gz"
        data = gzip.decompress(packed.read_bytes()) if packed.exists() else packed.with_suffix("").read_bytes()
        for row in csv.DictReader(io.StringIO(data.decode())):
            cells = [row.get(f"{device['key']}_{x}") for x in ("j", "w", "avg_w")]
            if any(cells):
                yield [float(row["t_s"]), *(float(c) if c else None for c in cells)]


def owners(manifest: dict[str, Any], events: list[dict[str, Any]], device: dict[str, Any]) -> list[tuple[float, Any]]:
    """Who owns a device from when on: section 1."""
    declared = {s["name"]: s.get("gpus") for s in manifest["stages"]}
    active, out = dict[str, Any](), list[tuple[float, Any]]()
    for e in events:
        if e["type"] == "stage_started":
            gpus = e.get("gpus") or declared.get(e["stage"])
            if device["kind"] != "gpu" or gpus is None or device["index"] in gpus:
                active[e["stage"]] = e.get("parent")
        elif e["type"] == "stage_ended":
            active.pop(e["stage"], None)
        inner = [name for name in active if name not in active.values()]
        owner = inner[0] if len(inner) == 1 else None
        if owner != (out[-1][1] if out else None):
            out.append((e["t"], owner))
    return out


def account(run: Path) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, dict[str, float]], float]:
    """Of each (stage, device) and of each device the report's numbers, and facility_kwh."""
    manifest = json.loads((run / "manifest.json").read_text())
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    idle = {key: w for e in events if e["type"] == "baseline" for key, w in e["idle_w"].items()}
    stages, devices = dict[tuple[str, str], dict[str, Any]](), dict[str, dict[str, float]]()
    for device in manifest["devices"]:
        rows = list(readings(run, device))
        if device["kind"] == "gpu":  # 0 W is missing
            rows = [
                row for row in rows if row[1] is not None or any(watts is not None and watts > 0 for watts in row[2:])
            ]
        changes = owners(manifest, events, device)
        if rows[0][0] < changes[0][0]:
            changes.insert(0, (rows[0][0], None))
        changes.append((max(rows[-1][0], changes[-1][0]), None))
        found, sums = levels(device, rows, [t for t, _ in changes]), dict[Any, list[float]]()
        for (a, owner), (b, _), low, high in zip(changes, changes[1:], found, found[1:], strict=False):
            edges = low.edge + high.edge + max(0.0, high.samples - low.samples)
            dark = min(b - a, max(0.0, high.dark - low.dark))
            part = [max(0.0, high.j - low.j), b - a, dark, edges]
            sums[owner] = [x + y for x, y in zip(sums.get(owner, [0.0] * 4), part, strict=True)]
        for owner, (j, time, dark, edges) in sums.items():
            baseline = idle.get(device["key"])
            stages[owner, device["id"]] = {
                "energy_j": j,
                "coverage": 1 - dark / time,
                "mean_w": j / (time - dark),
                "net_energy_j": None if baseline is None else max(0.0, j - baseline * time),
                "edge": 2 * math.sqrt(edges),
                "systematic": device["systematic"] * j,
            }
        unattributed = sums.get(None, [0.0])[0]
        devices[device["id"]] = {"total_j": sum(s[0] for s in sums.values()), "unattributed_j": unattributed}
    total = sum(d["total_j"] for d in devices.values())
    return stages, devices, total / 3.6e6 * (manifest.get("pue") or 1.0)


def differences(run: Path) -> list[str]:
    """Where the report of kdwatch and the book differ by more than 1e-6, or 1 uJ."""
    stages, devices, facility_kwh = account(run)
    report = build_report(run)
    pairs: list[tuple[str, Any, Any]] = [("facility_kwh", facility_kwh, report["facility_kwh"])]
    for stage in report["stages"]:
        for device in stage["devices"]:
            mine = stages.pop((stage["name"], device["id"]))
            said = {**device, **device["bound_terms_j"]}
            pairs += [(f"{stage['name']} {device['id']} {key}", mine[key], said[key]) for key in mine]
    for device in report["devices"]:
        pairs += [(f"{device['id']} {key}", value, device[key]) for key, value in devices.pop(device["id"]).items()]
    assert not devices and all(name is None for name, _ in stages), "the report leaves something out"
    return [f"{what}: {a} by the book, {b} in the report" for what, a, b in pairs if b != pytest.approx(a, 1e-6, 1e-6)]


@pytest.mark.parametrize("run", RECORDED, ids=lambda run: run.name)
def test_recorded_runs_by_the_book(tmp_path: Path, run: Path) -> None:
    """From their readings: a checkpoint holds what the kdwatch that recorded the run made of them."""
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    assert differences(tmp_path / "run") == []


EVENTS = [
    ("baseline", 0.0, {"idle_w": {"g0": 60.0, "cpu0": 100.0}, "duration_s": 2.0}),
    ("stage_started", 1.3, {"stage": "outer"}),
    ("stage_started", 2.71, {"stage": "inner", "parent": "outer"}),
    ("stage_ended", 4.02, {"stage": "inner", "status": "completed", "exit_code": 0}),
    ("stage_ended", 5.55, {"stage": "outer", "status": "completed", "exit_code": 0}),
    ("stage_started", 6.1, {"stage": "a", "gpus": [0, 2]}),
    ("stage_started", 7.2, {"stage": "b", "gpus": [1, 3, 4, 5]}),
    ("stage_ended", 9.4, {"stage": "a", "status": "completed", "exit_code": 0}),
    ("stage_ended", 10.33, {"stage": "b", "status": "completed", "exit_code": 0}),
    ("stage_started", 11.0, {"stage": "outer"}),
    ("stage_ended", 17.2, {"stage": "outer", "status": "completed", "exit_code": 0}),
    ("run_ended", 18.6, {"status": "completed", "exit_code": 0}),
]
"""Nested stages, a stage that comes again, and two at a time that share the package, which is nobody's then."""

BOARDS = [
    (0.02, True, True),
    (0.1, True, True),
    (None, True, True),
    (None, True, False),
    (0.1, False, True),
    (None, False, True),
]
"""Of each board: the counter's period in seconds, and whether it has an instantaneous and an averaged power."""


FAULTY = 6


def faulty(number: int, t: float, joules: float, board: Board) -> float:
    """Board 0 stands still for 3.2 s and goes on from there, board 1 starts anew twice and says what cannot be,
    board 4 (averaged power alone) does both."""
    if number in (0, 4) and 12.0 <= t < 15.2:
        return board.counter(12.0)
    if number == 1 and 5.0 <= t < 5.09:
        return 9e6 if t < 5.04 else -1.0
    starts = [s for s in ((6.8, 13.2) if number == 1 else (16.0,) if number == 4 else ()) if s <= t]
    if starts:
        return joules - board.counter(starts[-1])
    return joules - board.counter(15.2) + board.counter(12.0) if number in (0, 4) and t >= 15.2 else joules


def simulated(path: Path, seed: int) -> Path:
    """Boards of all kinds with a trace each, a package of 120 W whose counter wraps at 700 J, and a model. In the run
    of an odd seed no board answers for 3.1 s around a stage's end; in those from 6 on, counters fail (`faulty`)."""
    rng = random.Random(seed)
    traces = [rng.choice(list(TRACES.values()))(rng.random(), 20.0) for _ in BOARDS]
    boards = [Board(trace, period or 0.1, rng) for trace, (period, *_) in zip(traces, BOARDS, strict=True)]
    specs = [
        gpu(f"g{n}", source="counter" if period else "integrated", stream="nvml", average_window_s=float(average))
        for n, (period, _, average) in enumerate(BOARDS)
    ]
    specs += [package(stream="rapl", wrap_j=700.0), model("ram", "ram_estimated", stream="estimate")]
    writer = RunWriter.create(
        path, {"name": "n", "regime": "kd", "clock": CLOCK, "devices": specs, "stages": [], "pue": 1.3}
    )
    columns = [f"g{n}_{field}" for n in range(len(BOARDS)) for field in ("j", "w", "avg_w")]
    for stream, names in (("nvml", columns), ("rapl", ["cpu0_j"]), ("estimate", ["ram_j", "ram_w"])):
        writer.open_stream(stream, names)
    for kind, t, fields in EVENTS:
        writer.event(kind, t, **fields)
    edges = [t for kind, t, _ in EVENTS if kind.startswith("stage")]
    for t in polls(edges, 18.5, rng, boards[0]):
        if seed % 2 == 0 or not 8.0 < t < 11.1:
            row: list[float | None] = []
            for board, (period, instant, average) in zip(boards, BOARDS, strict=True):
                counted = board.counter(t) if period else None
                if counted is not None and seed >= FAULTY:
                    counted = faulty(boards.index(board), t, counted, board)
                row += [counted, board.instant(t) if instant else None]
                row += [board.average(t) if average else None]
            writer.sample("nvml", t, row)
    for t in sorted([*range(19), *(e + 0.0013 * k for e in edges for k in range(9))]):
        held = min(t, 12.5) if seed >= FAULTY and t < 16.5 else t  # and goes on from there
        writer.sample("rapl", t, [(120.0 * (held - 4.0 * (seed >= FAULTY and t >= 16.5)) + 300.0) % 700.0])
        writer.sample("estimate", t, [20.0 * t, 20.0])
    writer.close()
    return path


@pytest.mark.parametrize("seed", range(FAULTY + 4))
def test_simulated_runs_by_the_book(tmp_path: Path, seed: int) -> None:
    run = simulated(tmp_path / "run", seed)
    assert differences(run) == []


def test_the_faulty_runs_hold_the_faults(tmp_path: Path) -> None:
    found: dict[str, set[str]] = {}
    for device in build_report(simulated(tmp_path / "run", FAULTY))["devices"]:
        found[device["id"]] = set(device["flags"])
    assert found["GPU-0"] >= {"frozen", "bridged"} and found["GPU-1"] >= {"reset", "bridged", "discarded"}
    assert found["GPU-4"] >= {"frozen", "reset", "bridged"} and found["rapl:cpu0"] >= {"frozen", "gap"}


def test_the_book_is_compared_with_something(tmp_path: Path) -> None:
    """A counter that is 0.1 % off in one run is seen: the comparison can fail."""
    run = simulated(tmp_path / "run", 0)
    rows = list(readings(run, json.loads((run / "manifest.json").read_text())["devices"][0]))
    assert len(rows) > 300 and all(None not in row for row in rows)
    wrong = [[t, 1.001 * raw, w, mean] for t, raw, w, mean in rows]
    found = levels(gpu(), rows, [2.0, 9.0]), levels(gpu(), wrong, [2.0, 9.0])
    energies = [high.j - low.j for low, high in found]
    assert energies[1] == pytest.approx(1.001 * energies[0], rel=1e-4) and energies[1] != pytest.approx(
        energies[0], 1e-5
    )
