"""What recording and accounting cost, beside yardsticks of the same run. `pytest -m benchmark -s tests/benchmarks`.

Issue 3: the recorder at 10 Hz on 8 GPUs has 0.5 % of a core for everything, 500 us a tick.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kdwatch.ledger.core import Ledger
from kdwatch.rundir.writer import RunWriter

pytestmark = pytest.mark.benchmark
GPUS, TICKS = 8, 6000
ROW = [123456.789, 312.345, 300.123] * GPUS


def devices(source: str) -> list[dict[str, object]]:
    return [
        {"key": f"g{i}", "id": f"GPU-{i}", "kind": "gpu", "source": source, "index": i, "limit_w": 700.0,
         "average_window_s": 1.0}
        for i in range(GPUS)
    ]  # fmt: skip


def per_tick(work: Callable[[int], None]) -> float:
    """Median of five: CPU microseconds of one tick of all boards."""
    found = []
    for _ in range(5):
        begin = time.process_time()
        for k in range(TICKS):
            work(k)
        found.append((time.process_time() - begin) / TICKS * 1e6)
    return sorted(found)[2]


def csv_row(_: int) -> None:
    csv.writer(io.StringIO()).writerow(ROW)


@pytest.mark.parametrize("source", ["counter", "integrated"])
def test_the_ledgers_share_of_a_tick(source: str) -> None:
    """Accounting 8 boards costs at most ten times what the standard csv writer needs to write their row."""
    ledger = Ledger({"devices": devices(source), "stages": [{"name": "s"}]})
    ledger.event({"t": 0.0, "type": "stage_started", "stage": "s"})
    keys = [f"g{i}" for i in range(GPUS)]
    clock = [0.0]

    def tick(k: int) -> None:
        clock[0] += 0.1
        t = clock[0]
        for key in keys:
            ledger.sample(t, key, 300.0 * t, 300.0 + k % 9, 300.0)

    ours, yardstick = per_tick(tick), per_tick(csv_row)
    print(f"\nledger, {source}: {ours:.1f} us a tick of {GPUS} boards; csv.writer alone {yardstick:.1f} us")
    assert ours <= 10 * yardstick


def test_the_writers_share_of_a_tick(tmp_path: Path) -> None:
    """Formatting, buffering and writing a row costs at most three times the standard csv writer in memory."""
    writer = RunWriter.create(tmp_path / "run", {"devices": devices("counter")})
    writer.open_stream("nvml", [f"g{i}{s}" for i in range(GPUS) for s in ("_j", "_w", "_avg_w")])
    clock = [0.0]

    def tick(_: int) -> None:
        clock[0] += 0.1
        writer.sample("nvml", clock[0], ROW)

    ours, yardstick = per_tick(tick), per_tick(csv_row)
    writer.close()
    print(f"\nwriter: {ours:.1f} us a tick of {GPUS} boards; csv.writer alone {yardstick:.1f} us")
    assert ours <= 3 * yardstick
