"""Runs of days: size on disk, time and memory to open (design: "Where runs live")."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from big_run import HZ, columns, devices, readings, totals_expected, write_big_run

from kdwatch.ledger.core import Ledger
from kdwatch.ledger.load import feed, load_ledger, open_live
from kdwatch.rundir.delete import size_bytes
from kdwatch.rundir.reader import RunReader
from kdwatch.rundir.writer import RunWriter

OPEN = """
import json, sys, time
from pathlib import Path
start = time.process_time()
from kdwatch.ledger.load import feed, open_live
imported = time.process_time() - start
begin = time.process_time()
reader, ledger = open_live(Path(sys.argv[1]))
feed(ledger, reader.poll())
totals = ledger.totals()
history = reader.power_history(1000)
opened = time.process_time() - begin
loop = time.process_time()
sum(float(str(k * 0.37)) for k in range(1_000_000))
yardstick = time.process_time() - loop
# not ru_maxrss: that of a forked child begins with its parent's
status = Path("/proc/self/status").read_text()
peak_mb = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([opened, yardstick, peak_mb, totals.total_j, {k: len(v) for k, v in history.items()}, totals.status]))
"""


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_big_run(tmp_path_factory.mktemp("big") / "run")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_three_days_open_quickly_in_little_memory(three_days: Path) -> None:
    """<= 1 s and <= 300 MB. The limit is in units of a fixed loop that takes about 0.3 s on the slowest machine in
    use: opening may cost three of them."""
    done = subprocess.run([sys.executable, "-c", OPEN, str(three_days)], capture_output=True, text=True, check=True)
    opened, yardstick, peak_mb, total, points, status = json.loads(done.stdout)
    assert opened <= 4 * yardstick
    assert peak_mb <= 300
    assert status == "completed"
    assert total == pytest.approx(totals_expected(3.0, 8, 590.0), rel=1e-4)
    assert set(points) == {f"g{i}" for i in range(8)} and all(900 <= n <= 1000 for n in points.values())


def test_opening_reads_no_sealed_segment(three_days: Path, tmp_path: Path) -> None:
    """Junk in the sealed segments is not even noticed."""
    run = write_big_run(tmp_path / "run", days=0.1, tail_s=30.0)
    before = load_ledger(run).totals()
    for sealed in (run / "samples").glob("*.gz"):
        sealed.unlink()
        sealed.write_bytes(b"junk")
    assert load_ledger(run).totals() == before


def test_a_reader_that_follows_gets_the_same_as_one_that_loads(tmp_path: Path) -> None:
    run = write_big_run(tmp_path / "run", days=0.05, gpus=2, tail_s=60.0)
    reader, ledger = open_live(run)
    feed(ledger, reader.poll())
    feed(ledger, reader.poll())
    assert ledger.totals() == load_ledger(run).totals()


def test_a_day_of_eight_boards_takes_at_most_150_mb(tmp_path: Path) -> None:
    """One segment of ten minutes with noise in every digit, its checkpoint and rollup, times 144."""
    writer = RunWriter.create(tmp_path / "run", {"devices": devices(8), "stages": ["s"]})
    ledger = Ledger(writer.manifest)
    writer.open_stream("nvml", columns(8))
    for k in range(int(600 * HZ)):
        row = readings(k / HZ, 8)
        writer.sample("nvml", k / HZ, row)
        if k > 500 * HZ:
            for i in range(8):
                ledger.sample(k / HZ, f"g{i}", *row[3 * i : 3 * i + 3])
    writer.seal(ledger.state())
    writer.close()
    size = size_bytes(tmp_path / "run")
    assert (tmp_path / "run/samples/nvml-000001.csv.gz").exists()
    assert size > 1e5 and size * 144 <= 150e6


def test_power_history_knows_every_bucket_of_a_short_run(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", {"devices": devices(1)})
    writer.open_stream("nvml", columns(1))
    for k in range(100):
        writer.sample("nvml", k / 10, [30.0 * k, 300.0 + k, 300.0])
    writer.close()
    buckets = RunReader(tmp_path / "run").power_history(10)["g0"]
    assert len(buckets) == 10
    assert (buckets[0].low_w, buckets[-1].high_w) == (300.0, 399.0)
    assert sum(b.mean_w * b.count for b in buckets) == pytest.approx(sum(300.0 + k for k in range(100)))
