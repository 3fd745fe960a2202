"""The app: which run, which screen, what the keys do everywhere. Drawing is the screens' own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App
from textual.message import Message
from textual.screen import Screen

from kdwatch.rundir.reader import RunReader
from kdwatch.settings import Settings, load, save_state
from kdwatch.tui import hooks, keys
from kdwatch.tui.feed import RunFeed
from kdwatch.tui.fmt import Units, next_unit
from kdwatch.tui.frame import Frame, Notice
from kdwatch.tui.palette import KeyCommands
from kdwatch.tui.plain import can_show_screen, colours_of_screen, fallback_intensity, glyphs_for, units_of
from kdwatch.tui.replay import ReplayFeed
from kdwatch.tui.screens import make_screen
from kdwatch.tui.screens.dialogs import ConfirmScreen
from kdwatch.tui.theme import DARK, THEMES
from kdwatch.tui.ticker import Ticker

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the screen and must leave the terminal as it was."""


class KdwatchApp(App[int]):
    """Screens on run directories."""

    CSS_PATH = "theme.tcss"
    TITLE = "kdwatch"
    COMMANDS: ClassVar = {KeyCommands}
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"

    class FrameReady(Message):
        """The reader has a new frame of the open run."""

        def __init__(self, frame: Frame, ticker: Ticker) -> None:
            super().__init__()
            self.frame, self.ticker = frame, ticker

    def __init__(
        self,
        path: Path | None = None,
        *,
        settings: Settings | None = None,
        readonly: bool = False,
        replay: bool = False,
        speed: float = 1.0,
        start: float = 0.0,
        screen: str = "",
        make_feed: Callable[..., RunFeed] | None = None,
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self.settings = settings or load()
        self.readonly = readonly or bool(self.settings["readonly"])
        self.table = keys.remapped(self.settings.keys)
        self.units_name = str(self.settings["units"])
        self.glyphs = glyphs_for(self.settings, sys.__stdout__ or sys.stdout)
        self.frame: Frame | None = None
        self.feed: RunFeed | None = None
        self.signal: int | None = None
        self.opening = (path, replay, speed, start)
        self._first_screen = screen or ("run" if path else "runs")
        self._make_feed = make_feed
        self._ticker: Ticker | None = None
        self._back: list[str] = []
        self.frames_shown = 0
        self.set_class(self.glyphs.name == "ascii", "-ascii")
        self.compared: list[Path] = []
        """Runs that were marked for Compare."""
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES[self.settings["theme"]].name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own colour names, for themes that lack them."""
        return DARK.variables

    # Beginning and end

    def on_mount(self) -> None:
        """Keys, signals, the first screen, the run, the clock."""
        for key in self.table:
            if key.id != "palette":
                self.bind(key.keys, f"key('{key.id}')", description=key.help, show=False)
        self._catch_signals()
        path, replay, speed, start = self.opening
        if path is not None:
            self.open_run(path, replay=replay, speed=speed, start=start)
        self.show(self._first_screen)
        self.set_interval(self.settings["refresh"], self.tick)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            try:
                loop.add_signal_handler(number, self._signalled, number)
            except (NotImplementedError, RuntimeError, ValueError):
                return

    def _signalled(self, number: int) -> None:
        """Leave in order: the terminal is restored, the run goes on."""
        self.signal = number
        self.exit(128 + number)

    def on_unmount(self) -> None:
        """Stop reading."""
        self.close_run()

    # The run

    def open_run(self, path: Path, *, replay: bool = False, speed: float = 1.0, start: float = 0.0) -> None:
        """Show another run from now on; raises UsageProblem where there is none."""
        make = self._make_feed or default_feed
        feed = make(path, replay=replay, speed=speed, start=start, settings=self.settings)
        self.close_run()
        self.feed, self.frame = feed, None
        self._ticker = Ticker(feed, self._deliver)
        self._ticker.start()
        self._ticker.tick()

    def _deliver(self, frame: Frame) -> None:
        """Called in the reader's thread."""
        if self._ticker is not None:
            self.post_message(self.FrameReady(frame, self._ticker))

    def close_run(self) -> None:
        """Stop reading the open run, if any."""
        if self._ticker is not None:
            self._ticker.end()
        self._ticker = self.feed = None

    def tick(self) -> None:
        """A frame is due."""
        if self._ticker is not None:
            self._ticker.tick()

    def ask(self, action: Callable[[Any], object]) -> None:
        """Do something with the feed in its own thread, then show a frame at once."""
        if self._ticker is not None:
            self._ticker.ask(action)

    def on_kdwatch_app_frame_ready(self, message: FrameReady) -> None:
        """Hand a frame to the screen that is shown, unless a newer run was opened meanwhile."""
        if message.ticker is not self._ticker:
            return
        self.frame = message.frame
        self.frames_shown += 1
        for notice in message.frame.notices:
            self._notice(notice)
        base = self.base_screen
        if base is not None:
            base.guarded(base.show_frame, message.frame)

    def _notice(self, notice: Notice) -> None:
        self.notify(notice.text, severity=notice.severity, timeout=6, markup=False)  # type: ignore[arg-type]
        if self.settings["bell"]:
            self.bell()
        if not self.replaying:  # what a recording tells is no news
            hooks.call(self.settings.hooks, notice, self.frame)

    @property
    def replaying(self) -> bool:
        """A recording is being played."""
        return isinstance(self.feed, ReplayFeed)

    @property
    def looping(self) -> bool:
        """The replay begins again at its end."""
        return bool(self.frame and self.frame.replay and self.frame.replay.loop)

    def follow_log(self, index: int) -> None:
        """Let the log pane show the stage of that index; -1 the running one."""
        rows = self.frame.stages if self.frame else ()
        name = rows[index].name if 0 <= index < len(rows) else None
        self.ask(lambda feed: setattr(feed, "log_stage", name))

    # Screens

    @property
    def base_screen(self) -> Any:
        """The screen under any dialog; None before the first."""
        return next((s for s in reversed(self.screen_stack) if hasattr(s, "show_frame")), None)

    @property
    def screen_before(self) -> str:
        """Name of the screen that was shown before this one; empty where there was none."""
        return self._back[-1] if self._back else ""

    def show(self, name: str) -> None:
        """Go to a screen; the one before is remembered for `back`."""
        here = self.base_screen
        if here is not None and name == here.NAME:
            return
        if not self.is_screen_installed(name):
            self.install_screen(make_screen(name), name)
        if here is None:
            self.push_screen(name)
        else:
            self._back = [*self._back[-20:], here.NAME]
            self.switch_screen(name)

    def keys_now(self, screen: str) -> list[keys.Key]:
        """The keys that work on a screen as things stand."""
        return keys.for_screen(screen, self.table, replay=self.replaying, readonly=self.readonly)

    async def action_key(self, name: str) -> None:
        """A key of the table was pressed: the screen's own meaning of it, else the app's."""
        screen = self.base_screen
        if screen is None or name not in {k.id for k in self.keys_now(screen.NAME)}:
            return
        action = getattr(screen, f"do_{name}", None) or getattr(self, f"do_{name}", None)
        if action is not None:
            action()

    def tell(self, text: str, severity: str = "information") -> None:
        """A short message that goes away."""
        self.notify(text, severity=severity, timeout=4, markup=False)  # type: ignore[arg-type]

    def copy(self, text: str) -> None:
        """Put text into the terminal's clipboard (OSC 52) and show it, since not every terminal takes it."""
        self.copy_to_clipboard(text)
        self.tell(f"copied: {text}")

    # Units and colours

    def units_for(self, frame: Frame) -> Units:
        """The chosen unit with this run's grid and price."""
        units = units_of(self.settings, frame)
        return Units(self.units_name, units.g_per_kwh, units.pue, units.price_per_kwh, units.currency)

    def do_units(self) -> None:
        """Next unit; kept for the next time."""
        self.units_name = next_unit(self.units_name)
        save_state(units=self.units_name)
        self.tell(self.units_for(self.frame).label() if self.frame else self.units_name)
        if self.base_screen is not None:
            self.base_screen.redraw()

    def do_theme(self) -> None:
        """Next theme; kept for the next time."""
        names = list(THEMES)
        here = next((n for n, t in THEMES.items() if t.name == self.theme), names[0])
        name = names[(names.index(here) + 1) % len(names)]
        self.theme = THEMES[name].name
        save_state(theme=name)

    def ask_sensors(self) -> list[Any]:
        """What the sensors of this machine say; slow, called beside the screen."""
        from kdwatch.tui.screens.sensors import ask_sensors

        return ask_sensors()

    # Leaving

    def do_back(self) -> None:
        """The screen before."""
        if self._back:
            name = self._back[-1]
            self.show(name)
            self._back = self._back[:-2]

    def do_leave(self) -> None:
        """Leave; a live run is said to go on first."""
        frame = self.frame
        if frame is None or not frame.live or self.replaying:
            self.exit(0)
            return
        detail = f"Recorder: process {frame.run.recorder_pid}. Return with: kdwatch watch {frame.run.run_id}"
        ask = ConfirmScreen(f"The run {frame.run.name} goes on. Leave the screen?", detail, enter_agrees=True)
        self.push_screen(ask, lambda yes: self.exit(0) if yes else None)

    def do_quit_now(self) -> None:
        """Leave at once."""
        self.exit(0)

    async def action_quit(self) -> None:
        """Textual's own quit."""
        self.exit(0)

    def do_help(self) -> None:
        """Help on the screen that is shown."""
        self.show("help")

    def do_go_runs(self) -> None:
        """Runs."""
        self.show("runs")

    def do_go_run(self) -> None:
        """Run."""
        if self.feed is None:
            self.tell("no run is open: choose one on screen 1", "warning")
            return
        self.show("run")

    def do_go_compare(self) -> None:
        """Compare."""
        self.show("compare")

    def do_go_plan(self) -> None:
        """Plan."""
        self.show("plan")

    def do_go_log(self) -> None:
        """Log."""
        if self.feed is None:
            self.tell("no run is open: choose one on screen 1", "warning")
            return
        self.show("log")

    def do_go_sensors(self) -> None:
        """Sensors."""
        self.show("sensors")

    def get_default_screen(self) -> Screen:
        """An empty screen under the first one."""
        return Screen(id="_default")


def default_feed(path: Path, *, replay: bool, speed: float, start: float, settings: Settings) -> RunFeed:
    """Live or replay feed of a run directory."""
    grid = fallback_intensity(settings)
    if replay:
        return ReplayFeed(path, speed=speed, start=start, g_per_kwh=grid)
    return RunFeed(path, g_per_kwh=grid)


def run_app(
    path: Path | None,
    *,
    readonly: bool = False,
    replay: bool = False,
    speed: float = 1.0,
    start: float = 0.0,
    screen: str = "",
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Show a run (or, without one, the list of runs) until the user leaves; returns the exit code.

    Where there is no terminal that can show a screen, follows in plain lines. A live run goes on afterwards, and
    the last line says so. `settings` are those of the command line.
    """
    if not can_show_screen():
        from kdwatch.tui import plain

        if path is None:
            sys.stderr.write("kdwatch: no terminal to show a screen on: name a run, or use kdwatch ls\n")
            return 2
        return plain.follow(path, command_line=settings)
    if path is not None:
        RunReader(path)
    os.environ.update(colours_of_screen(os.environ))
    chosen = load({**(settings or {}), **({"readonly": True} if readonly else {})})
    app = KdwatchApp(path, settings=chosen, replay=replay, speed=speed, start=start, screen=screen)
    code = app.run()
    frame = app.frame
    if frame is not None and frame.live and not app.replaying and app.signal != signal.SIGHUP:
        name = frame.run.run_id
        text = f"the run goes on (process {frame.run.recorder_pid}): kdwatch watch {name} returns to it, "
        sys.stderr.write(f"{text}kdwatch stop {name} ends it\n")
    return code or 0
