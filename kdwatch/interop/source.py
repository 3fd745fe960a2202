"""Any file as clean lines of text: encodings, NUL bytes, line ends, compression, and limits against hostile input."""

from __future__ import annotations

import codecs
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from kdwatch.interop.archive import open_maybe_compressed
from kdwatch.interop.model import LogProblem
from kdwatch.rundir.errors import UsageProblem

CHUNK = 1 << 18
HEAD = 1 << 16
MAX_LINE = 1 << 20
"""A longer line is cut there: no log has one, and memory must stay bounded."""
SHORT_LINE = 8192
MOST_ROWS = 50_000
"""Rows of formats whose rows are runs, jobs or windows."""
MAX_DOCUMENT = 32 << 20
"""Largest file, in bytes of text, that is read as one JSON document."""

BOMS = (
    (codecs.BOM_UTF8, "utf-8", "utf-8-bom"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le-bom"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be-bom"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le-bom"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be-bom"),
)

BLANK_LINES = re.compile("\n\n+")
"""Blank lines mean nothing in any format; a compressed file may hold billions."""

Watch = Callable[[int, int], None]
"""Called with bytes read and bytes in all while a file is read."""


class Lines:
    """Lines of a file, one after the other or what is left of them in blocks."""

    def __init__(self, blocks: Iterator[list[str]]) -> None:
        self._blocks = blocks
        self._begun: Iterator[str] = iter(())

    def __iter__(self) -> Iterator[str]:
        """One line after the other; goes on where the last iteration stopped."""
        yield from self._begun
        for block in self._blocks:
            self._begun = iter(block)
            yield from self._begun

    def blocks(self) -> Iterator[list[str]]:
        """What is left, some thousand lines at a time."""
        yield list(self._begun)
        yield from self._blocks


class TextSource:
    """One regular file, read as text, once or again."""

    def __init__(self, path: Path, watch: Watch | None = None) -> None:
        """Raises UsageProblem where there is no such file, it is not a regular file, or it cannot be read."""
        self.path = path
        self._watch = watch
        self.size = _size_of_regular_file(path)
        self.crlf_lines = 0
        self.nul_chars = 0
        self.undecodable = 0
        self.long_lines = 0
        self.ends_with_newline = True
        first = self._first_bytes()
        self.codec, self.encoding, self._skip = _encoding(first)
        self.head = _clean(first[self._skip :].decode(self.codec, "replace"))
        """The first 64 KiB as text, for detection."""

    def _first_bytes(self) -> bytes:
        with open_maybe_compressed(self.path) as file:
            return file.read(HEAD)

    def lines(self, most: int | None = None) -> Lines:
        """Lines without their ends, NULs taken out. Starts again from the top at each call.

        Reading them raises LogProblem above `most` lines: for formats whose rows are runs or jobs, kept in memory.
        """
        self.crlf_lines = self.nul_chars = self.undecodable = self.long_lines = 0
        self.ends_with_newline = True
        return Lines(self._blocks() if most is None else self._at_most(most))

    def _at_most(self, most: int) -> Iterator[list[str]]:
        count = 0
        for block in self._blocks():
            count += len(block)
            if count > most:
                raise LogProblem(f"{self.path}: more than {most} lines, too many runs for one file; split it")
            yield block

    def _blocks(self) -> Iterator[list[str]]:
        rest = ""
        for text in self._chunks():
            rest += text
            if len(rest) > MAX_LINE and "\n" not in rest:
                self.long_lines += 1
                rest = rest[:MAX_LINE]
                continue
            *whole, rest = rest.split("\n")
            yield whole
        if rest:
            self.ends_with_newline = False
            yield [rest]

    def short_lines(self) -> Iterator[str]:
        """Lines of up to 8192 characters, for readers whose patterns must not meet endless ones."""
        return (line for line in self.lines() if len(line) <= SHORT_LINE)

    def text(self) -> str:
        """The whole file. Raises UsageProblem above 32 MiB."""
        parts, length = [], 0
        for chunk in self._chunks():
            length += len(chunk)
            if length > MAX_DOCUMENT:
                raise UsageProblem(f"{self.path}: larger than 32 MiB, too large for one document; split it")
            parts.append(chunk)
        return "".join(parts)

    def _chunks(self) -> Iterator[str]:
        """Decoded text with `\\n` as the only line end."""
        decoder = codecs.getincrementaldecoder(self.codec)("replace")
        held = ""
        with open_maybe_compressed(self.path) as file:
            file.read(self._skip)
            while raw := file.read(CHUNK):
                if self._watch:
                    self._watch(file.position(), self.size)
                text = held + decoder.decode(raw)
                held = "\r" if text.endswith("\r") else ""
                yield self._tidy(text[: len(text) - len(held)])
        tail = held + decoder.decode(b"", final=True)
        if tail:
            yield self._tidy(tail)

    def _tidy(self, text: str) -> str:
        self.crlf_lines += text.count("\r\n")
        self.nul_chars += text.count("\0")
        self.undecodable += text.count("�")
        return _clean(text)


def _clean(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        text = text.replace("\0", "")
    return BLANK_LINES.sub("\n", text) if "\n\n" in text else text


def _size_of_regular_file(path: Path) -> int:
    try:
        found = path.stat()
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except ValueError as error:
        raise UsageProblem(f"{str(path)!r}: not a path ({error})") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageProblem(f"{path}: not a regular file; give a log file or a harness directory")
    if found.st_size == 0:
        raise LogProblem(f"{path}: the file is empty", no_log=True, format=None)
    return found.st_size


def _encoding(first: bytes) -> tuple[str, str, int]:
    """Codec, the name shown, and the length of the byte order mark."""
    for bom, codec, shown in BOMS:
        if first.startswith(bom):
            return codec, shown, len(bom)
    if len(first) >= 4:
        even, odd = first[0::2].count(0) / len(first[0::2]), first[1::2].count(0) / len(first[1::2])
        if odd > 0.6 and even < 0.1:
            return "utf-16-le", "utf-16-le", 0
        if even > 0.6 and odd < 0.1:
            return "utf-16-be", "utf-16-be", 0
    try:
        codecs.getincrementaldecoder("utf-8")().decode(first)
    except UnicodeDecodeError:
        return "cp1252", "cp1252", 0
    return "utf-8", "utf-8", 0
