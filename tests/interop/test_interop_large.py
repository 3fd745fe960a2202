"""A log of 2 GB: streamed in at most 300 MB, with progress, and a run that opens at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

MEASURE = """
import json, sys
from kdwatch.__main__ import main
sys.argv = ["kdwatch", *json.loads(sys.argv[1])]
try:
    main()
finally:
    print("RSS", next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM")), file=sys.stderr)
"""
LIMIT_KB = 300 * 1024


def kdwatch(home: Path, *args: str) -> tuple[str, str, int, float]:
    """stdout, stderr without the last line, peak memory in kB and seconds of a command."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(args)],
        env={**os.environ, "KDWATCH_HOME": str(home)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines, _, peak = done.stderr.rpartition("RSS ")
    return done.stdout, lines, int(peak), time.monotonic() - start


def write_log(path: Path, size: int) -> tuple[int, float]:
    """8 GPUs at 100, 200, ... 800 W every half second up to `size` bytes; returns ticks and total watts."""
    ticks = 0
    with path.open("w") as out:
        out.write("timestamp, index, power.draw [W], utilization.gpu [%]\n")
        while out.tell() < size:
            block = []
            for _ in range(2000):
                seconds = ticks // 2
                day, rest = divmod(seconds, 86_400)
                clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{500 * (ticks % 2):03d}"
                stamp = f"2026/{1 + day // 28:02d}/{1 + day % 28:02d} {clock}"
                block += [f"{stamp}, {gpu}, {100 * (gpu + 1)}.00 W, 99 %\n" for gpu in range(8)]
                ticks += 1
            out.write("".join(block))
    return ticks, 3600.0


def check(tmp_path: Path, size: int) -> None:
    log = tmp_path / "power.csv"
    ticks, watts = write_log(log, size)
    out, progress, peak, _ = kdwatch(tmp_path / "home", "import", str(log), "--json")
    log.unlink()
    (entry,) = json.loads(out)["files"]
    assert peak <= LIMIT_KB, f"{peak / 1024:.0f} MB"
    assert entry["n_samples"] == 8 * ticks
    expected = watts * entry["duration_s"]  # months of 28 days leave gaps that are bridged at constant power
    assert entry["total_energy_j"] == pytest.approx(expected, rel=1e-9)
    if size > 64 << 20:
        assert "reading power.csv" in progress and "%" in progress
    text, _, peak, _ = kdwatch(tmp_path / "home", "report", "last", "--json")
    assert json.loads(text)["total_j"] == pytest.approx(expected, rel=1e-6)
    assert peak <= LIMIT_KB


def test_four_megabytes(tmp_path: Path) -> None:
    """The same in small: the series spill to disk, the run is sealed several times."""
    check(tmp_path, 4 << 20)


@pytest.mark.slow  # about 10 minutes: writes and reads 2 GB
def test_two_gigabytes_in_300_megabytes(tmp_path: Path) -> None:
    check(tmp_path, 2 << 30)
