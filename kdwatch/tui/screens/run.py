"""The Run screen: stages, power, devices, log. Replay is the same screen on a recording."""

from __future__ import annotations

import time

from textual.app import ComposeResult

from kdwatch.tui.control import Controls
from kdwatch.tui.fmt import duration
from kdwatch.tui.frame import Frame, mark
from kdwatch.tui.history import TOTAL
from kdwatch.tui.keys import Key
from kdwatch.tui.layout import Place, arrange
from kdwatch.tui.screens.base import KdScreen
from kdwatch.tui.screens.dialogs import AskScreen
from kdwatch.tui.times import parse_time
from kdwatch.tui.view.devices import device_lines
from kdwatch.tui.view.header import energy_line, header_line
from kdwatch.tui.view.logs import log_lines
from kdwatch.tui.view.plot import PlotSpec
from kdwatch.tui.view.stages import stage_lines
from kdwatch.tui.widgets.lines import Lines
from kdwatch.tui.widgets.plot import PowerPlot


class RunScreen(KdScreen):
    """One run, live or recorded."""

    NAME = "run"

    def __init__(self) -> None:
        super().__init__()
        self.selected = -1
        """Index of the selected stage; -1 follows the running one."""
        self._frozen: tuple[Frame, float] | None = None
        self._live = False
        """The footer shows the keys that act on a run."""

    def parts(self) -> ComposeResult:
        for name in ("header", "energy", "stages"):
            yield Lines(id=name, classes="part")
        plot = PowerPlot(id="plot")
        plot.add_class("part")
        yield plot
        yield Lines(id="devices", classes="part")
        yield Lines(id="log", classes="part")

    def places(self, width: int, height: int) -> dict[str, Place]:
        frame = self.kd.frame
        stages, devices = (len(frame.stages), len(frame.devices)) if frame else (4, 2)
        self._counted = (stages, devices)
        return arrange(width, height, stages, devices) or {}

    def hinted(self, keys: list[Key]) -> list[Key]:
        """Without the keys that act on a run, where nothing runs."""
        live = self._live = bool(self.kd.frame and self.kd.frame.live)
        return [k for k in keys if live or not k.control]

    def draw(self) -> None:
        """The newest frame; before the first, what is being read: a long run without checkpoints takes its time."""
        super().draw()
        if self.kd.frame is None and self.kd.feed is not None:
            name = self.kd.feed.run.name
            self._lines("header").show([(("kdwatch ", "dim"), (name, "head"), ("  reading the run", "accent"))])

    def show_frame(self, frame: Frame) -> None:
        if frame.live != self._live:
            self.refresh_keys()
        if (len(frame.stages), len(frame.devices)) != getattr(self, "_counted", None):
            self.lay_out()
            return
        frozen = None
        if self._frozen is not None:
            frame, since = self._frozen
            frozen = time.monotonic() - since
        self._draw(frame, frozen)

    def _draw(self, frame: Frame, frozen: float | None) -> None:
        """All parts that are shown."""
        units, glyphs = self.kd.units_for(frame), self.kd.glyphs
        width = self.size.width
        self._lines("header").show([header_line(frame, width, frozen)])
        self._lines("energy").show([energy_line(frame, width, units, glyphs)])
        stages = self._lines("stages")
        lines = stage_lines(frame, stages.size.width, units, stages.size.height, self.selected)
        stages.show(lines, self._cursor(frame, lines))
        self._draw_plot(frame)
        devices = self._lines("devices")
        if devices.display:
            plotted = "" if self.plot.device == TOTAL else self.plot.device
            devices.show(device_lines(frame, devices.size.width, units, glyphs, devices.size.height, plotted))
        log = self._lines("log")
        if log.display:
            log.show(log_lines(frame, log.size.width, log.size.height))

    def _lines(self, name: str) -> Lines:
        return self.query_one(f"#{name}", Lines)

    @property
    def plot(self) -> PowerPlot:
        """The power plot."""
        return self.query_one(PowerPlot)

    def _cursor(self, frame: Frame, lines: list) -> int:
        """Line of the selected stage, -1 for none."""
        if self.selected < 0 or self.selected >= len(frame.stages):
            return -1
        start = f"{frame.stages[self.selected].number:>2} "
        return next((y for y, line in enumerate(lines) if y and line[0][0].startswith(start)), -1)

    def _draw_plot(self, frame: Frame) -> None:
        plot, feed = self.plot, self.kd.feed
        if not plot.display or feed is None or not plot.size.width:
            return
        start, end = plot.span(frame.t)
        with feed.lock:
            view = feed.history.view(plot.device, start, end, plot.columns(self.kd.glyphs), frame.t)
        plot.draw(view, self._spec(frame, plot), self.kd.glyphs)

    def _spec(self, frame: Frame, plot: PowerPlot) -> PlotSpec:
        device = next((d for d in frame.devices if d.key == plot.device), None)
        marks = tuple((s.start_s, s.name) for s in frame.stages if s.start_s is not None and s.status != "skipped")
        return PlotSpec(
            title=device.label if device else "total",
            window=plot.window_name,
            marks=marks,
            budget_w=None if device else budget_pace(frame),
            sign=mark(device.source if device else frame.total_source),
        )

    # Keys

    def do_freeze(self) -> None:
        """Pause a replay; freeze or release a live view."""
        if self.kd.replaying:
            self.kd.ask(lambda feed: feed.pause(not feed.paused))
            return
        frame = self.kd.frame
        self._frozen = (frame, time.monotonic()) if self._frozen is None and frame else None
        self.redraw()

    def do_follow(self) -> None:
        """The newest again: no freeze, no selection, the window that was left."""
        self._frozen, self.selected = None, -1
        self.redraw()

    def do_zoom_in(self) -> None:
        """Shorter window."""
        self.plot.zoom(-1)
        self.redraw()

    def do_zoom_out(self) -> None:
        """Longer window."""
        self.plot.zoom(1)
        self.redraw()

    def do_next_device(self, step: int = 1) -> None:
        """Plot another device."""
        if self.kd.frame is None:
            return
        keys = [TOTAL, *(d.key for d in self.kd.frame.devices)]
        at = keys.index(self.plot.device) if self.plot.device in keys else 0
        self.plot.device = keys[(at + step) % len(keys)]
        self.redraw()

    def do_previous_device(self) -> None:
        """Plot the device before."""
        self.do_next_device(-1)

    def do_down(self, step: int = 1) -> None:
        """Select another stage."""
        frame = self.kd.frame
        if frame is None or not frame.stages:
            return
        if self.selected < 0:
            running = frame.running
            self.selected = running.number - 1 if running else (0 if step > 0 else len(frame.stages) - 1)
        else:
            self.selected = min(max(self.selected + step, 0), len(frame.stages) - 1)
        self.kd.follow_log(self.selected)
        self.redraw()

    def do_up(self) -> None:
        """Select the stage above."""
        self.do_down(-1)

    def do_first(self) -> None:
        """Select the first stage."""
        self.selected = 0
        self.do_down(0)

    def do_last(self) -> None:
        """Select the last stage."""
        self.selected = len(self.kd.frame.stages) - 1 if self.kd.frame else -1
        self.do_down(0)

    def do_page_up(self) -> None:
        """As first."""
        self.do_first()

    def do_page_down(self) -> None:
        """As last."""
        self.do_last()

    def do_open(self) -> None:
        """The selected stage's log."""
        self.kd.show("log")

    def do_next_stage(self, step: int = 1) -> None:
        """Jump to another stage's start in a replay; select it in a live view."""
        if not self.kd.replaying:
            self.do_down(step)
            return

        def jump(feed) -> None:
            t = feed.stage_start(step)
            if t is not None:
                feed.seek(t)

        self.kd.ask(jump)

    def do_previous_stage(self) -> None:
        """The stage before."""
        self.do_next_stage(-1)

    def do_copy(self) -> None:
        """Copy the command that shows this run."""
        if self.kd.frame:
            self.kd.copy(f"kdwatch watch {self.kd.frame.run.run_id}")

    def do_play(self) -> None:
        """Play this run from its start."""
        if self.kd.feed is not None:
            self._frozen, self.selected = None, -1
            self.kd.open_run(self.kd.feed.path, replay=True)
            self.refresh_keys()

    def do_step(self) -> None:
        """One sample on."""
        self.kd.ask(lambda feed: feed.step(1))

    def do_step_back(self) -> None:
        """One sample back."""
        self.kd.ask(lambda feed: feed.step(-1))

    def do_on_10(self) -> None:
        """10 s on."""
        self.kd.ask(lambda feed: feed.seek(feed.t + 10))

    def do_back_10(self) -> None:
        """10 s back."""
        self.kd.ask(lambda feed: feed.seek(feed.t - 10))

    def do_faster(self) -> None:
        """Next higher speed."""
        self.kd.ask(lambda feed: feed.change_speed(1))

    def do_slower(self) -> None:
        """Next lower speed."""
        self.kd.ask(lambda feed: feed.change_speed(-1))

    def do_loop(self) -> None:
        """Loop on or off."""
        self.kd.ask(lambda feed: setattr(feed, "loop", not feed.loop))
        self.kd.tell("loop on" if not self.kd.looping else "loop off")

    def do_goto(self) -> None:
        """Ask for a time and jump there."""
        frame = self.kd.frame
        if frame is None or frame.replay is None:
            return
        end_t = frame.replay.end_t

        def check(text: str) -> str | None:
            return None if parse_time(text, end_t) is not None else "no time: 90s, 2m, 1:30, 1:02:03 or 50%"

        def jump(text: str | None) -> None:
            if text is not None:
                t = parse_time(text, end_t) or 0.0
                self.kd.ask(lambda feed: feed.seek(t))

        question = f"Go to which time? The recording is {duration(end_t)} long."
        self.kd.push_screen(AskScreen(question, "1:30, 90s, 50%", check), jump)

    # Control

    def _controls(self) -> Controls | None:
        frame, feed = self.kd.frame, self.kd.feed
        return Controls(self.kd, feed.path, frame) if frame is not None and feed is not None else None

    def do_stop_stage(self) -> None:
        """Stop the running stage, after asking."""
        if controls := self._controls():
            controls.stop_stage()

    def do_skip_stage(self) -> None:
        """Skip the selected or running stage, after asking."""
        frame = self.kd.frame
        if frame is not None and (controls := self._controls()):
            chosen = frame.stages[self.selected] if 0 <= self.selected < len(frame.stages) else None
            controls.skip_stage(chosen)

    def do_stop_run(self) -> None:
        """Stop the run, after asking."""
        if controls := self._controls():
            controls.stop_run()

    def do_extend(self) -> None:
        """Extend the budget, after asking."""
        if controls := self._controls():
            controls.extend()


def budget_pace(frame: Frame) -> float | None:
    """Mean power in watts that would use up the budget just at the forecast end; None where one is unknown."""
    forecast = frame.forecast
    if not frame.budget_j or frame.total_j is None or forecast is None or not forecast.remaining_s:
        return None
    if any(s.status == "pending" for s in frame.stages):
        return None
    return max(frame.budget_j - frame.total_j, 0.0) / forecast.remaining_s
