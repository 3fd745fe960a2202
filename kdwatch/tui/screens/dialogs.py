"""Dialogs: yes or no, and one line of text. `y` or enter agrees, escape or `n` does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class ConfirmScreen(ModalScreen[bool]):
    """Asks before something is done to a run. Enter agrees only where nothing is lost by it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
        Binding("enter,q", "enter", "yes", show=False),
    ]

    def __init__(self, question: str, detail: str, *, enter_agrees: bool = False) -> None:
        super().__init__()
        self._question, self._detail = question, detail
        self._enter_agrees = enter_agrees

    def compose(self) -> ComposeResult:
        agree = "y or enter: yes" if self._enter_agrees else "y: yes"
        with Vertical(classes="dialog danger"):
            yield Static(self._question, markup=False)
            yield Static(self._detail, markup=False, classes="hint")
            yield Static(f"{agree}   esc or n: no", markup=False, classes="hint")

    def action_answer(self, answer: bool) -> None:
        """Close with the answer."""
        self.dismiss(answer)

    def action_enter(self) -> None:
        """Enter or q: yes where that is harmless."""
        if self._enter_agrees:
            self.dismiss(True)


class AskScreen(ModalScreen[str | None]):
    """One line of text; `check` returns what is wrong with it, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "cancel")]

    def __init__(self, question: str, example: str, check: Callable[[str], str | None], value: str = "") -> None:
        super().__init__()
        self._question, self._example, self._check, self._value = question, example, check, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Input(value=self._value, placeholder=self._example, compact=True)
            yield Static("enter: ok   esc: back", markup=False, classes="hint", id="answer")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the text, or say what is wrong with it."""
        problem = self._check(event.value)
        if problem is None:
            self.dismiss(event.value)
            return
        answer = self.query_one("#answer", Static)
        answer.update(problem)
        answer.add_class("wrong")

    def action_give_up(self) -> None:
        """Close without an answer."""
        self.dismiss(None)
