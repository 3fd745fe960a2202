"""Sensors: what each gives on this machine now, what the open run was measured with, and what to do."""

from __future__ import annotations

from typing import Any, NamedTuple

from textual import work
from textual.message import Message

from kdwatch.rundir.text import clean
from kdwatch.tui.screens.listing import ListingScreen
from kdwatch.tui.view.line import Line, cut, left, length, wrapped

TONES = {"ok": "good", "warn": "warn", "denied": "bad", "unavailable": "bad", "unsupported": "dim", "absent": "dim"}
"""Tone of a sensor's status."""

INDENT = 24
"""Cells before a sensor's text."""


class SensorRow(NamedTuple):
    """One sensor in words."""

    stream: str
    status: str
    text: str
    fix: str


def sensor_row(stream: Any, status: Any, text: Any, fix: Any) -> SensorRow:
    """Made harmless: a manifest may hold anything."""
    return SensorRow(clean(stream, 20), clean(status, 20), clean(text, 300), clean(fix, 300))


def manifest_rows(manifest: Any) -> list[SensorRow]:
    """What a run's manifest says of its sensors."""
    sensors = manifest.get("sensors")
    found = [s for s in sensors if isinstance(s, dict)] if isinstance(sensors, list) else []
    return [sensor_row(s.get("stream"), s.get("status"), s.get("text"), s.get("fix")) for s in found]


class SensorsScreen(ListingScreen):
    """Asks the sensors once, beside the screen, and again on reload."""

    NAME = "sensors"

    class Asked(Message):
        """The sensors have answered."""

        def __init__(self, rows: list[SensorRow]) -> None:
            super().__init__()
            self.rows = rows

    def __init__(self) -> None:
        super().__init__()
        self.here: list[SensorRow] | None = None

    def on_screen_resume(self) -> None:
        """Ask when first shown."""
        super().on_screen_resume()
        if self.here is None:
            self.do_reload()

    def do_reload(self) -> None:
        """Ask again."""
        self.here = None
        self._ask()
        self.redraw()

    @work(thread=True, exclusive=True, group="sensors")
    def _ask(self) -> None:
        self.post_message(self.Asked(self.kd.ask_sensors()))

    def on_sensors_screen_asked(self, message: Asked) -> None:
        """Show the answer."""
        self.here = message.rows
        self.redraw()

    def heading(self) -> str:
        return "Sensors"

    def content(self, width: int) -> list[Line]:
        feed = self.kd.feed
        lines: list[Line] = []
        if feed is not None:
            lines += _section(f"This run ({feed.run.name})", manifest_rows(feed.manifest), width)
            lines += [*self._devices(width), ()]
        if self.here is None:
            return [*lines, (("This machine, now", "head"),), (("  asking the sensors", "dim"),)]
        return lines + _section("This machine, now", self.here, width)

    def _devices(self, width: int) -> list[Line]:
        frame = self.kd.frame
        lines: list[Line] = []
        for row in frame.devices if frame else ():
            coverage = "" if row.coverage is None else f", {row.coverage * 100:.1f}% covered"
            text = f"{row.source or 'n/a'}, scope {row.scope}{coverage}"
            key = (f"  {left(row.key, 10)}", "accent")
            if width >= INDENT + 16 + length(((text, ""),)):
                lines.append((key, (left(row.label, 28), ""), (text, "dim")))
                continue
            lines.append((key, (cut(row.label, width - 12), "")))
            lines += [((" " * 12 + part, "dim"),) for part in wrapped(text, max(width - 12, 16))]
        return lines


def _section(title: str, rows: list[SensorRow], width: int) -> list[Line]:
    lines: list[Line] = [((title, "head"),)]
    if not rows:
        lines.append((("  nothing was recorded about sensors", "dim"),))
    for row in rows:
        tone = TONES.get(row.status, "warn")
        texts = wrapped(row.text, max(width - INDENT, 16))
        lines.append(((f"  {left(row.stream, 10)}", "accent"), (left(row.status, 12), tone), (texts[0], "")))
        lines += [((" " * INDENT + text, ""),) for text in texts[1:]]
        for n, text in enumerate(wrapped(row.fix, max(width - INDENT - 4, 16)) if row.fix else ()):
            lines.append(((" " * INDENT + ("do: " if n == 0 else "    "), "dim"), (text, "accent")))
    return lines


def ask_sensors() -> list[SensorRow]:
    """Open what can be read on this machine, note its state, close it."""
    from kdwatch.meters.discover import discover

    found = discover()
    rows = [sensor_row(s.stream, s.status, s.text, s.fix) for s in found.sensors]
    found.close()
    return rows
