"""Power history in buckets: what a plot of days needs, without the raw samples."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kdwatch.rundir.parse import Sample

BUCKET_S = 10.0
"""Length of the buckets that a sealed segment leaves in rollups.jsonl."""


Row = list[float]
"""[start_s, end_s, min_w, mean_w, max_w, samples]: a stretch of one device's power."""
WIDTH = 6
COUNT = 5


@dataclass(slots=True)
class Bucket:
    """Power of one device over one stretch of time."""

    start_s: float
    end_s: float
    low_w: float
    high_w: float
    sum_w: float
    count: int

    @property
    def mean_w(self) -> float:
        """Mean of the samples."""
        return self.sum_w / self.count


@dataclass(slots=True)
class PowerOf:
    """Power of one device's samples: the instantaneous field, else the averaged, else the counter's difference."""

    wrap_j: float | None = None
    last: tuple[float, float] | None = None
    has_power: bool = field(default=False)

    def power(self, sample: Sample) -> float | None:
        """Watts at (or, from a counter, before) this sample; None where unknown."""
        watts = sample.power_w if sample.power_w is not None else sample.average_w
        if watts is not None:
            self.has_power = True
            return watts
        if self.has_power or sample.counter_j is None:
            return None
        before, self.last = self.last, (sample.t, sample.counter_j)
        if before is None or sample.t - before[0] < 1e-3:
            return None
        joules = sample.counter_j - before[1]
        if joules < 0 and self.wrap_j:
            joules += self.wrap_j
        return joules / (sample.t - before[0]) if joules >= 0 else None


def powers_by_key(devices: Iterable[Mapping[str, Any]]) -> dict[str, PowerOf]:
    """One PowerOf for each device of a manifest."""
    return {str(d.get("key")): PowerOf(d.get("wrap_j")) for d in devices if isinstance(d, Mapping)}


class Roller:
    """Collects the power of known devices as it is read."""

    def __init__(self, powers: dict[str, PowerOf]) -> None:
        self._powers = powers
        self.rows: dict[str, list[Row]] = {}
        """One row a reading, by device key."""

    def add(self, sample: Sample) -> None:
        """Take one sample in."""
        power = self._powers.get(sample.key)
        watts = power.power(sample) if power is not None else None
        if watts is not None:
            self.rows.setdefault(sample.key, []).append([sample.t, sample.t, watts, watts, watts, 1])


class BucketRoller:
    """The same in buckets of a fixed length, readings in order of time: memory grows with time, not with readings."""

    def __init__(self, powers: dict[str, PowerOf], bucket_s: float = BUCKET_S) -> None:
        self._powers = powers
        self._bucket_s = bucket_s
        self._found: dict[str, dict[float, Bucket]] = {}

    def add(self, sample: Sample) -> None:
        """Take one sample in."""
        power = self._powers.get(sample.key)
        watts = power.power(sample) if power is not None else None
        if watts is None:
            return
        slots = self._found.setdefault(sample.key, {})
        slot = sample.t // self._bucket_s
        bucket = slots.get(slot)
        if bucket is None:
            slots[slot] = Bucket(sample.t, sample.t, watts, watts, watts, 1)
            return
        bucket.end_s = sample.t
        if watts < bucket.low_w:
            bucket.low_w = watts
        elif watts > bucket.high_w:
            bucket.high_w = watts
        bucket.sum_w += watts
        bucket.count += 1

    def add_many(self, key: str, times: Sequence[float], watts: Sequence[float]) -> None:
        """Take readings of one device's power in, in order of time."""
        power = self._powers.get(key)
        if power is None or not times:
            return
        power.has_power = True
        slots = self._found.setdefault(key, {})
        start = 0
        while start < len(times):
            slot = times[start] // self._bucket_s
            end = max(start + 1, bisect_left(times, (slot + 1) * self._bucket_s, start))
            part = watts[start:end]
            bucket = slots.setdefault(slot, Bucket(times[start], times[start], part[0], part[0], 0.0, 0))
            bucket.end_s = times[end - 1]
            bucket.low_w, bucket.high_w = min(bucket.low_w, min(part)), max(bucket.high_w, max(part))
            bucket.sum_w = sum(part, bucket.sum_w)
            bucket.count += len(part)
            start = end

    def buckets(self) -> dict[str, list[Row]]:
        """Rows of one bucket each, by device key."""
        return {
            key: [[b.start_s, b.end_s, b.low_w, b.mean_w, b.high_w, b.count] for _, b in sorted(slots.items())]
            for key, slots in self._found.items()
        }


def encode(number: int, rows: Mapping[str, Iterable[Row]]) -> bytes:
    """One line of rollups.jsonl."""
    devices = {key: [[*(round(v, 2) for v in row[:COUNT]), row[COUNT]] for row in found] for key, found in rows.items()}
    return json.dumps({"segment": number, "devices": devices}, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> tuple[int, dict[str, list[Row]]] | None:
    """A line of rollups.jsonl: segment number, rows by device key; None where it is damaged."""
    try:
        data = json.loads(line)
        devices = {str(key): [row for row in rows if row[COUNT] > 0] for key, rows in data["devices"].items()}
        for rows in devices.values():
            if any(len(row) != WIDTH for row in rows) or not math.isfinite(sum(map(sum, rows))):
                return None
        return int(data["segment"]), devices
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return None


def merge(rows: list[Row], max_points: int) -> list[Bucket]:
    """At most `max_points` buckets of equal spans of time that hold all rows, in order of time."""
    rows = sorted(rows)
    if not rows:
        return []
    span = 0.0
    if len(rows) > max_points >= 1:
        span = (max(row[1] for row in rows) - rows[0][0]) / max_points or 1.0
    found: list[Bucket] = []
    end = -math.inf
    for start_s, end_s, low, mean, high, count in rows:
        if start_s >= end and (span <= 0.0 or len(found) < max_points):
            last = Bucket(start_s, end_s, low, high, mean * count, int(count))
            found.append(last)
            end = rows[0][0] + span * (math.floor((start_s - rows[0][0]) / span) + 1) if span > 0.0 else -math.inf
            continue
        if end_s > last.end_s:
            last.end_s = end_s
        if low < last.low_w:
            last.low_w = low
        if high > last.high_w:
            last.high_w = high
        last.sum_w += mean * count
        last.count += int(count)
    return found
