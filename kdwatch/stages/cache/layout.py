"""How one position's top-k is laid out, and what that costs in bytes.

Logits are stored as differences to the row's highest one, so that the likeliest ids carry the smallest rounding
error; the highest itself is 0 and is not stored. Ids are split into 16 low bits and, for larger vocabularies, one
plane of single bits for each further bit. Log-sum-exp is relative to the highest logit too: lse_T = logsumexp((z -
max z) / T), for each declared temperature T, and `tail` is the log of the mass outside the top-k at T.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

FORMAT = 1
TAIL_FLOOR = -60.0
"""Log of the smallest tail mass that is told apart from none."""
STEPS = 255
"""Highest 8-bit code of a quantised difference."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape of one cache."""

    top_k: int
    vocabulary: int
    """Real ids; every stored id is below it."""
    temperatures: tuple[float, ...]
    method: str = "top_k"
    quantised: bool = False

    @property
    def id_bits(self) -> int:
        """Bits of the largest id."""
        return max(1, (self.vocabulary - 1).bit_length())

    @property
    def planes(self) -> int:
        """Planes of single high bits."""
        return max(0, self.id_bits - 16)

    def arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Array name: (dtype, shape of one position)."""
        k, temperatures = self.top_k, len(self.temperatures)
        found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "ids": (np.dtype(np.uint8 if self.id_bits <= 8 else np.uint16), (k,))
        }
        if self.planes:
            found["high"] = (np.dtype(np.uint8), (self.planes, math.ceil(k / 8)))
        if self.method == "sample":
            found["values"] = (np.dtype(np.float16), (k,))
            found["counts"] = (np.dtype(np.uint8), (k,))
            found["lse"] = (np.dtype(np.float32), (temperatures,))
            return found
        found["values"] = (np.dtype(np.uint8 if self.quantised else np.float16), (k - 1,))
        if self.quantised:
            found["spread"] = (np.dtype(np.float16), ())
        found["lse"] = (np.dtype(np.float16 if self.quantised else np.float32), (temperatures,))
        found["tail"] = (np.dtype(np.float16), (temperatures,))
        return found

    @property
    def bytes_per_position(self) -> int:
        """Bytes of one response position in a shard."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.arrays().values())

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "temperatures": list(self.temperatures)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Layout:
        """From JSON form. KeyError or TypeError where it is none."""
        known = {name: value[name] for name in ("top_k", "vocabulary", "method", "quantised")}
        return cls(**known, temperatures=tuple(float(t) for t in value["temperatures"]))


@dataclass(frozen=True, slots=True)
class Positions:
    """N positions in full precision, before packing or after unpacking."""

    ids: np.ndarray
    """int64 [N, k], by falling logit; sampled ids in rising order, unused places with count 0."""
    values: np.ndarray
    """float32 [N, k]: logit minus the row's highest."""
    lse: np.ndarray
    """float32 [N, nT]"""
    tail: np.ndarray | None = None
    """float32 [N, nT]: log mass outside the top-k; None for samples."""
    counts: np.ndarray | None = None
    """int64 [N, k]: how often each id was drawn; None for a top-k."""


def pack(layout: Layout, rows: Positions) -> dict[str, np.ndarray]:
    """Arrays of a shard, [N, ...] each."""
    packed = _pack_ids(layout, rows.ids)
    if layout.method == "sample":
        assert rows.counts is not None
        packed["values"] = rows.values.astype(np.float16)
        packed["counts"] = rows.counts.astype(np.uint8)
        packed["lse"] = rows.lse.astype(np.float32)
        return packed
    assert rows.tail is not None
    packed["tail"] = np.maximum(rows.tail, TAIL_FLOOR).astype(np.float16)
    if not layout.quantised:
        packed["values"] = rows.values[:, 1:].astype(np.float16)
        packed["lse"] = rows.lse.astype(np.float32)
        return packed
    codes, spread = quantise(rows.values[:, 1:])
    packed["values"], packed["spread"] = codes, spread
    packed["lse"] = rows.lse.astype(np.float16)
    return packed


def unpack(layout: Layout, arrays: dict[str, np.ndarray]) -> Positions:
    """Positions of arrays that `pack` made."""
    ids = _unpack_ids(layout, arrays)
    lse = arrays["lse"].astype(np.float32)
    if layout.method == "sample":
        return Positions(ids, arrays["values"].astype(np.float32), lse, counts=arrays["counts"].astype(np.int64))
    rest = dequantise(arrays["values"], arrays["spread"]) if layout.quantised else arrays["values"].astype(np.float32)
    values = np.concatenate([np.zeros((len(ids), 1), dtype=np.float32), rest], axis=1)
    return Positions(ids, values, lse, tail=arrays["tail"].astype(np.float32))


def quantise(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes uint8, spread float16 [N]) of differences ≤ 0: d = -spread (code / 255)², finest near the "
    "highest logit."""
    widest = -differences.min(axis=1, initial=0.0)
    spread = np.nextafter(widest.astype(np.float16), np.float16(np.inf))
    share = np.sqrt(np.clip(-differences / spread.astype(np.float32)[:, None], 0, 1))
    return np.rint(share * STEPS).astype(np.uint8), spread


def dequantise(codes: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """float32 differences of `quantise`'s codes."""
    share = codes.astype(np.float32) / STEPS
    return -spread.astype(np.float32)[:, None] * share * share


def _pack_ids(layout: Layout, ids: np.ndarray) -> dict[str, np.ndarray]:
    if ids.size and int(ids.max()) >= layout.vocabulary:
        raise ValueError(f"id {int(ids.max())} is beyond the vocabulary of {layout.vocabulary}")
    low = layout.arrays()["ids"][0]
    packed = {"ids": (ids & 0xFFFF).astype(low)}
    if layout.planes:
        planes = [np.packbits((ids >> (16 + p)) & 1, axis=1) for p in range(layout.planes)]
        packed["high"] = np.stack(planes, axis=1)
    return packed


def _unpack_ids(layout: Layout, arrays: dict[str, np.ndarray]) -> np.ndarray:
    ids = arrays["ids"].astype(np.int64)
    for p in range(layout.planes):
        bits = np.unpackbits(arrays["high"][:, p], axis=1, count=layout.top_k)
        ids |= bits.astype(np.int64) << (16 + p)
    return ids
