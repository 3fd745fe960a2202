"""One module a screen; each shows what the app hands it and draws nothing while hidden."""

from __future__ import annotations

from importlib import import_module
from typing import Any

CLASSES = {
    "runs": "kdwatch.tui.screens.runs:RunsScreen",
    "run": "kdwatch.tui.screens.run:RunScreen",
    "compare": "kdwatch.tui.screens.compare:CompareScreen",
    "plan": "kdwatch.tui.screens.plan:PlanScreen",
    "log": "kdwatch.tui.screens.log:LogScreen",
    "sensors": "kdwatch.tui.screens.sensors:SensorsScreen",
    "help": "kdwatch.tui.screens.help:HelpScreen",
}
"""Screens by name; imported when first shown, so that a run needs nothing of the planner."""


def make_screen(name: str) -> Any:
    """A new screen of that name."""
    module, attribute = CLASSES[name].split(":")
    return getattr(import_module(module), attribute)()
