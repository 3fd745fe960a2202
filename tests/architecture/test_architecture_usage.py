"""Wrong usage of the command line: one line on stderr, nothing on stdout, exit code 2 (design, exit codes)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["repotr"], "kdwatch: no command 'repotr'; did you mean report: see `kdwatch --help`"),
        (["exec"], "kdwatch exec: Missing argument 'COMMAND...': see `kdwatch exec --help`"),
        (["report", "--jsn"], "kdwatch report: No such option '--jsn'"),
        (["ls", "surplus"], "kdwatch ls: Got unexpected extra argument (surplus): see `kdwatch ls --help`"),
    ],
)
def test_wrong_usage_is_one_line(args: list[str], text: str) -> None:
    done = subprocess.run([sys.executable, "-m", "kdwatch", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m kdwatch plan --frontier paper --budget 20kWh | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("RECOMMENDED")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kdwatch", "--help"], stdout=full, stderr=-1, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("kdwatch: output: No space left on device\n")
    assert "Traceback" not in done.stderr
