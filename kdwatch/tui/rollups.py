"""Rolled-up power of a run's sealed segments, for the plot. Folded segment by segment: days of rows kept as objects
would take tens of megabytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path

from kdwatch.rundir import layout

Rolled = Sequence[float]
"""A row of rollups.jsonl: start s, end s, min W, mean W, max W, number of samples."""

Segment = Mapping[str, Sequence[Rolled]]
"""Rows of one segment by device key, in order of time."""

Slots = dict[int, list[float]]
"""By number of a slot of time: lowest W, sum of the rows' means, highest W, number of rows."""

HEAD = 20
"""Segments out of which the rows' spacing is learnt."""


def read_rollups(run: Path) -> Iterator[Segment]:
    """A run's rollups.jsonl, a segment at a time; damaged lines and a segment's second line are left out."""
    done: set[int] = set()
    try:
        with (run / layout.ROLLUPS).open("rb") as f:
            for line in f:
                try:
                    data = json.loads(line)
                    number, rows = data["segment"], data["devices"]
                    if number in done:
                        continue
                    done.add(number)
                    yield {key: [row for row in of_key if len(row) == 6] for key, of_key in rows.items()}
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
    except OSError:
        return


def fold(segments: Iterable[Segment], until: float, least_s: float, most: int) -> tuple[float, dict[str, Slots]]:
    """The rows that end by run time `until` in slots of equal length, by device; with the slots' length in s.

    A slot is at least `least_s` long, long enough that no row steps over one, and there are at most `most`.
    """
    rest = iter(segments)
    head = list(islice(rest, HEAD))
    span = max(least_s, _spacing(head) * 1.05, until / most)
    out: dict[str, Slots] = {}
    for segment in chain(head, rest):
        for key, rows in segment.items():
            try:
                _take(rows, span, until, out.setdefault(key, {}))
            except (TypeError, ValueError, OverflowError):
                continue  # cells that are no numbers
    return span, out


def _spacing(segments: Sequence[Segment]) -> float:
    """Time between two rows' starts in s, the usual one; 0 where there are no two."""
    try:
        pairs = (pair for segment in segments for rows in segment.values() for pair in pairwise(rows))
        steps = sorted(b[0] - a[0] for a, b in pairs)
    except TypeError:
        return 0.0
    return steps[len(steps) // 2] if steps else 0.0


def _take(rows: Sequence[Rolled], span: float, until: float, slots: Slots) -> None:
    for start, end, low, mean, high, _ in rows:
        if end > until:
            continue
        slot = int(start // span)
        there = slots.get(slot)
        if there is None:
            slots[slot] = [float(low), float(mean), float(high), 1]
            continue
        if low < there[0]:
            there[0] = low
        if high > there[2]:
            there[2] = high
        there[1] += mean
        there[3] += 1
