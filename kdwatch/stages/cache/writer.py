"""Filling a logit cache shard by shard while the teacher runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from kdwatch import progress
from kdwatch.stages.cache import extract
from kdwatch.stages.cache.layout import FORMAT, Layout, Positions, pack, unpack
from kdwatch.stages.cache.shards import ShardEntry, write_shard
from kdwatch.stages.data.tokens import TokenSet
from kdwatch.stages.entry import Stage, resumed
from kdwatch.stages.files import canonical_hash, read_json, write_json
from kdwatch.stages.nn.batches import by_tokens, collate, response_logits
from kdwatch.stages.settings import CacheSettings

PLAN = "plan.json"


class CacheWriter:
    """Writes one cache; what an earlier process finished is taken over if it followed the same plan."""

    def __init__(self, folder: Path, layout: Layout, data: TokenSet, settings: CacheSettings) -> None:
        self.folder = folder
        self.layout = layout
        self.data = data
        self.settings = settings
        self.entries: list[ShardEntry] = []
        self.tokens = 0
        self._counts = data.response_counts
        self._open_plan()

    def _open_plan(self) -> None:
        """Drop shards that another plan left here."""
        drop = {"batch_tokens", "device", "threads"}
        plan = {
            "settings": canonical_hash(self.settings.model_dump(mode="json", exclude=drop)),
            "data": self.data.meta["content"],
        }
        path = self.folder / PLAN
        if path.is_file() and read_json(path, "plan") == plan:
            return
        for old in (*self.folder.glob("shard-*"), *self.folder.glob("manifest.json")):
            old.unlink()
        write_json(path, plan)

    def spans(self) -> list[tuple[int, int]]:
        """[begin, end) rows of each shard: whole rows, at least `shard_tokens` positions each but the last."""
        ends: list[int] = []
        total = 0
        for r, count in enumerate(self._counts):
            total += int(count)
            if total >= self.settings.shard_tokens:
                ends.append(r + 1)
                total = 0
        if not ends or ends[-1] != len(self.data):
            ends.append(len(self.data))
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def run(self, model: Any, device: torch.device, stage: Stage) -> None:
        """Make every shard that is not there yet."""
        spans = self.spans()
        names = [f"shard-{number:05d}.safetensors" for number in range(len(spans))]
        found = [ShardEntry.read(self.folder, name) for name in names]
        if any(found):
            resumed(f"with {sum(e is not None for e in found)} of {len(spans)} shards there")
        for number, (name, (begin, end)) in enumerate(zip(names, spans, strict=True)):
            entry = found[number] or self._make(model, device, stage, name, begin, end)
            self.entries.append(entry)
            progress.progress(tokens=self.tokens, step=number + 1, total_steps=len(spans))

    def _make(self, model: Any, device: torch.device, stage: Stage, name: str, begin: int, end: int) -> ShardEntry:
        starts = np.concatenate([[0], np.cumsum(self._counts[begin:end])])
        store: dict[str, np.ndarray] = {}
        error = 0.0
        mass = np.zeros(len(self.layout.temperatures))
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + begin)
        with torch.no_grad():
            for numbers in by_tokens(self.data, range(begin, end), self.settings.batch_tokens):
                stage.check_stop()
                rows, tokens = self._forward(model, device, numbers, generator)
                packed = pack(self.layout, rows)
                error = max(error, _error(rows, unpack(self.layout, packed)))
                mass += _mass(rows)
                _place(
                    store,
                    packed,
                    np.concatenate([np.arange(starts[r - begin], starts[r - begin + 1]) for r in numbers]),
                    int(starts[-1]),
                )
                self.tokens += tokens
                progress.progress(tokens=self.tokens)
        stats = {"max_logit_error": error, "mass": mass.tolist()}
        return write_shard(self.folder, name, store, begin, end - begin, stats)

    def _forward(
        self, model: Any, device: torch.device, numbers: list[int], generator: torch.Generator
    ) -> tuple[Positions, int]:
        batch = collate(self.data, numbers, self.data.meta["vocabulary"]["pad"], device)
        logits = response_logits(model, batch, self.layout.vocabulary)
        if self.layout.method == "sample":
            return extract.sampled_positions(logits, self.layout, self.settings.samples, generator), batch.tokens
        return extract.top_positions(logits, self.layout), batch.tokens

    def finish(self, teacher: str, weights: str) -> dict[str, Any]:
        """Write the manifest, last; remove the notes that only a resume needs."""
        positions = sum(e.positions for e in self.entries)
        mass = np.sum([e.stats["mass"] for e in self.entries], axis=0) / max(positions, 1)
        manifest = {
            "format": FORMAT,
            "layout": self.layout.as_dict(),
            "bytes_per_position": self.layout.bytes_per_position,
            "teacher": {"name": Path(teacher).name, "weights": weights, "dtype": self.settings.dtype},
            "vocabulary": self.data.meta["vocabulary"],
            "data": self.data.meta["content"],
            "rows": len(self.data),
            "positions": positions,
            "captured_mass": {
                f"{t:g}": round(float(m), 6) for t, m in zip(self.layout.temperatures, mass, strict=True)
            },
            "max_logit_error": max(e.stats["max_logit_error"] for e in self.entries),
            "shards": [{k: v for k, v in e.as_dict().items() if k != "stats"} for e in self.entries],
        }
        write_json(self.folder / "manifest.json", manifest)
        for entry in self.entries:
            (self.folder / f"{entry.name}.json").unlink(missing_ok=True)
        (self.folder / PLAN).unlink(missing_ok=True)
        sizes = [{"name": e.name, "bytes": (self.folder / e.name).stat().st_size} for e in self.entries]
        return {**manifest, "sizes": sizes}


def _place(store: dict[str, np.ndarray], packed: dict[str, np.ndarray], where: np.ndarray, total: int) -> None:
    """Put a batch's positions where they belong in the shard."""
    for name, values in packed.items():
        if name not in store:
            store[name] = np.zeros((total, *values.shape[1:]), dtype=values.dtype)
        store[name][where] = values


def _error(before: Positions, after: Positions) -> float:
    """Largest difference that storing makes to a logit."""
    return float(np.abs(before.values - after.values).max(initial=0.0))


def _mass(rows: Positions) -> np.ndarray:
    """Sum over positions of the mass inside the top-k, by temperature; for samples every position counts 1."""
    if rows.tail is None:
        return np.full(rows.lse.shape[1], float(len(rows.ids)))
    return (1 - np.exp(rows.tail.astype(np.float64))).sum(axis=0)
