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


def show(run: Path, settings: dict[str, Any] | None = None) -> bool:
    """Show a run's screen until the person leaves; whether the run had ended by then."""
    from kdwatch.tui.app import run_app

    run_app(run, settings=settings)
    return not is_running(run)


class Asked(Exception):
    """A signal that asks to stop: `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopSignals:
    """INT and TERM while this is entered: kept until `following`, where they raise Asked. So a run that is just
    being started is stopped in order too, not left behind."""

    def __init__(self) -> None:
        self.kept: int | None = None
        """Signal that came before `following`."""
        self._raises = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _: Any) -> None:
        if self._raises:
            raise Asked(number)
        self.kept = number

    def following(self, call: Callable[[], Any]) -> None:
        """Run `call`; raises Asked for a signal now, or for one that was kept."""
        try:
            self._raises = True
            kept, self.kept = self.kept, None
            if kept:
                raise Asked(kept)
            call()
        finally:
            self._raises = False


def follow(
    run: Path,
    signals: StopSignals,
    on_signal: Callable[[int], Any] | None = None,
    settings: dict[str, Any] | None = None,
) -> int:
    """Plain lines until the run ends; 0 then. INT or TERM calls `on_signal` and goes on following; a second one, or
    any without `on_signal`, leaves: 128+n. `settings` are those of the command line."""
    from kdwatch.tui import plain

    asked = False
    while True:
        try:
            signals.following(lambda: plain.follow(run, command_line=settings))
            return 0
        except Asked as signalled:
            if asked or on_signal is None:
                return 128 + signalled.number
            asked = True
            on_signal(signalled.number)


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
