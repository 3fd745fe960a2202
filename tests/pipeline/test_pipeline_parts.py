"""Parts of the recorder by themselves: capped logs, tailed progress, grouping of readings, columns."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.meters.base import Device, Reading, SensorEvent
from kdwatch.pipeline.caplog import CappedLog
from kdwatch.pipeline.progress_tail import LINE_LIMIT_B, ProgressTail, checked
from kdwatch.pipeline.recording import Recording, columns_of
from kdwatch.pipeline.sampling import Sampler
from kdwatch.rundir.reader import RunReader
from kdwatch.rundir.writer import RunWriter


@given(st.lists(st.binary(max_size=400), max_size=40), st.integers(40, 2000))
def test_a_capped_log_keeps_head_and_tail(tmp_path_factory, chunks: list[bytes], cap: int) -> None:
    """Whatever comes: at most the cap (and a line), the first half-cap of bytes, and the last quarter-cap."""
    path = tmp_path_factory.mktemp("log") / "s.log"
    log = CappedLog(str(path), cap)
    for chunk in chunks:
        log.write(chunk)
    log.close()
    whole, kept = b"".join(chunks), path.read_bytes()
    assert kept.startswith(whole[: cap // 2])
    if len(whole) <= cap // 2 + 2 * (cap // 4):
        assert kept == whole
    else:
        assert kept.endswith(whole[-(cap // 4) :])
        assert len(kept) <= cap + 100
        line = f"\n[kdwatch: {log.dropped_b} bytes of output are not kept here]\n".encode()
        assert line in kept and len(kept) - len(line) == len(whole) - log.dropped_b
    assert [p.name for p in path.parent.iterdir()] == ["s.log"]


def test_a_log_that_cannot_be_written_costs_nothing_but_the_log(tmp_path: Path) -> None:
    log = CappedLog(str(tmp_path / "no" / "such" / "s.log"), 1000)
    for _ in range(100):
        log.write(b"x" * 50)
    log.close()
    assert log.dropped_b >= 4000


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=4),
    max_leaves=10,
)
KEYS = ["type", "t", "name", "tokens", "step", "loss", "q", "benchmarks", "code", "text", "idle_w", "duration_s"]
TYPES = ["progress", "phase", "quality", "warning", "baseline", "run_ended", "stage_ended"]


@given(st.dictionaries(st.sampled_from(KEYS), json_like, max_size=8), st.sampled_from(TYPES))
def test_what_a_stage_reports_is_finite_and_its_own(raw, kind: str) -> None:
    """No NaN, no negative count, no event of the recorder's own passes, whatever a stage writes."""
    found = checked({**raw, "type": kind})
    if found is None:
        return
    assert found[0] not in ("run_ended", "stage_ended")
    json.dumps(found, allow_nan=False)
    for name in ("tokens", "input_tokens", "step", "total_steps"):
        assert found[2].get(name, 0) >= 0


def test_a_torn_line_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    tail = ProgressTail(path)
    assert tail.read() == []
    path.write_bytes(b'{"type": "progress", "tok')
    assert tail.read() == []
    with path.open("ab") as f:
        f.write(b'ens": 3}\n{"type": "progress", "step": 1}\n{"type": "phase", "name": "save"}\n')
    assert [(kind, fields) for kind, _, fields in tail.read()] == [
        ("progress", {"tokens": 3, "step": 1}),
        ("phase", {"name": "save"}),
    ]


def test_endless_lines_and_links_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x" * (3 * LINE_LIMIT_B) + b'\n{"type": "phase", "name": "work"}\n')
    tail = ProgressTail(path)
    assert [kind for kind, _, _ in tail.read()] == ["phase"] and tail.refused == 1
    (tmp_path / "link").symlink_to(path)
    assert ProgressTail(tmp_path / "link").read() == []


def device(key: str, **fields) -> Device:
    return Device(**{"key": key, "id": key, "name": key, "kind": "gpu", "scope": "gpu", "source": "counter", **fields})


