"""What several commands share: bad input in one line, the screen or plain lines, a run's exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXIT_BY_STATUS = {"completed": 0, "imported": 0, "failed": 1, "over_budget": 3, "stopped": 143, "interrupted": 1}


def use_home(home: str | None) -> None:
    """Make `--home` the home of this process and of what it starts."""
    if home:
        os.environ["KDWATCH_HOME"] = str(Path(home).expanduser().absolute())


def exit_code(run: Path) -> int:
    """Exit code that a run's status stands for (a recorded one goes first)."""
    from kdwatch.rundir.reader import RunReader

    code = None
    for event in RunReader(run).iter_events():
        if event.get("type") == "run_ended":
            code = event.get("exit_code")
    if isinstance(code, int) and not isinstance(code, bool):
        return code
    return EXIT_BY_STATUS.get(RunReader(run).status(), 1)


def show(run: Path, *, screen: bool) -> str:
    """Show a run until it ends or the person leaves; what happened: `ended`, `left` or `interrupted` (Ctrl-C)."""
    if screen:
        from kdwatch.tui.app import run_app

        run_app(run)
        return "left" if is_running(run) else "ended"
    return follow(run)


def follow(run: Path, on_interrupt: Callable[[], Any] | None = None) -> str:
    """Plain lines until the run ends. Ctrl-C calls `on_interrupt` and goes on following; a second one leaves."""
    from kdwatch.tui import plain

    asked = False
    while True:
        try:
            plain.follow(run)
            return "interrupted" if asked else "ended"
        except KeyboardInterrupt:
            if asked or on_interrupt is None:
                return "left"
            asked = True
            on_interrupt()


def is_running(run: Path) -> bool:
    """Whether a run goes on."""
    from kdwatch.rundir.reader import RunReader

    return RunReader(run).status() == "running"


def wants_screen(plain: bool) -> bool:
    """Whether to show the screen: asked for nothing else, and there is a terminal that can."""
    if plain:
        return False
    from kdwatch.tui.plain import can_show_screen

    return can_show_screen()


def die_of_pipe() -> None:
    """A reader that goes away (`| head`) ends the command quietly."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def note(text: str) -> None:
    """A line for the person, beside the data."""
    print(text, file=sys.stderr, flush=True)
