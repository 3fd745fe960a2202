"""Memory is flat however long a run lasts: meter, recording to disk and ledger, 8 boards."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import sim_traces
from sim_accuracy import Recorder
from sim_nvml import FakeBoard, FakeNvml


def resident_b() -> int:
    """Resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_ten_thousand_polls(gpus: Callable[..., FakeNvml], tmp_path: Path) -> None:
    """After 2000 polls to warm up, 10 000 more add less than 3 MB; keeping their readings would add over 10 MB."""
    fake = gpus(*(FakeBoard(trace=sim_traces.training(i), noise_w=0.5) for i in range(8)))
    recorder = Recorder(fake, tmp_path, 1, seed=1)
    recorder.edge("stage_started", stage="s0", kind="other")
    recorder.advance(2000 * recorder.meter.period_s)
    before, calls = resident_b(), fake.calls(0, "fields")
    for _ in range(10):
        recorder.advance(1000 * recorder.meter.period_s)
        recorder.meter.info()
    grown = resident_b() - before
    polls = fake.calls(0, "fields") - calls
    print(f"{polls} polls of 8 boards: {grown / 1e6:+.2f} MB")
    recorder.edge("stage_ended", stage="s0", status="completed", exit_code=0)
    recorder.close()
    assert polls >= 9990
    assert grown < 3e6
