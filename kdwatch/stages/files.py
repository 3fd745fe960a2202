"""Writing files so that a kill or a full disk leaves nothing half-written that looks whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kdwatch.stages.problem import StageProblem


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when the block has ended well.

    A killed process leaves its part under a name that the next one overwrites.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object whole, keys in the given order."""
    with whole_file(path) as f:
        f.write(json.dumps(value, indent=1, allow_nan=False).encode() + b"\n")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """An object from a file; StageProblem names the file where it is missing or torn."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StageProblem(f"{what}: {path} is missing: make it again") from None
    except (ValueError, OSError) as error:
        raise StageProblem(f"{what}: {path} cannot be read ({error}): make it again") from None
    if not isinstance(value, dict):
        raise StageProblem(f"{what}: {path} holds no object: make it again")
    return value


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def canonical_hash(value: Any) -> str:
    """SHA-256 over canonical JSON: sorted keys, no spaces, no NaN."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
