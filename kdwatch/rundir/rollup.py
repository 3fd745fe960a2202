"""Power history in buckets: what a plot of days needs, without the raw samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kdwatch.rundir.parse import Sample

BUCKET_S = 10.0
"""Length of the buckets that a sealed segment leaves in rollups.jsonl."""


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

    def add(self, other: Bucket) -> None:
        """Take another bucket in."""
        self.start_s = min(self.start_s, other.start_s)
        self.end_s = max(self.end_s, other.end_s)
        self.low_w = min(self.low_w, other.low_w)
        self.high_w = max(self.high_w, other.high_w)
        self.sum_w += other.sum_w
        self.count += other.count


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
    """Collects samples of known devices into buckets of a fixed length."""

    def __init__(self, powers: dict[str, PowerOf], bucket_s: float = BUCKET_S) -> None:
        self._powers = powers
        self._bucket_s = bucket_s
        self.buckets: dict[str, dict[int, Bucket]] = {}

    def add(self, sample: Sample) -> None:
        """Take one sample in."""
        power = self._powers.get(sample.key)
        watts = power.power(sample) if power is not None else None
        if watts is None:
            return
        of_device = self.buckets.setdefault(sample.key, {})
        slot = int(sample.t // self._bucket_s)
        new = Bucket(sample.t, sample.t, watts, watts, watts, 1)
        if (old := of_device.get(slot)) is None:
            of_device[slot] = new
        else:
            old.add(new)


def encode(number: int, buckets: Mapping[str, Mapping[int, Bucket]]) -> bytes:
    """One line of rollups.jsonl."""
    devices = {
        key: [
            [
                round(b.start_s, 2),
                round(b.end_s, 2),
                round(b.low_w, 1),
                round(b.sum_w / b.count, 2),
                round(b.high_w, 1),
                b.count,
            ]
            for b in slots.values()
        ]
        for key, slots in buckets.items()
    }
    return json.dumps({"segment": number, "devices": devices}, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> tuple[int, dict[str, list[Bucket]]] | None:
    """A line of rollups.jsonl; None where it is damaged."""
    try:
        data = json.loads(line)
        devices = {
            str(key): [Bucket(s, e, low, high, mean * n, n) for s, e, low, mean, high, n in rows if n > 0]
            for key, rows in data["devices"].items()
        }
        return int(data["segment"]), devices
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def merge(buckets: list[Bucket], max_points: int) -> list[Bucket]:
    """At most `max_points` buckets of equal spans of time that hold all of `buckets`."""
    if len(buckets) <= max_points or max_points < 1:
        return buckets
    start = min(b.start_s for b in buckets)
    span = (max(b.end_s for b in buckets) - start) / max_points or 1.0
    merged: dict[int, Bucket] = {}
    for b in buckets:
        slot = min(int((b.start_s - start) / span), max_points - 1)
        if (old := merged.get(slot)) is None:
            merged[slot] = Bucket(b.start_s, b.end_s, b.low_w, b.high_w, b.sum_w, b.count)
        else:
            old.add(b)
    return [merged[slot] for slot in sorted(merged)]
