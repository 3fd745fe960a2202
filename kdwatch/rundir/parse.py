"""Reading text that may be torn, truncated or foreign: lines of JSON and rows of CSV."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from operator import lt
from pathlib import Path
from typing import Any, NamedTuple

from kdwatch.rundir.layout import split_column


class Sample(NamedTuple):
    """One reading of one device; None where a field was not read."""

    t: float
    """Run time in seconds."""
    key: str
    counter_j: float | None
    power_w: float | None
    average_w: float | None


def parse_event(line: bytes) -> dict[str, Any] | None:
    """One event, or None where the line is none (torn, NUL bytes, not an object, no type or time)."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return None
    t = data.get("t")
    if isinstance(t, bool) or not isinstance(t, int | float) or not math.isfinite(t):
        return None
    return data


def number(text: str) -> float | None:
    """A finite number, or None for an empty or damaged cell."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class RowParser:
    """Rows of one segment, by the segment's own header."""

    def __init__(self, header: str) -> None:
        self.columns = [c.strip() for c in header.strip("\r\n").split(",")]
        places: dict[str, list[int | None]] = {}
        for at, column in enumerate(self.columns):
            if at and (parts := split_column(column)):
                key, suffix = parts
                slot = {"_j": 0, "_w": 1, "_avg_w": 2}[suffix]
                places.setdefault(key, [None, None, None])[slot] = at
        self.places = [(key, j, w, a) for key, (j, w, a) in places.items()]

    def valid(self) -> bool:
        """Whether the header is one of ours."""
        return self.columns[0] == "t_s"

    def parse(self, line: str) -> tuple[float, list[str]] | None:
        """Time and cells of a row, or None where the row is torn."""
        cells = line.split(",")
        if len(cells) != len(self.columns):
            return None
        t = number(cells[0])
        return None if t is None else (t, cells)

    def samples(self, t: float, cells: list[str]) -> Iterator[Sample]:
        """The row's readings, one a device; a device without any reading in this row is left out."""
        for key, j, w, a in self.places:
            counter = number(c) if j is not None and (c := cells[j]) else None
            power = number(c) if w is not None and (c := cells[w]) else None
            average = number(c) if a is not None and (c := cells[a]) else None
            if counter is not None or power is not None or average is not None:
                yield Sample(t, key, counter, power, average)


def read_lines(path: Path) -> Iterator[str]:
    """Whole lines of a plain or gzip file, as far as it can be read; a torn last line is left out."""
    try:
        data = read_bytes(path)
    except OSError:
        return
    end = data.rfind(b"\n") + 1
    yield from data[:end].decode("utf-8", "replace").split("\n")[:-1]


def read_bytes(path: Path) -> bytes:
    """A file's bytes, unpacked; of a truncated gzip, what can be unpacked. Raises OSError."""
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        return _unpack_what_is_whole(raw)


def _unpack_what_is_whole(raw: bytes) -> bytes:
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    parts = []
    for at in range(0, len(raw), 4096):
        try:
            parts.append(unpack.decompress(raw[at : at + 4096]))
        except zlib.error:
            break
    return b"".join(parts)


def parse_rows(lines: Iterable[str]) -> Iterator[tuple[RowParser, float, list[str]]]:
    """Rows under their header; torn rows and rows before a header are skipped."""
    parser: RowParser | None = None
    for line in lines:
        if parser is None or line.startswith("t_s,"):
            candidate = RowParser(line)
            parser = candidate if candidate.valid() else parser
            continue
        if row := parser.parse(line):
            yield parser, *row


def full_columns(header: str, rows: list[str]) -> list[tuple[str, list[float], list[float]]] | None:
    """Device, run times and watts of each device, where every row has a power of each and times rise; None where
    rows have to be read one by one."""
    parser = RowParser(header)
    width = len(parser.columns)
    if any(w is None for _, _, w, _ in parser.places) or set(map(str.count, rows, repeat(","))) != {width - 1}:
        return None
    cells = ",".join(rows).split(",")
    try:
        times = list(map(float, cells[::width]))
        found = [(key, times, list(map(float, cells[w::width]))) for key, _, w, _ in parser.places if w is not None]
    except ValueError:
        return None
    finite = all(math.isfinite(sum(watts)) for _, _, watts in found) and math.isfinite(sum(times))
    return found if finite and all(map(lt, times, islice(times, 1, None))) else None
