"""Shards on disk: one safetensors file each, memory-mapped when read.

The header is parsed here (8 bytes of length, JSON, then raw arrays), because reading scattered rows needs a memory
map of each array, which the library does not give.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kdwatch.stages.files import read_json, sha256_file, whole_file, write_json
from kdwatch.stages.problem import StageProblem

HEADER_LIMIT = 1 << 20
DTYPES = {"U8": np.uint8, "U16": np.uint16, "F16": np.float16, "F32": np.float32}


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard as the manifest knows it."""

    name: str
    first_row: int
    """Row of the data set with which it begins."""
    rows: int
    positions: int
    sha256: str
    stats: dict[str, Any]

    @classmethod
    def read(cls, folder: Path, name: str) -> ShardEntry | None:
        """From the small file beside a finished shard; None where either is missing or torn."""
        note = folder / f"{name}.json"
        path = folder / name
        if not note.is_file() or not path.is_file():
            return None
        try:
            value = read_json(note, "shard")
            entry = cls(**{key: value[key] for key in cls.__slots__})
        except (StageProblem, KeyError):
            return None
        return entry if sha256_file(path) == entry.sha256 else None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}


def write_shard(
    folder: Path, name: str, arrays: dict[str, np.ndarray], first_row: int, rows: int, stats: dict[str, Any]
) -> ShardEntry:
    """Write one shard and then its note: a shard without a note is made again after a kill."""
    from safetensors.numpy import save

    path = folder / name
    with whole_file(path) as f:
        f.write(save({key: np.ascontiguousarray(value) for key, value in arrays.items()}))
    entry = ShardEntry(name, first_row, rows, len(arrays["ids"]), sha256_file(path), stats)
    write_json(folder / f"{name}.json", entry.as_dict())
    return entry


def map_shard(path: Path) -> dict[str, np.ndarray]:
    """Read-only memory maps of a shard's arrays. StageProblem where the file is torn."""
    try:
        with path.open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if not 2 <= length <= HEADER_LIMIT:
                raise ValueError("no header")
            header = json.loads(f.read(length))
        header.pop("__metadata__", None)
        return {name: _map(path, 8 + length, entry) for name, entry in header.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageProblem(f"logit cache: {path} is torn ({error}): remove the artifact and cache again") from None


def _map(path: Path, base: int, entry: dict[str, Any]) -> np.ndarray:
    begin, _ = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if 0 in shape:
        return np.zeros(shape, dtype=DTYPES[entry["dtype"]])
    return np.memmap(path, dtype=DTYPES[entry["dtype"]], mode="r", offset=base + begin, shape=shape)
