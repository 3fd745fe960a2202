"""The lines above the tables: which run, how it stands, how much of the budget is gone."""

from __future__ import annotations

from datetime import UTC, datetime

from kdwatch.tui.fmt import Units, duration, ratio, scaled
from kdwatch.tui.frame import Frame, mark
from kdwatch.tui.raster import Glyphs, bar
from kdwatch.tui.view.line import Line, Piece, cut, length, spread, width_of

FORECAST_ROOM = 46
"""Cells that the bar of the budget leaves to its share and the forecast."""

STATUS_TONES = {
    "running": "accent",
    "completed": "good",
    "imported": "good",
    "failed": "bad",
    "interrupted": "bad",
    "over_budget": "bad",
    "stopped": "warn",
}
"""Tone of each status of a run."""


def status_piece(frame: Frame) -> Piece:
    """What is on the screen: a live run, a replay with its speed, or a finished run's status."""
    if frame.replay is not None:
        state = "paused" if frame.replay.paused else f"{frame.replay.speed:g}x"
        return f"replay {state}", "warn" if frame.replay.paused else "accent"
    if frame.status == "running" and frame.silent_s is not None:
        return f"no answer for {frame.silent_s:.0f} s", "warn"
    failed = next((s for s in frame.stages if s.status == "failed"), None)
    if frame.status == "failed" and failed is not None and failed.exit_code is not None:
        return f"failed: {cut(failed.name, 24)}, exit code {failed.exit_code}", "bad"
    word = "live" if frame.status == "running" and frame.live else frame.status.replace("_", " ")
    return word, STATUS_TONES.get(frame.status, "warn")


def header_line(frame: Frame, width: int, frozen_s: float | None = None) -> Line:
    """Name and status at the left, run time and wall clock at the right."""
    word, tone = status_piece(frame)
    if frozen_s is not None:
        word, tone = f"frozen {frozen_s:.0f} s", "warn"
    clock = _clock(frame, width)
    room = width - width_of(word) - length(clock) - 12
    start: list[Piece] = [("kdwatch ", "dim"), (cut(frame.run.name, max(room, 8)), "head"), ("  ", ""), (word, tone)]
    return spread(start, clock, width)


def _clock(frame: Frame, width: int) -> list[Piece]:
    """Run time, of how much in a replay; with the wall clock where it fits."""
    text = duration(frame.t)
    if frame.replay is not None:
        text += f" / {duration(frame.replay.end_t)}"
    if width >= 90 and frame.run.started_wall is not None:
        at = datetime.fromtimestamp(frame.run.started_wall + frame.t, UTC)
        return [(text, ""), (at.strftime("  %Y-%m-%d %H:%M:%S UTC"), "dim")]
    return [(text, "")]


def energy_line(frame: Frame, width: int, units: Units, glyphs: Glyphs) -> Line:
    """Power now, energy so far, budget with a bar, forecast; the rear ones give way on a narrow screen."""
    sign = mark(frame.total_source)
    start: list[Piece] = [_power(frame, sign), ("  ", "")]
    total = units.energy(frame.total_j)
    start.append((sign + total if total != "n/a" else total, "head"))
    if frame.missing:
        start.append((f" without {', '.join(frame.missing)}", "warn"))
    share = frame.budget_share
    if frame.budget_j:
        start += _budget(frame, width - length(start), units, glyphs, share)
    return spread(start, forecast_pieces(frame, units, width - length(start) - 2), width)


def _power(frame: Frame, sign: str) -> Piece:
    """Power now; of a run that is over, its mean."""
    over = frame.status != "running" and frame.replay is None
    if over and frame.total_j is not None and frame.t > 0:
        return f"mean {sign}{scaled(frame.total_j / frame.t, 'W')}", "accent"
    power = scaled(frame.power_w, "W")
    return (power if power == "n/a" else sign + power), "accent"


def _budget(frame: Frame, room: int, units: Units, glyphs: Glyphs, share: float | None) -> list[Piece]:
    tone = "bad" if (share or 0) >= 1 else "warn" if (share or 0) >= 0.8 else "good"
    text = f" of {units.energy(frame.budget_j)} "
    bar_width = min(max(room - len(text) - (FORECAST_ROOM if frame.forecast else 12), 6), 24)
    pieces: list[Piece] = [(text, ""), (bar(share, bar_width, glyphs), tone), (f" {ratio(share)}", tone)]
    fitting = (pieces, [pieces[0], pieces[2]], [pieces[2]])
    return next((p for p in fitting if length(p) <= room), [])


def forecast_pieces(frame: Frame, units: Units, room: int) -> list[Piece]:
    """Energy and time to come, marked as predicted: as much of it as fits into `room` cells."""
    forecast = frame.forecast
    if forecast is None:
        return []
    time = "" if forecast.remaining_s is None else f"{duration(forecast.remaining_s)} to go"
    texts = []
    if forecast.total_j is not None:
        energy = f"{'forecast' if forecast.whole else 'stage'} ?{units.energy(forecast.total_j)}"
        if forecast.low_j is not None and forecast.high_j is not None:
            span = f"{energy} ({units.energy(forecast.low_j)} to {units.energy(forecast.high_j)})"
            texts.append(f"{span}, {time}" if time else span)
        texts.append(f"{energy}, {time}" if time else energy)
    texts.append(time)
    fitting = next((text for text in texts if text and width_of(text) <= room), "")
    return [(fitting, "dim")] if fitting else []
