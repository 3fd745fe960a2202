"""Bars of stages, drawn by plotext without colour, for texts and screens that stand still."""

from __future__ import annotations

from collections.abc import Sequence

PARTS = 1000
"""What the largest energy is to plotext: whole numbers, because it takes room for all digits of fractions."""
AROUND = len(f"{PARTS:.1f}") + 2
"""Cells that plotext keeps beside a bar for its value and the blanks around; the label is empty."""


def stage_bars(energies: Sequence[float | None], width: int, marker: str = "▇") -> list[str]:
    """A bar of at most `width` cells for each energy, on one scale from 0 to the largest, which fills them (a terminal
    narrower than `width + AROUND` shortens all).

    Unknown and zero give an empty bar; anything above zero gets a cell.
    """
    top = max((e for e in energies if e is not None), default=0.0)
    if top <= 0.0 or width < 1:
        return [""] * len(energies)
    import plotext

    plotext.clear_figure()
    parts = [round(max(e or 0.0, 0.0) / top * PARTS) for e in energies]
    plotext.simple_bar([""] * len(parts), parts, width=width + AROUND, marker=marker)
    rows = plotext.uncolorize(plotext.build()).split("\n")
    plotext.clear_figure()
    return [marker * max(row.count(marker), 1 if e else 0) for row, e in zip(rows, energies, strict=False)]
