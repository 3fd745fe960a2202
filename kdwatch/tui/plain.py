"""The same frames without a screen: one frame of text, or one line a second and a table at the end.

For pipes, TERM=dumb and `--once`. Imports no Textual.
"""

from __future__ import annotations

import locale
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from kdwatch.ledger.grid import intensity
from kdwatch.settings import Settings, load
from kdwatch.tui import hooks
from kdwatch.tui.feed import RunFeed
from kdwatch.tui.fmt import Units, count, duration, plain, ratio, scaled
from kdwatch.tui.frame import Frame, mark
from kdwatch.tui.history import TOTAL
from kdwatch.tui.raster import ASCII, Glyphs, choose_glyphs
from kdwatch.tui.view.devices import device_lines
from kdwatch.tui.view.header import energy_line, header_line
from kdwatch.tui.view.line import Line, text_of
from kdwatch.tui.view.plot import PlotSpec, plot_lines, sub_columns
from kdwatch.tui.view.stages import stage_lines

PLOT_ROWS = 8
"""Height of the plot in a frame of text."""

ENDED = ("completed", "failed", "stopped", "interrupted", "over_budget", "imported")
"""Statuses after which nothing more comes."""


def can_show_screen() -> bool:
    """True if both ends are a terminal that can move its cursor. Textual draws to stderr when stdout is none, so
    both are asked."""
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()


def colours_of_screen(environment: Mapping[str, str]) -> dict[str, str]:
    """What to change in the environment under GNU screen: it hands COLORTERM on from the terminal around it, and takes
    24-bit colours for other attributes; 256 colours it can show."""
    if not environment.get("STY"):
        return {}
    term = environment.get("TERM", "")
    return {"COLORTERM": "", "TERM": term if "256color" in term else "screen-256color"}


def units_of(settings: Settings, frame: Frame) -> Units:
    """The unit asked for, with the run's own grid and PUE before the settings'."""
    pue = frame.run.pue if frame.run.pue != 1.0 else settings["pue"] or 1.0
    return Units(settings["units"], frame.run.g_per_kwh, pue, settings["energy_price"], settings["currency"])


def fallback_intensity(settings: Settings) -> float | None:
    """g CO2e per kWh of the settings' intensity or region, for runs that say neither."""
    found = intensity(settings["region"], settings["intensity"])
    return found.g_per_kwh if found else None


def glyphs_for(settings: Settings, out: TextIO) -> Glyphs:
    """Characters that `out` can take: ASCII where its encoding has no more."""
    encoding = getattr(out, "encoding", None) or locale.getpreferredencoding(False)
    return choose_glyphs(settings["glyphs"], encoding, os.environ.get("TERM", ""))


def frame(
    path: Path, width: int | None = None, command_line: Mapping[str, Any] | None = None, at_t: float | None = None
) -> str:
    """One frame of a run as text of `width` columns (the terminal's, or 80 where there is none): the newest, or that
    of run time `at_t`."""
    settings = load(command_line)
    feed = RunFeed(path, g_per_kwh=fallback_intensity(settings)) if at_t is None else _standing(path, at_t, settings)
    width = width or shutil.get_terminal_size((80, 24)).columns
    return _harmless(render(feed, feed.frame(), settings, width, glyphs_for(settings, sys.stdout)), sys.stdout)


def _standing(path: Path, at_t: float, settings: Settings) -> RunFeed:
    """A replay that is paused at a run time."""
    from kdwatch.tui.replay import ReplayFeed

    feed = ReplayFeed(path, start=at_t, g_per_kwh=fallback_intensity(settings))
    feed.paused = True
    return feed


def render(feed: RunFeed, now: Frame, settings: Settings, width: int, glyphs: Glyphs) -> str:
    """Header, stages, plot, devices and warnings, one below the other."""
    units = units_of(settings, now)
    lines: list[Line] = [header_line(now, width), energy_line(now, width, units, glyphs), ()]
    lines += [*stage_lines(now, width, units), ()]
    with feed.lock:
        view = feed.history.view(TOTAL, 0.0, max(now.t, 1.0), sub_columns(width, glyphs), now.t)
    marks = tuple((s.start_s, s.name) for s in now.stages if s.start_s is not None)
    spec = PlotSpec("total", "all", marks, sign=mark(now.total_source))
    lines += [*plot_lines(view, spec, width, PLOT_ROWS, glyphs), ()]
    lines += device_lines(now, width, units, glyphs)
    lines += [((f"warning {code}: {text}", "warn"),) for code, text in now.warnings]
    return "\n".join(text_of(line).rstrip() for line in lines) + "\n"


def _harmless(text: str, out: TextIO) -> str:
    """What `out` cannot encode becomes `?`, so that nothing fails for a name."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def status_line(now: Frame, units: Units) -> str:
    """One second of a run in one line: time, stage, power, energy, tokens/s."""
    sign = mark(now.total_source)
    power, total = scaled(now.power_w, "W"), units.energy(now.total_j)
    parts = [duration(now.t), sign + power if power != "n/a" else power, sign + total if total != "n/a" else total]
    row = now.running
    if row is not None:
        parts.append(f"{row.number}/{len(now.stages)} {row.name}")
        parts += [ratio(row.done)] if row.done is not None else []
        parts += [f"step {row.step}/{row.total_steps}"] if row.total_steps else []
        parts += [f"{count(row.tokens_per_s)} tok/s"] if row.tokens_per_s else []
        parts += [f"{plain(row.j_per_token)} J/token"] if row.j_per_token else []
        parts += [f"loss {plain(row.loss)}"] if row.loss is not None else []
    else:
        parts.append(now.status.replace("_", " "))
    if now.budget_share is not None:
        parts.append(f"{ratio(now.budget_share)} of budget")
    return "  ".join(parts)


def follow(
    path: Path,
    out: TextIO | None = None,
    *,
    period_s: float = 1.0,
    wait: Callable[[float], object] = time.sleep,
    stop: Callable[[], bool] = lambda: False,
    command_line: Mapping[str, Any] | None = None,
) -> int:
    """Print one line per second until the run ends, then the final table. Returns 0 once it has ended, or when
    `stop()` says so; the run itself is never touched. A closed pipe ends it quietly. Notices call the user's hooks."""
    out = out or sys.stdout
    settings = load(command_line)
    feed = RunFeed(path, g_per_kwh=fallback_intensity(settings))
    try:
        while True:
            now = feed.frame()
            for notice in now.notices:
                _say(out, f"{duration(now.t)}  {notice.text}")
                hooks.call(settings.hooks, notice, now)
            if now.status in ENDED:
                _say(out, "")
                out.write(_harmless(render(feed, now, settings, 100, _static_glyphs(settings, out)), out))
                out.flush()
                return 0
            _say(out, status_line(now, units_of(settings, now)))
            if stop():
                return 0
            wait(period_s)
    except BrokenPipeError:
        return 0


def _static_glyphs(settings: Settings, out: TextIO) -> Glyphs:
    """A log file is read with anything: ASCII unless the user chose otherwise."""
    return ASCII if settings["glyphs"] == "auto" and not out.isatty() else glyphs_for(settings, out)


def _say(out: TextIO, text: str) -> None:
    out.write(_harmless(text, out) + "\n")
    out.flush()
