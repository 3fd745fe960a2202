"""Archives, bombs and strange files: each ends in a value or in one clear line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from pathlib import Path

import pytest

from kdwatch.interop.formats.harness_dir import read_directory
from kdwatch.interop.importing import expand
from kdwatch.interop.load import load_log
from kdwatch.interop.model import ImportOptions
from kdwatch.rundir.errors import UsageProblem

TEXT = b"timestamp,power_w\n2026-01-03T15:36:00Z,100\n2026-01-03T15:36:02Z,100\n"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_logs_are_read(tmp_path: Path, pack) -> None:
    path = tmp_path / "log.csv.packed"
    path.write_bytes(pack(TEXT))
    assert load_log(path).total_j == pytest.approx(200.0)


def test_zip_of_one_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../etc/log.csv", TEXT)
    assert load_log(path).total_j == pytest.approx(200.0)
    assert not (tmp_path.parent.parent / "etc").exists()


def one_line(path: Path, says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        load_log(path)
    assert says in str(caught.value) and "\n" not in str(caught.value) and path.name in str(caught.value)


def test_gzip_bomb_stops_early(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as out:
        out.write(TEXT)
        for _ in range(48):
            out.write(b"\n" * (1 << 20))
    one_line(path, "expands more than")


def test_zip_bomb_stops_early(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("log.csv", "w") as out:
        out.write(TEXT)
        for _ in range(48):
            out.write(b"0" * (1 << 20))
    one_line(path, "expands more than")


def test_archives_that_are_not_one_log(tmp_path: Path) -> None:
    several = tmp_path / "several.zip"
    with zipfile.ZipFile(several, "w") as archive:
        archive.writestr("a.csv", TEXT)
        archive.writestr("b.csv", TEXT)
    one_line(several, "zip of 2 files")
    nested = tmp_path / "nested.zip"
    with zipfile.ZipFile(nested, "w") as archive:
        archive.writestr("inner.zip", several.read_bytes())
    one_line(nested, "archive inside an archive")
    for name, data in (
        ("torn.gz", gzip.compress(TEXT)[:-12]),
        ("torn.zip", several.read_bytes()[:60]),
        ("x.gz", b"\x1f\x8b\x08abc"),
    ):
        (tmp_path / name).write_bytes(data)
        one_line(tmp_path / name, "cannot be")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    one_line(tmp_path / "pipe.csv", "not a regular file")
    one_line(tmp_path / "missing.csv", "cannot be read")
    (tmp_path / "secret.csv").write_bytes(TEXT)
    (tmp_path / "empty.csv").write_bytes(b"")
    one_line(tmp_path / "empty.csv", "empty")
    with pytest.raises(UsageProblem):
        load_log(Path("a\0b"))


def test_one_endless_line_needs_no_endless_memory(tmp_path: Path) -> None:
    path = tmp_path / "line.csv"
    path.write_bytes(b"timestamp,power_w\n" + b"9" * (8 << 20))
    one_line(path, "power")


def test_links_in_directories_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / "loop").symlink_to(inside)
    (inside / "log.csv").write_bytes(TEXT)
    (inside / "passwd.csv").symlink_to("/etc/passwd")
    assert list(expand([inside])) == [inside / "log.csv"]
    assert expand([tmp_path / "own.csv", inside]) == {tmp_path / "own.csv": True, inside / "log.csv": False}
    assert list(expand([tmp_path / "own.csv", inside])) == [tmp_path / "own.csv", inside / "log.csv"]
    with pytest.raises(UsageProblem, match="no stage of the harness"):
        read_directory(inside, ImportOptions())


def test_escape_codes_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from kdwatch.cli.import_ import import_

    path = tmp_path / "evil.csv"
    path.write_text(
        "timestamp,gpu,power_w\n" + "".join(f"2026-01-03T15:36:0{n}Z,\x1b]0;owned\x07\x1b[31m0,100\n" for n in range(3))
    )
    (tmp_path / "\x1b[2Jname.csv").write_text("timestamp,\x1b[31mtemperature\n2026-01-03T15:36:00Z,1\n")
    done = CliRunner().invoke(import_, [str(path), str(tmp_path / "\x1b[2Jname.csv")])
    assert done.exit_code == 2
    assert "\x1b" not in done.output + done.stderr


ENDLESS = [
    "Performance counter stats for" + " " * 400_000 + "x",
    "<not counted> Joules power/energy-pkg/\n" + "1 " * 200_000 + "Joules",
    "Cumulative Processor Energy\nA" + " " * 400_000 + "!",
    "carbontracker version\nEnergy: " + " " * 400_000 + "x",
    "timestamp,power_w\n1" + " " * 400_000 + "!,12:30" + " " * 400_000 + "x",
    "timestamp,power_w\n2026-01-03T15:36:00Z," + "1 " * 200_000 + "!",
    "# TYPE x gauge\nx{" + "}" * 400_000,
    ",J," * 150_000 + ",Joules,power/energy-pkg/",
    "timestamp," + "power" * 100_000,
    "a,b;c|d" * 60_000,
    '"' * 400_000 + ",power_w",
]
"""Lines on which a careless pattern takes hours: each is read in a moment or the test never ends."""


@pytest.mark.parametrize("text", ENDLESS, ids=range(len(ENDLESS)))
def test_no_line_hangs_a_reader(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    one_line(path, "log.txt")
