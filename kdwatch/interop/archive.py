"""Compressed files as streams, with limits that end a decompression bomb in one line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Protocol

from kdwatch.rundir.errors import UsageProblem

MAX_RATIO = 250
"""Expanded over compressed size; the most monotonous power log met compresses about 40 times."""
FREE_BYTES = 32 << 20
"""Below this the ratio does not matter."""
MAX_BYTES = 16 << 30

READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class Stream(Protocol):
    """What is needed of a decompressor."""

    def read(self, size: int = ..., /) -> bytes: ...

    def close(self) -> None: ...


class LimitedReader:
    """A binary stream that knows how much came out of how much, and stops a bomb."""

    def __init__(self, path: Path, raw: IO[bytes], stream: Stream, compressed: bool) -> None:
        self._path, self._raw, self._stream, self._compressed = path, raw, stream, compressed
        self._size = path.stat().st_size
        self._out = 0

    def read(self, size: int) -> bytes:
        """Up to `size` bytes. Raises UsageProblem where the data is damaged or expands beyond reason."""
        try:
            data = self._stream.read(size)
        except READ_ERRORS as error:
            raise UsageProblem(f"{self._path}: cannot be read to its end ({_why(error)}); copy it again") from None
        self._out += len(data)
        if self._compressed and self._out > FREE_BYTES and self._out > MAX_RATIO * self._size:
            raise UsageProblem(f"{self._path}: expands more than {MAX_RATIO} times; unpack it yourself if you trust it")
        if self._compressed and self._out > MAX_BYTES:
            raise UsageProblem(f"{self._path}: expands to more than 16 GiB; unpack it and import the parts")
        return data

    def position(self) -> int:
        """Bytes of the file on disk that were used so far."""
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return self._out

    def __enter__(self) -> LimitedReader:
        return self

    def __exit__(self, *_: Any) -> None:
        self._stream.close()
        self._raw.close()


def open_maybe_compressed(path: Path) -> LimitedReader:
    """Open a plain, gzip, bzip2, xz or one-member zip file. Raises UsageProblem where that fails."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    magic = raw.read(6)
    raw.seek(0)
    try:
        stream = _decompressor(path, raw, magic)
    except READ_ERRORS as error:
        raw.close()
        raise UsageProblem(f"{path}: looks compressed and cannot be opened ({_why(error)}); copy it again") from None
    except UsageProblem:
        raw.close()
        raise
    return LimitedReader(path, raw, stream or raw, compressed=stream is not None)


def _decompressor(path: Path, raw: IO[bytes], magic: bytes) -> Stream | None:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if magic == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(raw)
    if magic.startswith(b"PK\x03\x04") or magic.startswith(b"PK\x05\x06"):
        return _zip_member(path, raw)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise UsageProblem(f"{path}: compressed with zstd, which is not read here; unpack it first")
    return None


def _zip_member(path: Path, raw: IO[bytes]) -> IO[bytes]:
    members = [m for m in zipfile.ZipFile(raw).infolist() if not m.is_dir()]
    if len(members) != 1:
        raise UsageProblem(f"{path}: a zip of {len(members)} files; unpack it and import the files")
    member = members[0]
    if member.flag_bits & 1:
        raise UsageProblem(f"{path}: the zip is encrypted; unpack it first")
    if member.filename.lower().endswith((".zip", ".gz", ".xz", ".bz2")):
        raise UsageProblem(f"{path}: an archive inside an archive; unpack it first")
    return zipfile.ZipFile(raw).open(member)


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
