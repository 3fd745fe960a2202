"""How much of a run's raw samples the plot reads when it opens: what is quick to read, the newest first."""

from __future__ import annotations

from pathlib import Path

from kdwatch.rundir import layout

DETAIL_BYTES = 700_000
"""Packed bytes of samples that are read: fifteen minutes of 8 GPUs at 10 Hz, hours of a laptop."""

PACKED = 3.5
"""An open segment is about so many times as large as a sealed one."""


def first_detailed(run: Path, segment: int) -> int:
    """Number of the first segment up to `segment` whose samples are read in full; `segment + 1` where none is.

    What comes after `segment` is read anyhow and counts first.
    """
    sizes: dict[int, float] = {}
    for stream, numbers in layout.segments(run).items():
        if layout.is_info(stream):
            continue
        for number, path in numbers.items():
            sizes[number] = sizes.get(number, 0.0) + _packed_size(path)
    left = DETAIL_BYTES - sum(size for number, size in sizes.items() if number > segment)
    first = segment + 1
    for number in sorted((n for n in sizes if n <= segment), reverse=True):
        left -= sizes[number]
        if left < 0:
            break
        first = number
    return first


def _packed_size(path: Path) -> float:
    try:
        size = path.stat().st_size
    except OSError:
        return 0.0
    return size if path.suffix == ".gz" else size / PACKED
