"""Following files that grow: events and the segments of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kdwatch.rundir.parse import RowParser, Sample, parse_event, read_bytes


class EventTail:
    """New events of an append-only file since the last read. A line counts once its line break is there."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.damaged = 0
        """Lines that could not be read so far."""

    def read(self) -> list[dict[str, Any]]:
        """Events since the last read, in the order written."""
        data = _from(self.path, self.offset)
        end = data.rfind(b"\n") + 1
        self.offset += end
        events = []
        for line in data[:end].split(b"\n"):
            if event := parse_event(line):
                events.append(event)
            elif line.strip():
                self.damaged += 1
        return events


class StreamTail:
    """New readings of one stream since the last read, across segments and their sealing."""

    def __init__(self, after: int = 0) -> None:
        self._number = after
        """Segment being read; smaller ones are done."""
        self._offset = 0
        """Bytes of that segment's text already read."""
        self._parser: RowParser | None = None
        self._begun = False

    def read(self, segments: dict[int, Path]) -> list[Sample]:
        """Readings since the last read; `segments` is the stream's present files by number."""
        samples: list[Sample] = []
        for number in sorted(n for n in segments if n > self._number or (self._begun and n == self._number)):
            if number != self._number or not self._begun:
                self._number, self._offset, self._parser, self._begun = number, 0, None, True
            self._read_segment(segments[number], samples)
        return samples

    def _read_segment(self, path: Path, samples: list[Sample]) -> None:
        data = self._new_text(path)
        end = data.rfind(b"\n") + 1
        self._offset += end
        for line in data[:end].decode("utf-8", "replace").split("\n")[:-1]:
            if self._parser is None or line.startswith("t_s,"):
                parser = RowParser(line)
                self._parser = parser if parser.valid() else self._parser
            elif row := self._parser.parse(line):
                samples.extend(self._parser.samples(*row))

    def _new_text(self, path: Path) -> bytes:
        try:
            if path.suffix == ".gz":
                return read_bytes(path)[self._offset :]
            return _from(path, self._offset)
        except OSError:
            sealed = path.with_name(path.name + ".gz")  # sealed between listing and reading
            return read_bytes(sealed)[self._offset :] if path.suffix != ".gz" and sealed.exists() else b""


def _from(path: Path, offset: int) -> bytes:
    """Bytes of a file from `offset` on. FileNotFoundError only where the caller can try another form."""
    if path.suffix == ".jsonl" and not path.exists():
        return b""
    with path.open("rb") as f:
        f.seek(offset)
        return f.read()
