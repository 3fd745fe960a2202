"""Which rows each optimizer update sees: a function of seed and update number alone, so a resumed run sees the same."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class DataOrder:
    """Rows in a new random order each epoch, cut into groups of one update each."""

    rows: np.ndarray
    rows_per_update: int
    seed: int
    _epoch: int = field(default=-1, repr=False)
    _order: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)

    @property
    def updates_per_epoch(self) -> int:
        """Groups of an epoch; the last one may be smaller."""
        return math.ceil(len(self.rows) / self.rows_per_update)

    def total_updates(self, epochs: float, max_steps: int | None) -> int:
        """Optimizer updates of the whole training."""
        return max_steps if max_steps is not None else max(1, round(epochs * self.updates_per_epoch))

    def group(self, update: int) -> np.ndarray:
        """Row numbers of one update, counted from 0."""
        epoch, place = divmod(update, self.updates_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
            self._epoch = epoch
        return self._order[place * self.rows_per_update : (place + 1) * self.rows_per_update]
