"""Reading a logit cache: rows of any order, one declared temperature."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kdwatch.stages.cache.layout import FORMAT, Layout, Positions, unpack
from kdwatch.stages.cache.shards import map_shard
from kdwatch.stages.data.tokens import TokenSet
from kdwatch.stages.files import read_json, sha256_file
from kdwatch.stages.problem import StageProblem

AGAIN = "make it again with teacher.cache_logits"


class LogitCache:
    """A finished cache that belongs to one data set; arrays stay on disk until rows are asked for."""

    def __init__(self, folder: Path, data: TokenSet, *, verify: bool = False) -> None:
        """Open `folder` for `data`; `verify` reads every byte and compares checksums.

        Raises StageProblem where it is torn, of another format, or was made from other token ids.
        """
        self.folder = folder
        self.meta = read_json(folder / "manifest.json", "logit cache")
        if self.meta.get("format") != FORMAT:
            raise StageProblem(f"logit cache {folder} has format {self.meta.get('format')}, known is {FORMAT}: {AGAIN}")
        if self.meta["data"] != data.meta["content"]:
            raise StageProblem(
                f"logit cache {folder} was made from other token ids than this data set "
                f"(data, template or tokenizer changed): {AGAIN}"
            )
        self.layout = Layout.from_dict(self.meta["layout"])
        self._firsts = [s["first_row"] for s in self.meta["shards"]]
        self._maps: dict[int, dict[str, np.ndarray]] = {}
        self._starts = np.concatenate([[0], np.cumsum(data.response_counts)])
        self._check_sizes(data, verify)

    def _check_sizes(self, data: TokenSet, verify: bool) -> None:
        positions = sum(s["positions"] for s in self.meta["shards"])
        if positions != int(self._starts[-1]):
            raise StageProblem(
                f"logit cache {self.folder} holds {positions} of {int(self._starts[-1])} positions: {AGAIN}"
            )
        for shard in self.meta["shards"] if verify else ():
            if sha256_file(self.folder / shard["name"]) != shard["sha256"]:
                raise StageProblem(f"logit cache: {shard['name']} is not what was written (checksum): {AGAIN}")

    def temperature_index(self, temperature: float) -> int:
        """Place of a declared temperature. StageProblem for another one: it cannot be had from this cache."""
        for i, declared in enumerate(self.layout.temperatures):
            if declared == temperature:
                return i
        wanted = sorted({*self.layout.temperatures, temperature})
        raise StageProblem(
            f"logit cache {self.folder} was made for temperatures {list(self.layout.temperatures)}, not "
            f"{temperature:g}: "
            f"the teacher's distribution at {temperature:g} is not in it. "
            f"Cache again with teacher.cache_logits and temperatures: {wanted}"
        )

    def rows(self, numbers: Sequence[int]) -> Positions:
        """All response positions of these rows, one row after the other."""
        parts: dict[str, list[np.ndarray]] = {}
        for r in numbers:
            shard = bisect_right(self._firsts, r) - 1
            base = self._starts[self._firsts[shard]]
            span = slice(int(self._starts[r] - base), int(self._starts[r + 1] - base))
            for name, array in self._shard(shard).items():
                parts.setdefault(name, []).append(array[span])
        return unpack(self.layout, {name: np.concatenate(pieces) for name, pieces in parts.items()})

    def _shard(self, number: int) -> dict[str, np.ndarray]:
        if number not in self._maps:
            self._maps[number] = map_shard(self.folder / self.meta["shards"][number]["name"])
        return self._maps[number]

    def captured_mass(self) -> dict[str, Any]:
        """Mean mass of the teacher's distribution inside the top-k, by temperature."""
        return dict(self.meta.get("captured_mass", {}))


def teacher_log_p(rows: Positions, temperature: float, index: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(log p_T float32 [N, k], log tail mass float32 [N] or None) at one declared temperature."""
    log_p = rows.values / np.float32(temperature) - rows.lse[:, index, None]
    return log_p, None if rows.tail is None else rows.tail[:, index]


def sample_weights(rows: Positions, log_p: np.ndarray, drawn_at: int) -> np.ndarray:
    """Importance weights [N, k] of ids drawn at temperature 1: count / draws x p_T / p_1."""
    assert rows.counts is not None
    draws = rows.counts.sum(axis=1, keepdims=True)
    at_one = rows.values - rows.lse[:, drawn_at, None]
    return (rows.counts / draws * np.exp(log_p - at_one)).astype(np.float32)
