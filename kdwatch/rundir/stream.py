"""One stream of samples: rows of CSV text, buffered, in numbered segments."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kdwatch.rundir.diskfile import AppendFile
from kdwatch.rundir.layout import SAMPLES, segment_name


def cell(value: object) -> str:
    """One CSV cell: a number with at most three decimals, text without separators, empty for unknown."""
    if value is None:
        return ""
    if isinstance(value, float):
        text = f"{value:.3f}"
        return "" if "n" in text else text
    return "".join(" " if c in ',"\r\n\0' else c for c in str(value))


class SampleStream:
    """The open segment of one stream. Rows wait in memory until `flush`."""

    def __init__(
        self, run: Path, name: str, columns: Sequence[str], number: int, on_error: Callable[[Path, OSError], None]
    ) -> None:
        self.name = name
        self.columns = [c for c in columns if c != "t_s"]
        self._run = run
        self._on_error = on_error
        self._rows: list[str] = []
        self.newest = 0.0
        """Run time of the newest row."""
        self._open(number)

    def _open(self, number: int) -> None:
        path = self._run / SAMPLES / segment_name(self.name, number)
        self._file = AppendFile(path, self._on_error)
        self._begun = False

    def add(self, t_s: float, values: Sequence[object]) -> None:
        """Add one row: `values` in the order of the columns."""
        text = ",".join(["%.3f" % v if v.__class__ is float else cell(v) for v in values])  # noqa: UP031  (f-string is slower here)
        if "nan" in text or "inf" in text:
            text = ",".join([cell(v) for v in values])
        self._begin()
        self._rows.append(f"{t_s:.6f},{text}\n")
        self.newest = t_s

    def add_rows(self, times: Sequence[float], texts: Sequence[str]) -> None:
        """Add rows whose cells are text already, separated by commas."""
        if times:
            self._begin()
            self._rows += ["%.6f,%s\n" % row for row in zip(times, texts, strict=True)]  # noqa: UP031
            self.newest = times[-1]

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._rows.append(",".join(["t_s", *self.columns]) + "\n")

    def flush(self) -> None:
        """Hand all rows to the file in one write."""
        if self._rows:
            data = "".join(self._rows).encode()
            self._rows.clear()
            self._file.write(data)
        else:
            self._file.retry()

    @property
    def waiting(self) -> bool:
        """Whether the disk has refused rows that are still in memory."""
        return self._file.waiting

    def rotate(self, number: int) -> Path:
        """Close the segment and open segment `number`; returns the closed file, which is there if it has rows."""
        self.flush()
        self._file.close()
        closed = self._file.path
        self._open(number)
        return closed

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()


def seal_segment(path: Path) -> Path:
    """Replace a closed segment by its gzip: written aside, synced, renamed; then the plain file goes.

    Raises OSError; the plain file then stays. Readers accept both forms at any moment.
    """
    sealed = path.with_name(path.name + ".gz")
    part = path.with_name(f".{path.name}.gz.part")
    try:
        with part.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as z:
            z.write(path.read_bytes())
            z.close()
            raw.flush()
            os.fsync(raw.fileno())
        part.chmod(0o600)
        part.replace(sealed)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
    return sealed
