"""Plan: limits in, a recommendation with its reasons out, the frontier beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual import work
from textual.app import ComposeResult
from textual.message import Message

from kdwatch.rundir.errors import UsageProblem
from kdwatch.tui.layout import Place
from kdwatch.tui.planning import Planner, command_of, problem_of, scaled_budget, start
from kdwatch.tui.screens.dialogs import AskScreen, ConfirmScreen
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
    Field("batch", "teacher's batch", "as measured"),
    Field("answers", "longest answer", "as measured"),
)
"""What the form asks."""

BUDGET_STEP = 1.1
"""Left and right change the budget by this factor."""

REGIONS = ("", "FRA", "DEU", "POL", "USA", "CHN", "IND")
"""Grids that `v` goes through: none, a clean one, and some that are not; the form takes any."""

BATCHES = ("", "4", "16", "64")
ANSWERS = ("", "256", "128", "64")
"""Settings of the teacher's generation that the what-if keys go through; empty: as measured."""

RECIPE = "recipe.yaml"

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

    class Started(Message):
        """A run began."""

        def __init__(self, run: Path) -> None:
            super().__init__()
            self.run = run

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {"budget": "20kWh", "reuse": "1"}
        self.plan: Mapping[str, Any] | None = None
        self.problem = ""
        self._planner = Planner()
        self._recipe: Path | None = None

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

    def draw(self) -> None:
        super().draw()
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
        budget = scaled_budget(self.values.get("budget") or "20kWh", factor)
        if budget is not None:
            self._set("budget", budget)

    def do_left(self) -> None:
        """A tenth less energy."""
        self.do_right(1 / BUDGET_STEP)

    def do_reload(self) -> None:
        """Read the observations again."""
        self._planner.forget()
        self.plan = None
        self._plan(dict(self.values))
        self.redraw()

    def _set(self, name: str, value: str) -> None:
        self.values[name] = value
        self._plan(dict(self.values))

    def _next(self, name: str, choices: tuple[str, ...]) -> None:
        now = self.values.get(name, "")
        at = choices.index(now) if now in choices else -1
        self._set(name, choices[(at + 1) % len(choices)])

    def do_more_students(self, step: int = 1) -> None:
        """One more student per teacher."""
        try:
            now = int(float(self.values.get("reuse") or 1))
        except (ValueError, OverflowError):
            return
        self._set("reuse", str(max(1, now + step)))

    def do_fewer_students(self) -> None:
        """One student fewer."""
        self.do_more_students(-1)

    def do_next_region(self) -> None:
        """Another grid."""
        self._next("region", REGIONS)

    def do_teacher_batch(self) -> None:
        """Another batch of the teacher's generation."""
        self._next("batch", BATCHES)

    def do_answer_length(self) -> None:
        """Another limit of the teacher's answers."""
        self._next("answers", ANSWERS)

    def do_write_recipe(self) -> None:
        """Ask where to, and write the recipe."""
        self.kd.push_screen(AskScreen("Write the recipe to", RECIPE, _not_there, RECIPE), self._write)

    def _write(self, name: str | None) -> None:
        if name is None:
            return
        path = Path(name.strip()).expanduser()
        try:
            absent = self._planner.write(self.values, path)
        except UsageProblem as problem:
            self.kd.tell(str(problem), "error")
            return
        self._recipe = path
        lacks = f"; not found: {', '.join(absent)}" if absent else ""
        self.kd.tell(f"written: {path}{lacks}", "warning" if absent else "information")

    def do_start_recipe(self) -> None:
        """Ask, then start the written recipe."""
        if self._recipe is None:
            self.kd.tell("write the recipe first", "warning")
            return
        question, detail = f"Start {self._recipe}?", "It trains on this machine; leaving the screen does not stop it."
        self.kd.push_screen(ConfirmScreen(question, detail), lambda yes: self._start(yes, self._recipe))

    def _start(self, yes: bool | None, recipe: Path | None) -> None:
        if yes and recipe is not None:
            self._launch(recipe)

    @work(thread=True, exclusive=True, group="start")
    def _launch(self, recipe: Path) -> None:
        try:
            self.post_message(self.Started(start(recipe)))
        except UsageProblem as problem:
            self.app.call_from_thread(self.kd.tell, str(problem), "error")

    def on_plan_screen_started(self, message: Started) -> None:
        """Show the run that began."""
        self.kd.open_run(message.run)
        self.kd.show("run")

    def do_copy(self) -> None:
        """Copy the command for this plan."""
        self.kd.copy(command_of(self.values))


def _not_there(name: str) -> str | None:
    """What is wrong with the name of a new file, or None: nothing is written over."""
    path = Path(name.strip()).expanduser()
    if not name.strip() or path.exists():
        return "a name, please" if not name.strip() else f"{path} is there already: give another name"
    return None if path.absolute().parent.is_dir() else f"{path.absolute().parent} is no directory"
