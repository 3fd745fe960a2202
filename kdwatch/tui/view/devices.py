"""The table of devices, and the one-line form for many of them in a small place."""

from __future__ import annotations

from collections.abc import Sequence

from kdwatch.tui.fmt import Units, plain, ratio, watts
from kdwatch.tui.frame import DeviceRow, Frame, mark
from kdwatch.tui.raster import Glyphs, bar
from kdwatch.tui.view.line import Line, Piece, cut
from kdwatch.tui.view.table import Column, fitting, header, row_line

NAME_MIN = 12
"""Least cells for a device's name."""

HEAT = "▁▂▃▄▅▆▇█"
"""Levels of a heat cell; digits 0-9 serve where only ASCII can be shown."""


def columns(units: Units, glyphs: Glyphs) -> list[Column[DeviceRow]]:
    """Every column of the table, in order."""
    return [
        Column("W", 7, _power, 1),
        Column("of limit", 8, lambda r: (_limit_bar(r, glyphs), "line"), 4),
        Column("energy", 12, lambda r: _known(mark(r.source) + units.energy(r.energy_j)), 2),
        Column("util", 4, lambda r: _known(ratio(_share(r.utilization)), optional=True), 5),
        Column("memory", 7, lambda r: _known(_gib(r.memory_b), optional=True), 7),
        Column("temp", 4, lambda r: _known(_celsius(r.temperature_c), optional=True), 6),
        Column("source", 10, lambda r: (r.source or "n/a", "dim"), 3, "left"),
    ]


def _power(row: DeviceRow) -> Piece:
    if row.state == "lost":
        return "lost", "bad"
    if row.power_w is None:
        return "n/a", "dim"
    return mark(row.source) + watts(row.power_w), ""


def _known(text: str, optional: bool = False) -> Piece:
    if text.endswith("n/a"):
        return ("-" if optional else "n/a"), "dim"
    return text, ""


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _gib(value: float | None) -> str:
    return plain(None if value is None else value / 2**30, "G").replace(" ", "")


def _celsius(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f}C"


def limit_share(row: DeviceRow) -> float | None:
    """Power over the enforced limit, or None where either is unknown."""
    if row.power_w is None or not row.limit_w:
        return None
    return row.power_w / row.limit_w


def _limit_bar(row: DeviceRow, glyphs: Glyphs) -> str:
    share = limit_share(row)
    return "" if share is None else bar(share, 8, glyphs)


def device_lines(
    frame: Frame, width: int, units: Units, glyphs: Glyphs, height: int | None = None, selected: str = ""
) -> list[Line]:
    """Head and one line a device; where the height does not allow it, GPUs fold into one line of heat cells."""
    rows = list(frame.devices)
    if not rows:
        nothing: Line = (("No device gives power or energy. Press i for what each sensor says.", "warn"),)
        return [nothing]
    shown = fitting(columns(units, glyphs), width, NAME_MIN)
    lines = [header("   device", shown, width)]
    gpus = [r for r in rows if r.kind == "gpu"]
    if height is not None and len(rows) + 1 > height and len(gpus) > 1:
        lines.append(heat_line(gpus, width, glyphs))
        rest = [r for r in rows if r.kind != "gpu"]
        room = max(height - 2 - len(rest), 0)
        rows = [*_focused(gpus, room, selected), *rest]
    for row in rows:
        tone = "accent" if row.key == selected else ""
        lines.append(row_line((f" {'>' if row.key == selected else ' '} {row.label}", tone), row, shown, width))
    return lines if height is None else lines[: max(height, 1)]


def _focused(rows: Sequence[DeviceRow], room: int, selected: str) -> list[DeviceRow]:
    """As many rows as there is room for, the selected one among them."""
    at = next((i for i, r in enumerate(rows) if r.key == selected), 0)
    start = min(max(at - room + 1, 0), max(len(rows) - room, 0))
    return list(rows[start : start + room])


def heat_line(gpus: Sequence[DeviceRow], width: int, glyphs: Glyphs) -> Line:
    """Number, sum, least and most power of the GPUs, and a heat cell for each."""
    powers = [r.power_w for r in gpus if r.power_w is not None]
    sign = mark(next((r.source for r in gpus if mark(r.source)), None))
    unknown = len(gpus) - len(powers)
    if powers:
        text = f"   {len(gpus)} GPU {sign}{watts(sum(powers))} W, each {watts(min(powers))}-{watts(max(powers))} W "
    else:
        text = f"   {len(gpus)} GPU n/a "
    note = f" ({unknown} n/a)" if unknown and powers else ""
    cells = heat_cells(gpus, glyphs)
    return ((cut(text, width), "head"), (cut(cells, max(width - len(text), 0)), "line"), (note, "dim"))


def heat_cells(gpus: Sequence[DeviceRow], glyphs: Glyphs) -> str:
    """One character a GPU: power over its limit, or over the highest power where no limit is known."""
    top = max((r.power_w for r in gpus if r.power_w is not None), default=0.0)
    levels = "0123456789" if glyphs.name == "ascii" else HEAT
    out = []
    for row in gpus:
        share = limit_share(row)
        if share is None and row.power_w is not None and top > 0:
            share = row.power_w / top
        out.append("?" if share is None else levels[min(int(max(share, 0) * len(levels)), len(levels) - 1)])
    return "".join(out)