def test_columns_follow_what_devices_give() -> None:
    devices = [
        device("g0", average_window_s=1.0),
        device("cpu0", kind="cpu"),
        device("ram", kind="ram_estimated", source="estimated"),
    ]
    assert columns_of(devices, [Reading("ram", 0.0, counter_j=1.0)]) == [
        ("g0", "counter_j"),
        ("g0", "power_w"),
        ("g0", "average_w"),
        ("cpu0", "counter_j"),
        ("ram", "counter_j"),
        ("ram", "power_w"),
    ]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    devices = [
        {"key": key, "id": key, "name": key, "kind": "gpu", "scope": "gpu", "source": "counter", "stream": "nvml"}
        for key in ("g0", "g1")
    ]
    clock = {"monotonic_origin": 100.0, "wall_origin": 0.0, "boottime_origin": 0.0}
    found = Recording(
        RunWriter.create(tmp_path / "run", {"name": "r", "stages": [], "devices": devices, "clock": clock})
    )
    found.open_stream("nvml", [device("g0"), device("g1")], [])
    return found


def test_readings_close_together_share_a_row(recording: Recording) -> None:
    """A burst of one device makes a row each; both devices of one poll one row."""
    recording.readings("nvml", [Reading("g0", 101.0, 1.0, 100.0), Reading("g1", 101.001, 2.0, 200.0)])
    recording.readings("nvml", [Reading("g0", 102.0005, 3.0), Reading("g0", 102.0, 2.9), Reading("g1", 102.2, 5.0)])
    recording.close()
    rows = (recording.writer.path / "samples" / "nvml-000001.csv").read_text().splitlines()
    assert rows[1:] == [
        "1.000500,1.000,100.000,2.000,200.000",
        "2.000000,2.900,,,",
        "2.000500,3.000,,,",
        "2.200000,,,5.000,",
    ]


def test_the_live_ledger_and_the_record_agree(recording: Recording) -> None:
    """Incremental = batch: the ledger that the recorder feeds and the one read back from disk give the same."""
    from kdwatch.ledger.load import load_ledger

    recording.event("stage_started", t=0.5, stage="s", kind="student", pid=1, pgid=1)
    for i in range(200):
        t = 100.0 + i * 0.1
        recording.readings(
            "nvml", [Reading("g0", t, 300.0 * t, 300.0), Reading("g1", t + 0.0004, 100.123456 * t, 100.0)]
        )
    recording.event("stage_ended", t=15.0, stage="s", status="completed", exit_code=0)
    recording.event("run_ended", t=20.0, status="completed", exit_code=0, reason=None)
    live = recording.totals()
    recording.close()
    assert live is not None
    again = load_ledger(recording.writer.path).totals()
    assert live.total_j == again.total_j and live.unattributed_j == again.unattributed_j
    assert [s.energy_j for s in live.stages] == [s.energy_j for s in again.stages]


def test_a_fault_of_the_ledger_costs_no_sample(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 72: what fails inside the monitor is said, and the record goes on."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(recording.ledger, "sample", broken)
    for i in range(5):
        recording.readings("nvml", [Reading("g0", 101.0 + i, float(i))])
    assert recording.totals() is None
    recording.event("run_ended", status="completed", exit_code=0, reason=None)
    recording.close()
    reader = RunReader(recording.writer.path)
    assert len([s for s in reader.iter_samples() if s.key == "g0"]) == 5
    codes = [e.get("code") for e in reader.iter_events()]
    assert codes.count("ledger_fault") == 1


class FailingMeter:
    """Raises at its first polls, as a driver may."""

    name, period_s = "nvml", 0.01

    def __init__(self, failures: int) -> None:
        self.devices = [device("g0")]
        self.failures = failures
        self.read = 0

    def edge(self) -> list[Reading]:
        return []

    def poll(self) -> list[Reading]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("driver gone")
        self.read += 1
        return [Reading("g0", time.monotonic(), float(self.read))]

    def info(self) -> dict[str, dict[str, float | str | None]]:
        return {}

    def drain_events(self) -> list[SensorEvent]:
        return []

    def close(self) -> None:
        pass


def test_a_meter_that_fails_is_said_once_and_polled_again(recording: Recording) -> None:
    meter = FailingMeter(failures=3)
    sampler = Sampler(meter, recording, pausing=False)
    sampler.start()
    end = time.monotonic() + 10.0
    while meter.read < 3 and time.monotonic() < end:
        time.sleep(0.01)
    sampler.end()
    sampler.join(10.0)
    recording.close()
    reader = RunReader(recording.writer.path)
    texts = [e["text"] for e in reader.iter_events() if e.get("code") == "meter_fault"]
    assert texts == ["the nvml meter failed: RuntimeError: driver gone"]
    assert len([x for x in reader.iter_samples() if x.key == "g0"]) >= 3
