"""The writer: whole at any byte, whatever the disk does."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import naive
import pytest

from kdwatch.rundir.diskfile import AppendFile
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.reader import RunReader
from kdwatch.rundir.stream import seal_segment
from kdwatch.rundir.writer import RunWriter

KEYS = ["g0_j", "g0_w", "g0_avg_w"]


def make(path: Path, **manifest: object) -> RunWriter:
    writer = RunWriter.create(path, {"devices": [{"key": "g0", "kind": "gpu"}], **manifest})
    writer.open_stream("nvml", KEYS)
    return writer


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    writer.event("run_started", 0.0, wall=1.5, boottime=2.5)
    writer.sample("nvml", 0.1, [1.0, 300.25, None])
    writer.sample("nvml", 0.2, [2.0, float("nan"), float("inf")])
    writer.event("run_ended", 0.3, status="completed")
    writer.close()
    reader = RunReader(tmp_path / "run")
    batch = reader.poll()
    assert [e["type"] for e in batch.events] == ["run_started", "run_ended"]
    assert [tuple(s) for s in batch.samples] == [(0.1, "g0", 1.0, 300.25, None), (0.2, "g0", 2.0, None, None)]
    assert reader.status() == "completed"


def test_directories_and_files_are_for_the_owner_only(tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    writer.event("x")
    writer.sample("nvml", 0.1, [1.0, 1.0, 1.0])
    writer.seal({})
    writer.close()
    modes = {p.stat().st_mode & 0o077 for p in [tmp_path / "run", *(tmp_path / "run").rglob("*")]}
    assert modes == {0}


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    make(tmp_path / "run").close()
    with pytest.raises(UsageProblem, match="a run already"):
        make(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_place_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageProblem, match="cannot write the run directory"):
        make(tmp_path / "run")


def test_a_place_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="cannot write the run directory"):
        make(tmp_path / "file" / "run")


def test_events_are_one_write_each_and_there_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = make(tmp_path / "run")
    calls: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: (calls.append(bytes(data)), real(fd, data))[1])
    writer.event("a", text="x" * 5000)
    monkeypatch.undo()
    assert len(calls) == 1 and calls[0].endswith(b"\n")
    assert (tmp_path / "run/events.jsonl").read_bytes() == calls[0]


def test_an_event_takes_the_waiting_samples_along(tmp_path: Path) -> None:
    """A run killed in its first tenths of a second keeps the readings of its stages' edges."""
    writer = RunWriter.create(tmp_path / "run", {"devices": []})
    writer.open_stream("rapl", ["cpu0_j"])
    writer.sample("rapl", 0.01, [12.5])
    writer.event("stage_ended", 0.02, stage="a", status="completed")
    assert (tmp_path / "run" / "samples" / "rapl-000001.csv").read_text() == "t_s,cpu0_j\n0.010000,12.500\n"


