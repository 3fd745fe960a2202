"""Pictures for the HTML report: power over time with the stages behind it, energy by stage. Plain SVG, no script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from html import escape
from typing import Any

from kdwatch.ledger.marks import marked, modelled
from kdwatch.ledger.units import format_duration
from kdwatch.rundir.rollup import Bucket
from kdwatch.rundir.text import clean

WIDTH, HEIGHT = 900, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 16, 30
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7570b3")
"""Distinguishable with colour-blind eyes (Okabe and Ito), in this order for devices and components."""
PARTS = ("gpu", "cpu", "dram", "ram_estimated", "other")


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about `count` of them."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low]
    step = 10 ** math.floor(math.log10(span / count))
    step *= next((m for m in (1, 2, 5, 10) if span / (step * m) <= count), 10)
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def power_chart(
    history: Mapping[str, Sequence[Bucket]],
    report: Mapping[str, Any],
    names: Mapping[str, str],
    stepped: Set[str] = frozenset(),
) -> str:
    """Mean power of each device over run time, its minimum and maximum as a band. Empty without power.

    Devices in `stepped` have a counter only: each value is the mean since the one before.
    """
    shown = {key: buckets for key, buckets in history.items() if buckets}
    end = max((b.end_s for buckets in shown.values() for b in buckets), default=0.0)
    top = max((b.high_w for buckets in shown.values() for b in buckets), default=0.0)
    if not shown or end <= 0 or top <= 0:
        return ""
    plot = _Plot(end, top * 1.1)  # room for the stages' names
    parts = [*_stage_bands(plot, report), *plot.axes("W")]
    for number, (key, buckets) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        if key in stepped:
            points = " ".join(_steps(plot, buckets))
        else:
            parts.append(_band(plot, buckets, colour))
            points = " ".join(plot.point((b.start_s + b.end_s) / 2, b.mean_w) for b in buckets)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(_legend(number, colour, names.get(key, key)))
    return _svg("Power over time", parts, HEIGHT + 18 * ((len(shown) + 2) // 3))


class _Plot:
    """Run time and watts to places in the picture."""

    def __init__(self, end_s: float, top_w: float) -> None:
        self.end_s, self.top_w = end_s, top_w

    def x(self, t: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, t / self.end_s))

    def y(self, watts: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(1.0, max(0.0, watts / self.top_w))

    def point(self, t: float, watts: float) -> str:
        return f"{self.x(t):.1f},{self.y(watts):.1f}"

    def axes(self, unit: str) -> Iterator[str]:
        for value in ticks(0, self.top_w):
            y = self.y(value)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g} {unit}</text>'
        for value in ticks(0, self.end_s, 6):
            text = escape(format_duration(value))
            yield f'<text x="{self.x(value):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{text}</text>'


def _stage_bands(plot: _Plot, report: Mapping[str, Any]) -> Iterator[str]:
    for number, stage in enumerate(report["stages"]):
        if stage["start_s"] is None or stage["end_s"] is None:
            continue
        x, width = plot.x(stage["start_s"]), plot.x(stage["end_s"]) - plot.x(stage["start_s"])
        name = escape(clean(stage["name"], 40))
        yield (
            f'<rect x="{x:.1f}" y="{TOP}" width="{max(width, 0.5):.1f}" height="{HEIGHT - TOP - BOTTOM}" '
            f'class="stage{number % 2}"><title>{name}</title></rect>'
        )
        if width > 7 * len(name):
            yield f'<text x="{x + 4:.1f}" y="{TOP + 11}" class="quiet">{name}</text>'


def _band(plot: _Plot, buckets: Sequence[Bucket], colour: str) -> str:
    upper = [plot.point((b.start_s + b.end_s) / 2, b.high_w) for b in buckets]
    lower = [plot.point((b.start_s + b.end_s) / 2, b.low_w) for b in reversed(buckets)]
    return f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.2"/>'


def _steps(plot: _Plot, buckets: Sequence[Bucket]) -> Iterator[str]:
    since = 0.0
    for bucket in buckets:
        yield plot.point(since, bucket.mean_w)
        yield plot.point(bucket.end_s, bucket.mean_w)
        since = bucket.end_s


def _legend(number: int, colour: str, name: str) -> str:
    x, y = LEFT + (number % 3) * 270, HEIGHT + 8 + 18 * (number // 3)
    return (
        f'<rect x="{x}" y="{y - 9}" width="12" height="10" fill="{colour}"/>'
        f'<text x="{x + 17}" y="{y}">{escape(clean(name, 34))}</text>'
    )


def energy_chart(report: Mapping[str, Any]) -> str:
    """Energy by stage, one bar each, split into components."""
    stages = [s for s in report["stages"] if s["energy_j"]["total"]]
    top = max((s["energy_j"]["total"] for s in stages), default=0.0)
    if not top:
        return ""
    parts: list[str] = []
    for number, stage in enumerate(stages):
        parts += _bar(number, stage, top)
    used = [p for p in PARTS if any(s["energy_j"][p] for s in stages)]
    y = 26 * len(stages) + 22
    for number, part in enumerate(used):
        x = 200 + 130 * number
        parts.append(f'<rect x="{x}" y="{y - 9}" width="12" height="10" fill="{COLOURS[PARTS.index(part)]}"/>')
        parts.append(f'<text x="{x + 17}" y="{y}">{part}</text>')
    return _svg("Energy by stage", parts, y + 10)


def _bar(number: int, stage: Mapping[str, Any], top: float) -> Iterator[str]:
    y, x, width = 26 * number + 6, 200.0, WIDTH - 200 - 110
    energy, kinds = stage["energy_j"], modelled(stage["devices"])
    yield f'<text x="192" y="{y + 13}" text-anchor="end">{escape(clean(stage["name"], 26))}</text>'
    for place, part in enumerate(PARTS):
        value = energy[part] or 0.0
        length = width * value / top
        if length > 0:
            title = escape(f"{part}: {marked(value, part in kinds)}")
            yield (
                f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="18" fill="{COLOURS[place]}">'
                f"<title>{title}</title></rect>"
            )
        x += length
    yield f'<text x="{x + 6:.1f}" y="{y + 13}">{escape(marked(energy["total"], bool(energy["estimated"])))}</text>'


def _svg(title: str, parts: Sequence[str], height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
