"""Plan: limits in, a recommendation with its reasons out, the frontier beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual import work
from textual.app import ComposeResult
from textual.message import Message

from kdwatch.rundir.errors import UsageProblem
from kdwatch.tui.layout import Place
from kdwatch.tui.planning import Planner, command_of, problem_of
from kdwatch.tui.screens.form import Field, FormScreen
from kdwatch.tui.screens.listing import ListingScreen
from kdwatch.tui.view.line import Line
from kdwatch.tui.view.plan import card_lines, chart_lines
from kdwatch.tui.widgets.lines import Lines

FIELDS = (
    Field("budget", "energy per student", "20kWh"),
    Field("quality", "least quality Q", "0.8"),
    Field("reuse", "students N per teacher", "1"),
    Field("region", "region", "FRA"),
    Field("co2", "most kg CO2e", "5"),
    Field("serve", "tokens served", "1e9"),
)
"""What the form asks."""

BUDGET_STEP = 1.1
"""Left and right change the budget by this factor."""

WIDE = 100
"""From this width on the chart stands beside the card."""


class PlanScreen(ListingScreen):
    """Computed beside the screen; a newer question replaces an older one."""

    NAME = "plan"

    class Planned(Message):
        """The plan, or what is wrong with the question."""

        def __init__(self, plan: Mapping[str, Any] | None, problem: str) -> None:
            super().__init__()
            self.plan, self.problem = plan, problem

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {"budget": "20kWh", "reuse": "1"}
        self.plan: Mapping[str, Any] | None = None
        self.problem = ""
        self._planner = Planner()

    def parts(self) -> ComposeResult:
        yield from super().parts()
        yield Lines(id="chart", classes="part")

    def places(self, width: int, height: int) -> dict[str, Place]:
        places = super().places(width, height)
        body = places["body"]
        if width >= WIDE:
            card = width // 2
            places["body"] = body._replace(width=card - 2)
            places["chart"] = Place(card, body.y, width - card, body.height)
        elif height >= 20:
            rows = max(height // 3, 8)
            places["body"] = body._replace(height=body.height - rows - 1)
            places["chart"] = Place(0, height - 1 - rows, width, rows)
        return places

    def on_screen_resume(self) -> None:
        """Plan when first shown."""
        super().on_screen_resume()
        if self.plan is None and not self.problem:
            self._plan(dict(self.values))

    @work(thread=True, exclusive=True, group="plan")
    def _plan(self, values: dict[str, str]) -> None:
        try:
            self.post_message(self.Planned(self._planner.plan(values), ""))
        except UsageProblem as problem:
            self.post_message(self.Planned(None, str(problem)))

    def on_plan_screen_planned(self, message: Planned) -> None:
        """Show it."""
        self.plan, self.problem = message.plan, message.problem
        self.redraw()

    def heading(self) -> str:
        given = [f"{f.label} {self.values[f.name]}" for f in FIELDS if self.values.get(f.name)]
        return "Plan  " + (", ".join(given) or "no limits")

    def content(self, width: int) -> list[Line]:
        if self.problem:
            return [((self.problem, "bad"),), (), (("e changes the limits", "dim"),)]
        if self.plan is None:
            return [(("planning", "dim"),)]
        return card_lines(self.plan, width)

    def redraw(self) -> None:
        super().redraw()
        chart = self.query_one("#chart", Lines)
        if chart.display and self.plan is not None:
            width, height = chart.size
            chart.show(chart_lines(self.plan, width, min(height, 24), self.kd.glyphs, None))

    def do_edit(self) -> None:
        """Ask for the limits."""
        form = FormScreen("Plan a student within these limits", FIELDS, self.values, problem_of)
        self.kd.push_screen(form, self._edited)

    def _edited(self, values: Mapping[str, str] | None) -> None:
        if values is not None:
            self.values = dict(values)
            self._plan(dict(values))

    def do_right(self, factor: float = BUDGET_STEP) -> None:
        """A tenth more energy."""
        from kdwatch.ledger.units import KWH_J, parse_energy

        try:
            now = parse_energy(self.values.get("budget") or "20kWh") / KWH_J
        except UsageProblem:
            return
        self.values["budget"] = f"{max(now * factor, 0.01):.3g}kWh"
        self._plan(dict(self.values))

    def do_left(self) -> None:
        """A tenth less energy."""
        self.do_right(1 / BUDGET_STEP)

    def do_reload(self) -> None:
        """Read the observations again."""
        self._planner.forget()
        self.plan = None
        self._plan(dict(self.values))
        self.redraw()

    def do_copy(self) -> None:
        """Copy the command for this plan."""
        self.kd.copy(command_of(self.values))
