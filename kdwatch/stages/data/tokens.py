"""The `dataset` artifact: ragged rows of token ids with their targets, as memory-mapped arrays.

Files: `ids.npy` int32 [tokens], `targets.npy` bool [tokens], `offsets.npy` int64 [rows + 1], `held_out.npy` bool
[rows], `tasks.json`, and `meta.json`, written last: a directory without it is not whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kdwatch.stages.data.chat import Encoded
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.files import read_json, whole_file, write_json
from kdwatch.stages.problem import StageProblem

FORMAT = 1
NAMES = ("ids", "targets", "offsets", "held_out")


@dataclass(frozen=True)
class TokenSet:
    """Rows of tokens; row r is `ids[offsets[r]:offsets[r + 1]]`."""

    ids: np.ndarray
    targets: np.ndarray
    offsets: np.ndarray
    held_out: np.ndarray
    meta: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, r: int) -> tuple[np.ndarray, np.ndarray]:
        """(ids int32, targets bool) of one row."""
        span = slice(int(self.offsets[r]), int(self.offsets[r + 1]))
        return self.ids[span], self.targets[span]

    def prompt(self, r: int) -> np.ndarray:
        """Ids before the first target."""
        ids, targets = self.row(r)
        return ids[: int(np.argmax(targets))]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64."""
        return np.diff(self.offsets)

    @property
    def response_counts(self) -> np.ndarray:
        """Target positions of each row, int64."""
        sums = np.concatenate([[0], np.cumsum(self.targets, dtype=np.int64)])
        return sums[self.offsets[1:]] - sums[self.offsets[:-1]]

    def training_rows(self) -> np.ndarray:
        """Row numbers that are trained on."""
        return np.flatnonzero(~self.held_out)

    def validation_rows(self) -> np.ndarray:
        """Row numbers that are held out for early stopping."""
        return np.flatnonzero(self.held_out)

    def content_hash(self) -> str:
        """SHA-256 over ids, targets and row bounds: equal hashes mean the same positions in the same order."""
        digest = hashlib.sha256()
        for array in (self.ids, self.targets, self.offsets):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def pack_rows(rows: Sequence[Encoded], held_out: np.ndarray) -> TokenSet:
    """Arrays of encoded rows."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(r.ids) for r in rows], out=offsets[1:])
    ids = np.concatenate([np.asarray(r.ids, dtype=np.int32) for r in rows])
    targets = np.concatenate([np.asarray(r.targets, dtype=bool) for r in rows])
    return TokenSet(ids, targets, offsets, held_out)


def write_tokens(
    folder: Path, rows: Sequence[Encoded], held_out: np.ndarray, tokenizer: TextTokenizer, counts: dict[str, Any]
) -> TokenSet:
    """Write a data set; `counts` goes into `meta.json` as it is."""
    packed = pack_rows(rows, held_out)
    for name in NAMES:
        _save_array(folder / f"{name}.npy", getattr(packed, name))
    write_json(folder / "tasks.json", {"tasks": [r.task for r in rows]})
    meta = {
        "format": FORMAT,
        "rows": len(packed),
        "tokens": len(packed.ids),
        "response_tokens": int(packed.targets.sum()),
        "content": packed.content_hash(),
        "vocabulary": {
            "size": tokenizer.size,
            "map": tokenizer.map_hash,
            "eos": tokenizer.eos_id,
            "bos": tokenizer.bos_id,
            "pad": tokenizer.pad_id,
        },
        **counts,
    }
    write_json(folder / "meta.json", meta)
    return TokenSet(packed.ids, packed.targets, packed.offsets, packed.held_out, meta)


def _save_array(path: Path, array: np.ndarray) -> None:
    """As numpy.save, whose error does not say so when the disk is full."""
    array = np.ascontiguousarray(array)
    with whole_file(path) as f:
        np.lib.format.write_array_header_1_0(f, np.lib.format.header_data_from_array_1_0(array))
        f.write(array.data)


def read_tokens(folder: Path, *, verify: bool = True) -> TokenSet:
    """Open a data set, memory-mapped. StageProblem where it is missing, torn, or not what it says."""
    meta = read_json(folder / "meta.json", "data set")
    if meta.get("format") != FORMAT:
        raise StageProblem(
            f"data set {folder} has format {meta.get('format')}, this kdwatch reads {FORMAT}: make it again"
        )
    try:
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in NAMES}
    except (OSError, ValueError) as error:
        raise StageProblem(f"data set {folder} is torn ({error}): make it again") from None
    found = TokenSet(**arrays, meta=meta)
    if verify and found.content_hash() != meta["content"]:
        raise StageProblem(f"data set {folder} is not what its meta.json says: make it again")
    return found
