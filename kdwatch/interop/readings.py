"""All readings of an imported run in order of time, some thousand at once, as its files will hold them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kdwatch.interop.model import LoggedDevice
from kdwatch.interop.series import trapezoids
from kdwatch.interop.timeline import Piece, Timeline

INSIDE_S = 2e-6
"""Samples lie this much after their time, so that the first is inside its stage and counts for its peak."""
SMALL_J = 100.0
"""Below this energies are written with nine digits instead of three decimals."""


@dataclass(slots=True)
class Batch:
    """Readings of one device in order of time, columns of equal length."""

    times: Sequence[float]
    """Run time in seconds."""
    watts: Sequence[float | None]
    joules: Sequence[float | None]
    """Of this device since the run began; None: not known at this moment."""

    def part(self, start: int, end: int) -> Batch:
        return Batch(self.times[start:end], self.watts[start:end], self.joules[start:end])


def windows(timeline: Timeline, devices: Sequence[LoggedDevice], edges: Sequence[float]) -> Iterator[list[Batch]]:
    """Stretches of run time: a batch a device, all of them after what came before.

    No stretch holds readings from both before and after one of `edges` (sorted run times).
    """
    end = max(piece.end for piece in timeline.pieces)
    heads = [_Head(_of_device(device, _pieces_of(timeline, device), end)) for device in devices]
    cuts = [*edges, math.inf]
    at = 0
    while lasts := [head.batch.times[-1] for head in heads if head.filled()]:
        while cuts[at] <= min(head.next_t for head in heads if head.filled()):
            at += 1
        horizon = min(lasts)
        if cuts[at] <= horizon:
            yield [head.before(cuts[at]) for head in heads]
        else:
            yield [head.up_to(horizon) for head in heads]


class _Head:
    """A device's batches, and how far they are used."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.batch = Batch((), (), ())
        self._at = 0

    def filled(self) -> bool:
        """Whether there are readings left; the next batch is there then."""
        while self._at >= len(self.batch.times):
            found = next(self._batches, None)
            if found is None:
                return False
            self.batch, self._at = found, 0
        return True

    @property
    def next_t(self) -> float:
        return self.batch.times[self._at]

    def before(self, t: float) -> Batch:
        return self._take(bisect_left(self.batch.times, t, self._at))

    def up_to(self, t: float) -> Batch:
        return self._take(bisect_right(self.batch.times, t, self._at))

    def _take(self, end: int) -> Batch:
        start, self._at = self._at, end
        return self.batch.part(start, end)


def rows_of(batches: Sequence[Batch]) -> tuple[Sequence[float], list[str]]:
    """Times and cells of the rows of a stretch: watts and joules of each device."""
    filled = [batch for batch in batches if batch.times]
    texts = [_texts(batch) for batch in batches]
    if len(filled) == len(batches) and all(batch.times == batches[0].times for batch in batches[1:]):
        return batches[0].times, texts[0] if len(batches) == 1 else list(map(",".join, zip(*texts, strict=True)))
    rows: dict[float, list[str]] = {}
    blank = [","] * len(batches)
    for number, (batch, cells) in enumerate(zip(batches, texts, strict=True)):
        for t, text in zip(batch.times, cells, strict=True):
            row = rows.get(t)
            if row is None:
                row = rows[t] = blank.copy()
            row[number] = text
    times = sorted(rows)
    return times, [",".join(rows[t]) for t in times]


def _texts(batch: Batch) -> list[str]:
    watts = [value for value in batch.watts if value is not None]
    joules = [value for value in batch.joules if value is not None and value >= SMALL_J]
    if len(watts) == len(joules) == len(batch.times):
        return ["%.3f,%.3f" % pair for pair in zip(watts, joules, strict=True)]  # noqa: UP031  (f-string is slower here)
    return [f"{_watts(w)},{_joules(j)}" for w, j in zip(batch.watts, batch.joules, strict=True)]


