"""A dialog with several fields, each checked when it is accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a form."""

    name: str
    label: str
    example: str


Check = Callable[[Mapping[str, str]], str | None]
"""What is wrong with the values, in one line, or None."""


class FormScreen(ModalScreen[Mapping[str, str] | None]):
    """Enter accepts all fields, tab goes to the next, escape gives up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "cancel")]

    def __init__(self, title: str, fields: Sequence[Field], values: Mapping[str, str], check: Check) -> None:
        super().__init__()
        self._title, self._form, self._values, self._check = title, fields, values, check

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", can_focus=False):
            yield Static(self._title, markup=False)
            for field in self._form:
                with Horizontal(classes="field"):
                    yield Static(field.label, markup=False, classes="label")
                    value = self._values.get(field.name, "")
                    yield Input(value=value, placeholder=field.example, compact=True, id=f"field-{field.name}")
            yield Static(
                "enter: ok   tab: next   empty: no limit   esc: back", markup=False, classes="hint", id="answer"
            )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept, or say what is wrong."""
        values = {f.name: self.query_one(f"#field-{f.name}", Input).value.strip() for f in self._form}
        problem = self._check(values)
        if problem is None:
            self.dismiss(values)
            return
        answer = self.query_one("#answer", Static)
        answer.update(problem)
        answer.add_class("wrong")

    def action_give_up(self) -> None:
        """Close without an answer."""
        self.dismiss(None)