def test_samples_are_in_the_file_within_half_a_second(tmp_path: Path) -> None:
    """Run time of the newest row in the file is never more than 0.5 s behind the newest sample."""
    writer = make(tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    seen = 0.0
    for k in range(100):
        t = k / 10
        writer.sample("nvml", t, [30.0 * k, 300.0, 300.0])
        seen = max([seen, *(s.t for s in reader.poll().samples)])
        assert t - seen < 0.5
    writer.close()


KILLED = """
import sys, time
from pathlib import Path
from kdwatch.rundir.writer import RunWriter
writer = RunWriter.create(Path(sys.argv[1]), {"devices": [{"key": "g0", "kind": "gpu"}]})
writer.open_stream("nvml", ["g0_j", "g0_w", "g0_avg_w"])
print("ready", flush=True)
k = 0
while True:
    t = writer.now()
    writer.sample("nvml", t, [300.0 * t, 300.0, 300.0])
    writer.event("progress", t, stage="s", step=k)
    k += 1
    if k % 40 == 0:
        writer.seal({"k": k})
    time.sleep(0.002)
"""


def test_kill_at_any_moment_leaves_a_run_that_opens(tmp_path: Path) -> None:
    """SIGKILL at 12 random moments of a writer that seals all the time: the run opens, less than a second of
    samples is lost, the step numbers have no hole."""
    rng = random.Random(12)
    for n in range(12):
        path = tmp_path / f"run{n}"
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(0.05 + 0.3 * rng.random())
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        reader = RunReader(path)
        batch = reader.poll()
        steps = [e["step"] for e in batch.events]
        assert steps == list(range(len(steps))) and steps
        last_event = batch.events[-1]["t"]
        last_sample = batch.samples[-1].t if batch.samples else 0.0
        assert last_event - last_sample < 1.0
        times = [s.t for s in batch.samples]
        assert times == sorted(set(times))
        assert reader.status() == "interrupted"


def test_every_prefix_of_the_files_opens(tmp_path: Path) -> None:
    """Torn at every byte: events and rows up to the tear are there, none is invented."""
    writer = make(tmp_path / "run")
    for k in range(4):
        writer.event("progress", float(k), stage="s", step=k)
        writer.sample("nvml", k + 0.5, [1.0 + k, 300.0 + k, 299.0])
    writer.close()
    for name in ("events.jsonl", "samples/nvml-000001.csv"):
        file = tmp_path / "run" / name
        whole = file.read_bytes()
        for cut in range(len(whole) + 1):
            file.write_bytes(whole[:cut])
            batch = RunReader(tmp_path / "run").poll()
            lines = whole[:cut].count(b"\n")
            if name == "events.jsonl":
                assert [e["step"] for e in batch.events] == list(range(lines))
            else:
                assert [s.counter_j for s in batch.samples] == [1.0 + k for k in range(max(0, lines - 1))]
        file.write_bytes(whole)


@pytest.mark.parametrize("left", ["plain only", "part beside plain", "both", "gz only"])
def test_any_moment_of_sealing_reads_the_same(tmp_path: Path, left: str) -> None:
    writer = make(tmp_path / "run")
    for k in range(50):
        writer.sample("nvml", k / 10, [1.0 * k, 300.0, 300.0])
    writer.close()
    expected = list(RunReader(tmp_path / "run").iter_samples())
    plain = tmp_path / "run/samples/nvml-000001.csv"
    text = plain.read_bytes()
    sealed = seal_segment(plain)
    if left == "part beside plain":
        (plain.parent / ".nvml-000001.csv.gz.part").write_bytes(sealed.read_bytes()[:40])
        sealed.unlink()
    if left == "plain only":
        sealed.unlink()
    if left != "gz only":
        plain.write_bytes(text)
    assert list(RunReader(tmp_path / "run").iter_samples()) == expected
    assert RunReader(tmp_path / "run").poll().samples == expected


def test_a_live_reader_follows_over_sealing(tmp_path: Path) -> None:
    """Each row once, in order, whatever is sealed between two looks."""
    writer = make(tmp_path / "run")
    reader, got = RunReader(tmp_path / "run"), []
    rng = random.Random(5)
    for k in range(300):
        writer.sample("nvml", k / 10, [1.0 * k, 300.0, 300.0])
        if rng.random() < 0.05:
            writer.seal({})
        if rng.random() < 0.2:
            got += reader.poll().samples
    writer.close()
    got += reader.poll().samples
    assert [s.counter_j for s in got] == [float(k) for k in range(300)]
    assert gzip.decompress(next((tmp_path / "run/samples").glob("*.gz")).read_bytes()).startswith(b"t_s,g0_j")


@pytest.mark.fault(48)
def test_fault_48_writer_and_reader_at_the_same_time(tmp_path: Path) -> None:
    """One thread writes and seals, another reads: N produced = N read, each once and in order."""
    writer = make(tmp_path / "run")
    reader, got = RunReader(tmp_path / "run"), []

    def produce() -> None:
        for k in range(3000):
            writer.sample("nvml", k / 10, [float(k), 300.0, 300.0])
            if k % 97 == 0:
                writer.seal({})
        writer.close()

    thread = threading.Thread(target=produce)
    thread.start()
    while thread.is_alive():
        got += reader.poll().samples
    got += reader.poll().samples
    assert [s.counter_j for s in got] == [float(k) for k in range(3000)]
    buffer, taken = naive.SwappedBuffer(), 0
    for k in range(100):
        buffer.items.append(k)
        taken += len(buffer.take(meanwhile=lambda: buffer.items.append(-1)))
    assert taken < 200, "what came meanwhile is gone"


def test_fault_48_as_many_samples_as_were_made(tmp_path: Path) -> None:
    """Four streams at different rates, sealed now and then, read live: N produced = N read."""
    devices = [{"key": f"d{i}", "kind": "cpu"} for i in range(4)]
    writer = RunWriter.create(tmp_path / "run", {"devices": devices})
    for i in range(4):
        writer.open_stream(f"m{i}", [f"d{i}_w"])
    reader, rng = RunReader(tmp_path / "run"), random.Random(48)
    made, got = 0, 0
    for k in range(2000):
        i = rng.randrange(4)
        writer.sample(f"m{i}", k * 0.01, [float(k)])
        made += 1
        if rng.random() < 0.01:
            writer.seal({})
        if rng.random() < 0.02:
            got += len(reader.poll().samples)
    writer.close()
    assert got + len(reader.poll().samples) == made
    assert len(list(RunReader(tmp_path / "run").iter_samples())) == made


class Disk:
    """os.write that refuses, or takes a part, as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: int | None = None
        self._real = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if self.free is None:
            return self._real(fd, data)
        if self.free == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._real(fd, data[: self.free])
        self.free -= done
        return done


@pytest.mark.parametrize("room", [0, 1, 25, 60, 61, 200])
def test_a_full_disk_loses_nothing_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Also where the disk took half a line first."""
    writer = make(tmp_path / "run")
    disk = Disk(monkeypatch)
    heard: list[str] = []
    writer.on_problem = lambda problem: heard.append(str(problem))
    writer.event("progress", 0.0, stage="s", step=0)
    disk.free = room
    for k in range(1, 20):
        writer.event("progress", float(k), stage="s", step=k)
        writer.sample("nvml", float(k), [1.0 * k, 300.0, 300.0])
    assert 1 <= len(heard) <= 2 and "No space left" in heard[0]
    problem = writer.take_problem()
    assert problem is not None and "recording goes on in memory" in str(problem)
    disk.free = None
    writer.flush()
    writer.close()
    monkeypatch.undo()
    batch = RunReader(tmp_path / "run").poll()
    assert [e["step"] for e in batch.events] == list(range(20))
    assert [s.counter_j for s in batch.samples] == [float(k) for k in range(1, 20)]


def test_sealing_waits_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment whose rows are still in memory is not closed under them."""
    writer = make(tmp_path / "run")
    disk = Disk(monkeypatch)
    disk.free = 50
    for k in range(30):
        writer.sample("nvml", k / 10, [1.0 * k, 300.0, 300.0])
        if k % 10 == 9:
            writer.seal({})
    disk.free = None
    writer.sample("nvml", 3.0, [30.0, 300.0, 300.0])
    writer.seal({})
    writer.close()
    assert [s.counter_j for s in RunReader(tmp_path / "run").iter_samples()] == [float(k) for k in range(31)]
    assert [c["number"] for c in RunReader(tmp_path / "run").checkpoints()] == [1]


def test_memory_for_a_full_disk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest lines go; what stays are whole lines, the newest among them."""
    disk = Disk(monkeypatch)
    problems: list[OSError] = []
    file = AppendFile(tmp_path / "f", lambda path, problem: problems.append(problem), held_bytes=1000)
    disk.free = 7
    for k in range(500):
        file.write(f"line {k:05d}\n".encode())
    assert file.dropped > 300 and len(problems) == 1
    disk.free = None
    file.close()
    lines = (tmp_path / "f").read_text().splitlines()
    assert lines[0] == "line 00000" and lines[-1] == "line 00499"
    assert all(len(line) == 10 for line in lines) and len(lines) == 500 - file.dropped


def test_a_directory_that_goes_away_does_not_stop_the_recorder(tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    (tmp_path / "run/checkpoints").rmdir()
    writer.sample("nvml", 0.1, [1.0, 1.0, 1.0])
    writer.seal({"x": 1})
    problem = writer.take_problem()
    assert problem is not None and "checkpoints" in str(problem)
    writer.sample("nvml", 0.7, [2.0, 1.0, 1.0])
    writer.close()
    assert len(RunReader(tmp_path / "run").poll().samples) == 2


def test_a_checkpoint_is_whole_and_says_what_it_covers(tmp_path: Path) -> None:
    writer = make(tmp_path / "run")
    writer.event("a", 1.0)
    writer.sample("nvml", 2.0, [1.0, 1.0, 1.0])
    writer.seal({"joules": float("nan"), "n": 3})
    writer.event("b", 3.0)
    writer.sample("nvml", 4.0, [2.0, 1.0, 1.0])
    writer.close()
    reader = RunReader(tmp_path / "run")
    checkpoint = reader.checkpoint()
    assert checkpoint is not None and checkpoint["ledger"] == {"joules": None, "n": 3} and checkpoint["t"] == 2.0
    reader.skip_to(checkpoint["number"], checkpoint["events_offset"])
    batch = reader.poll()
    assert [e["type"] for e in batch.events] == ["b"] and [s.t for s in batch.samples] == [4.0]


def test_the_manifest_is_whole_json_and_can_grow(tmp_path: Path) -> None:
    writer = make(tmp_path / "run", name="n", odd=float("inf"))
    writer.update_manifest(versions={"python": "3"})
    data = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (data["name"], data["odd"], data["versions"]) == ("n", None, {"python": "3"})
    assert data["schema"] == 1 and data["run_id"] == "run" and data["created_at"].endswith("Z")
    assert not list((tmp_path / "run").glob(".*"))
    writer.close()


def test_info_text_cannot_break_a_row(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", {})
    writer.open_stream("info", ["g0_throttle", "g0_memory_b"])
    writer.sample("info", 1.0, ['sw,power\n"cap"', 85899345920])
    writer.close()
    assert RunReader(tmp_path / "run").info() == {
        "t_s": 1.0,
        "g0_throttle": "sw power  cap ",
        "g0_memory_b": "85899345920",
    }
