"""Early stopping as the study describes it: tolerance epsilon, patience, best weights kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kdwatch.stages.settings import EarlyStop


@dataclass
class Patience:
    """Counts evaluations without an improvement of more than epsilon."""

    rule: EarlyStop
    best: float = math.inf
    best_update: int = -1
    waited: int = 0

    def due(self, update: int) -> bool:
        """Whether to evaluate after this many updates."""
        return update % self.rule.every == 0

    def improves(self, loss: float, update: int) -> bool:
        """Take a validation loss in; True where it is the best so far by more than epsilon."""
        if loss < self.best - self.rule.epsilon:
            self.best, self.best_update, self.waited = loss, update, 0
            return True
        self.waited += 1
        return False

    @property
    def over(self) -> bool:
        """True when patience has run out."""
        return self.waited >= self.rule.patience
