"""The budget guard: says when a run has used its energy, and when it will surely use more than it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from kdwatch.ledger.types import StageTotals, Totals
from kdwatch.ledger.units import format_energy
from planners.forecast import Forecast, Prior, RunForecast, StageForecaster, forecast_run, guard

NEAR = 0.9
"""Share of the budget from which on the guard warns."""
NOTHING = Prior(0.0, 0.0)
FORECAST_S = 2.0
"""Least time between two forecasts."""


@dataclass(frozen=True)
class Verdict:
    """What the guard says now."""

    action: Literal["none", "warn", "stop"] = "none"
    code: str = "budget"
    text: str = ""


class BudgetGuard:
    """Compares what was used, and what will have been used at the end, with the budget.

    Stages that have not begun count as what the cost model expects (`expected`: mean and standard deviation in joules);
    those that it cannot tell count as nothing, so that P(over budget) is never overstated.
    """

    def __init__(self, budget_j: float, stop: bool, expected: Mapping[str, tuple[float, float]] | None = None) -> None:
        self.budget_j = budget_j
        self.stop = stop
        """Whether the run ends over its budget; else the guard only warns."""
        self._expected = {name: Prior(mean, sd) for name, (mean, sd) in (expected or {}).items()}
        self._forecasters: dict[str, StageForecaster] = {}
        self._forecast_due = 0.0

    def pause_s(self, totals: Totals) -> float:
        """How long nothing can happen: half the time that the rest lasts at twice today's power, at most 2 s.

        Totals of many devices ten times a second would cost more than the sampling itself.
        """
        used, power_w = totals.total_j, totals.power_w
        if used is None or not power_w:
            return 0.0
        return min(FORECAST_S, max(0.0, self.budget_j - used) / (4.0 * power_w))

    def check(self, totals: Totals) -> Verdict:
        """The verdict at the time of these totals. Unknown energy is never over."""
        used = totals.total_j
        if used is None:
            return Verdict()
        budget = format_energy(self.budget_j)
        if used >= self.budget_j:
            text = f"the energy budget of {budget} is used up"
            return Verdict("stop" if self.stop else "warn", "over_budget", text)
        running = [s for s in totals.stages if s.status == "running"]
        self._observe(running)
        if totals.t >= self._forecast_due:
            self._forecast_due = totals.t + FORECAST_S
            verdict = self._foresee(totals, used, running)
            if verdict.action != "none":
                return verdict
        if used >= NEAR * self.budget_j:
            return Verdict("warn", "budget", f"{NEAR:.0%} of the energy budget of {budget} are used")
        return Verdict()

    def _observe(self, running: Iterable[StageTotals]) -> None:
        for stage in running:
            joules = stage.energy_j.get("total")
            if stage.step is not None and stage.total_steps and joules is not None:
                forecaster = self._forecasters.setdefault(stage.name, StageForecaster())
                forecaster.observe(stage.step, joules, stage.total_steps)

    def _forecast(self, totals: Totals, used: float, running: list[StageTotals]) -> RunForecast:
        """Where the run's energy will end, by its running stages' steps."""
        parts: dict[str, Forecast] = {
            s.name: self._forecasters[s.name].forecast() for s in running if s.name in self._forecasters
        }
        known = {name: part for name, part in parts.items() if part.final is not None}
        done = used - sum(part.used for part in known.values())
        waiting = [s.name for s in totals.stages if s.status == "pending"]
        return forecast_run(max(0.0, done), known, {name: self._expected.get(name, NOTHING) for name in waiting})

    def _foresee(self, totals: Totals, used: float, running: list[StageTotals]) -> Verdict:
        run = self._forecast(totals, used, running)
        if run.final is None or not any(s.name in self._forecasters for s in running):
            return Verdict()
        decision = guard(run, self.budget_j, stop=self.stop, mean_w=totals.power_w)
        if decision.action == "none":
            return Verdict()
        text = f"{decision.text}: about {format_energy(run.final)} of {format_energy(self.budget_j)}"
        return Verdict(decision.action, "budget_forecast", text)