def _watts(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _joules(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= SMALL_J else f"{value:.9g}"


def _written(joules: float) -> float:
    """Energy as its cell holds it."""
    return round(joules, 3) if joules >= SMALL_J else float(f"{joules:.9g}")


def _pieces_of(timeline: Timeline, device: LoggedDevice) -> list[Piece]:
    return [piece for piece in timeline.pieces if any(d is device for d in piece.devices)]


def _edge(t: float, joules: float) -> Batch:
    return Batch([round(t, 6)], [None], [_written(joules)])


def _of_device(device: LoggedDevice, pieces: list[Piece], end: float) -> Iterator[Batch]:
    """From the run's start to its end: outside its stages the counter stands still."""
    last = _edge(0.0, 0.0)
    if pieces and pieces[0].start > 0:
        yield last
    for last in _inside_stages(device, pieces):
        yield last
    if last.times[-1] < round(end, 6):
        yield Batch([round(end, 6)], [None], last.joules[-1:])


def _inside_stages(device: LoggedDevice, pieces: list[Piece]) -> Iterator[Batch]:
    joules = 0.0
    for piece in pieces:
        if device.series is not None and device.stats and device.stats.energy_j is not None:
            yield from _from_series(device, piece)
        elif device.counter is not None:
            yield from _from_counter(device, piece)
        elif (energy := stage_energy(device, piece)) is not None:
            yield _edge(piece.start, joules)
            joules += energy
            yield from _drawn(device, piece)
            yield _edge(piece.end, joules)


def stage_energy(device: LoggedDevice, piece: Piece) -> float | None:
    """Joules of a device in a stage whose file gives sums; None where it gives none."""
    if piece.stage.energy_j:
        return piece.stage.energy_j.get(device.key)
    return device.energy_j


def has_readings(device: LoggedDevice, piece: Piece) -> bool:
    """Whether the device's energy in this stage is known."""
    measured = device.series is not None and device.stats is not None and device.stats.energy_j is not None
    return measured or device.counter is not None or stage_energy(device, piece) is not None


def _drawn(device: LoggedDevice, piece: Piece) -> Iterator[Batch]:
    """Watts inside a stage, where a log beside it has some."""
    if device.drawn is None or piece.origin is None:
        return
    shift, start, end = piece.start - piece.origin, round(piece.start, 6), round(piece.end, 6)
    for times, watts in device.drawn.blocks():
        pairs = ((round(t + shift, 6), round(w, 3)) for t, w in zip(times, watts, strict=True))
        if inside := [(t, w) for t, w in pairs if start < t < end]:
            yield Batch([t for t, _ in inside], [w for _, w in inside], [None] * len(inside))


def _from_series(device: LoggedDevice, piece: Piece) -> Iterator[Batch]:
    """Power over time, and beside it the energy by the trapezoid so far."""
    assert device.series is not None
    shift = piece.start - (piece.origin or 0.0) + INSIDE_S
    yield _edge(piece.start, 0.0)
    joules, last_t = 0.0, piece.start
    for (times, watts), (_, parts) in zip(device.series.blocks(), trapezoids(device.series.blocks()), strict=True):
        sums = list(accumulate(parts, initial=joules))[len(parts) + 1 - len(times) :]
        joules = sums[-1]
        written = [round(j, 3) for j in sums] if sums[0] >= SMALL_J else list(map(_written, sums))
        shifted = [round(t + shift, 6) for t in times]
        last_t = shifted[-1]
        yield Batch(shifted, [round(w, 3) for w in watts], written)
    if last_t < round(piece.end, 6):
        yield _edge(piece.end, joules)


def _from_counter(device: LoggedDevice, piece: Piece) -> Iterator[Batch]:
    assert device.counter is not None
    shift = piece.start - (piece.origin or 0.0)
    first, last, joules = True, -1.0, 0.0
    for times, sums in device.counter.sorted_blocks():
        if first and times[0] + shift > piece.start:
            yield _edge(piece.start, 0.0)
        first = False
        last, joules = times[-1] + shift, sums[-1]
        yield Batch([round(t + shift, 6) for t in times], [None] * len(times), list(map(_written, sums)))
    if 0 <= round(last, 6) < round(piece.end, 6):
        yield _edge(piece.end, joules)
