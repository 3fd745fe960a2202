"""Names inside a run directory. Schema 1 (docs/run-directory.md)."""

from __future__ import annotations

import re
from pathlib import Path

SCHEMA = 1
EVENTS = "events.jsonl"
SAMPLES = "samples"
CHECKPOINTS = "checkpoints"
ROLLUPS = "rollups.jsonl"
FOLDERS = (SAMPLES, CHECKPOINTS, "progress", "stages", "logs", "control")
INFO = "info"
"""Streams of slow facts are called `info` or `info_METER`; they hold no power or energy."""

_SEGMENT = re.compile(r"([A-Za-z][\w.-]*)-(\d{6,})\.csv(\.gz)?")
_CHECKPOINT = re.compile(r"(\d{6,})\.json")
SUFFIXES = ("_avg_w", "_j", "_w")
"""Column suffixes, the longest first: averaged power, counter, instantaneous power."""


def is_info(stream: str) -> bool:
    """Whether a stream holds slow facts."""
    return stream == INFO or stream.startswith(f"{INFO}_")


def segment_name(stream: str, number: int) -> str:
    """File name of an open segment; a sealed one adds `.gz`."""
    return f"{stream}-{number:06d}.csv"


def segments(run: Path) -> dict[str, dict[int, Path]]:
    """Segment files by stream and number; where both forms are there, the sealed one, which is whole."""
    found: dict[str, dict[int, Path]] = {}
    try:
        names = sorted(p.name for p in (run / SAMPLES).iterdir())
    except OSError:
        return {}
    for name in names:  # "x.csv" sorts before "x.csv.gz", so that the sealed form wins
        if match := _SEGMENT.fullmatch(name):
            found.setdefault(match[1], {})[int(match[2])] = run / SAMPLES / name
    return {stream: dict(sorted(numbers.items())) for stream, numbers in found.items()}


def checkpoints(run: Path) -> dict[int, Path]:
    """Checkpoint files by number, oldest first."""
    try:
        names = [p.name for p in (run / CHECKPOINTS).iterdir()]
    except OSError:
        return {}
    found = {int(m[1]): run / CHECKPOINTS / n for n in names if (m := _CHECKPOINT.fullmatch(n))}
    return dict(sorted(found.items()))


def split_column(column: str) -> tuple[str, str] | None:
    """`g0_avg_w` -> (`g0`, `_avg_w`); None where the suffix is unknown."""
    for suffix in SUFFIXES:
        if column.endswith(suffix) and len(column) > len(suffix):
            return column[: -len(suffix)], suffix
    return None
