"""Where the parts of the Run screen go at a terminal's size. Pure; one function to test."""

from __future__ import annotations

from typing import NamedTuple

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this one line says what size is needed."""

WIDE, WIDE_HEIGHT = 110, 16
"""From this size on, tables stand left and plot and devices right."""

LEFT_LEAST, LEFT_MOST = 62, 100
"""Least and most width of the left column: from the fewest to all columns of the stage table."""

TALL_PLOT = 10
"""A stacked plot higher than this shares its rows with the log."""


class Place(NamedTuple):
    """A rectangle in cells; height 0 hides the part."""

    x: int
    y: int
    width: int
    height: int


Arrangement = dict[str, Place]
"""Place of each of `header`, `energy`, `stages`, `plot`, `devices`, `log`, `footer`."""


def arrange(width: int, height: int, stages: int, devices: int) -> Arrangement | None:
    """Places of the parts for that many stages and devices; None where the terminal is too small."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return None
    places = {
        "header": Place(0, 0, width, 1),
        "energy": Place(0, 1, width, 1),
        "footer": Place(0, height - 1, width, 1),
    }
    wide = width >= WIDE and height >= WIDE_HEIGHT
    places |= (_side_by_side if wide else _stacked)(width, height, stages, devices)
    return places


def _side_by_side(width: int, height: int, stages: int, devices: int) -> Arrangement:
    """Stages and log left, plot and devices right, an empty row above and an empty column between."""
    top, room = 3, height - 4
    left = min(max(width * 46 // 100, LEFT_LEAST), LEFT_MOST)
    right_x, right = left + 2, width - left - 2
    stage_rows = min(stages + 3, max(room - 5, 4))
    device_rows = min(devices + 1, max(room * 6 // 10, 3))
    return {
        "stages": Place(0, top, left, stage_rows),
        "log": Place(0, top + stage_rows + 1, left, max(room - stage_rows - 1, 0)),
        "plot": Place(right_x, top, right, room - device_rows),
        "devices": Place(right_x, top + room - device_rows, right, device_rows),
    }


def _stacked(width: int, height: int, stages: int, devices: int) -> Arrangement:
    """Stages, plot, devices, and a log where there is plenty of room."""
    room = height - 3
    stage_rows = min(stages + 3, max(room * 2 // 5, 2))
    device_rows = min(devices + 1, max(room // 4, 2)) if room >= 9 else 0
    plot_rows = room - stage_rows - device_rows
    log_rows = min(plot_rows - 8, 8) if plot_rows > TALL_PLOT else 0
    plot_rows -= log_rows
    y = 2 + stage_rows
    return {
        "stages": Place(0, 2, width, stage_rows),
        "plot": Place(0, y, width, plot_rows),
        "devices": Place(0, y + plot_rows, width, device_rows),
        "log": Place(0, y + plot_rows + device_rows, width, log_rows),
    }
