"""The budget guard: says when a run has used its energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kdwatch.ledger.core import Totals

NEAR = 0.9
"""Share of the budget at which a warning comes."""


@dataclass(frozen=True)
class Verdict:
    """What the guard says now."""

    over: bool = False
    """The budget is used up."""
    warning: str | None = None
    """Something to tell once."""


class Guard(Protocol):
    """Decides from the run's totals; called several times a second while a stage runs."""

    budget_j: float

    def check(self, totals: Totals) -> Verdict:
        """The verdict at the time of these totals."""


class BudgetGuard:
    """Compares measured energy with the budget."""

    def __init__(self, budget_j: float) -> None:
        self.budget_j = budget_j

    def check(self, totals: Totals) -> Verdict:
        """Over at 100 %; a warning from 90 % on. Unknown energy is never over."""
        used = totals.total_j
        if used is None:
            return Verdict()
        if used >= self.budget_j:
            return Verdict(over=True, warning=f"the budget is used up: {used:.4g} J of {self.budget_j:.4g} J")
        if used >= NEAR * self.budget_j:
            return Verdict(warning=f"{NEAR:.0%} of the budget of {self.budget_j:.4g} J is used")
        return Verdict()
