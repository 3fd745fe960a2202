"""What a chart of energy and quality shows: the frontier's staircase and the budget's line."""

from __future__ import annotations

from collections.abc import Sequence

from kdwatch.ledger.units import three_digits
from planners.wording import energy

FAR = 3.0
"""A budget beyond this multiple of the dearest point is told and not drawn: its line would push all points together."""


def staircase(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Corners of the frontier's steps through (energy, quality), by energy: right at the same quality, then up."""
    xs: list[float] = []
    ys: list[float] = []
    for x, y in points:
        if ys:
            xs.append(x)
            ys.append(ys[-1])
        xs.append(x)
        ys.append(y)
    return xs, ys


def budget_line(allowed_kwh: float | None, dearest_kwh: float, scale: float) -> tuple[float | None, str]:
    """Where to draw the budget, in the axis's unit of `scale` to a kWh (None: nowhere), and what to say of it."""
    if allowed_kwh is None:
        return None, ""
    if allowed_kwh > FAR * dearest_kwh:
        return None, f"budget {energy(allowed_kwh)}: far to the right"
    return allowed_kwh * scale, f"line: budget {three_digits(allowed_kwh * scale)}"
