"""Options that every command with a screen takes; they outrank environment and config file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

NAMES = ("units", "theme", "glyphs", "readonly")
"""Settings that can be given on the command line."""


def screen_options(command: F) -> F:
    """Add --units, --theme, --glyphs and --readonly; the command gets them as the mapping `settings`."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen = {name: kwargs.pop(name) for name in NAMES}
        return command(*args, settings={k: v for k, v in chosen.items() if v is not None}, **kwargs)

    for option in reversed(_options()):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def _options() -> list[Callable[[Any], Any]]:
    return [
        click.option("--units", type=click.Choice(["J", "Wh", "kWh", "co2e", "money"]), help="Unit of energy."),
        click.option("--theme", type=click.Choice(["dark", "light", "terminal"]), help="Colours."),
        click.option(
            "--glyphs", type=click.Choice(["auto", "braille", "block", "ascii"]), help="What plots consist of."
        ),
        click.option("--readonly", is_flag=True, default=None, help="No key acts on the run."),
    ]
