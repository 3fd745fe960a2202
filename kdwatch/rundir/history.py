"""Power history of a run for plots: rollups of sealed segments, samples of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kdwatch.rundir import layout
from kdwatch.rundir.parse import parse_rows, read_lines
from kdwatch.rundir.rollup import Bucket, Roller, Row, decode, merge, powers_by_key


def power_history(run: Path, devices: Iterable[Mapping[str, Any]], max_points: int) -> dict[str, list[Bucket]]:
    """Power by device key, at most `max_points` buckets each, in order of time."""
    found: dict[str, list[Row]] = {}
    rolled = _rollups(run, found)
    roller = Roller(powers_by_key(devices))
    for stream, numbers in layout.segments(run).items():
        if layout.is_info(stream):
            continue
        for number in sorted(set(numbers) - rolled):
            for parser, t, cells in parse_rows(read_lines(numbers[number])):
                for sample in parser.samples(t, cells):
                    roller.add(sample)
    for key, rows in roller.rows.items():
        found.setdefault(key, []).extend(rows)
    return {key: merge(rows, max_points) for key, rows in found.items()}


def _rollups(run: Path, found: dict[str, list[Row]]) -> set[int]:
    """Put the rows of every readable rollup into `found`; returns the segment numbers they cover."""
    try:
        lines = (run / layout.ROLLUPS).read_bytes().split(b"\n")
    except OSError:
        return set()
    done: set[int] = set()
    for line in lines:
        if (entry := decode(line)) and entry[0] not in done:
            done.add(entry[0])
            for key, rows in entry[1].items():
                found.setdefault(key, []).extend(rows)
    return done
