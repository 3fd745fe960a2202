"""The recorder's one door to the run directory and the live ledger: both always see the same."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from kdwatch.ledger.core import Ledger, Totals
from kdwatch.meters.base import Device, Reading
from kdwatch.rundir.writer import RunWriter

log = logging.getLogger("kdwatch.recorder")

SAME_ROW_S = 0.002
"""Readings of one poll that lie closer than this share a row."""
BATCH_S = 0.4
"""Readings wait this long before they are written together: one by one costs three times as much, since the
processor's caches are cold after each sleep."""
ACCOUNT_S = 2.0
"""Readings wait this long before the ledger takes them, for the same reason; an event or a question takes them at
once."""
SEAL_S = 600.0
"""Length of a segment in seconds."""


def columns_of(devices: Sequence[Device], first: Sequence[Reading]) -> list[tuple[str, str]]:
    """(device key, field) of each column of a meter's stream: what its devices should give, and what they gave."""
    given = {
        (r.key, name) for r in first for name in ("counter_j", "power_w", "average_w") if getattr(r, name) is not None
    }
    columns = []
    for device in devices:
        expected = {
            "counter_j": device.source == "counter",
            "power_w": device.kind in ("gpu", "other") or device.source != "counter",
            "average_w": device.average_window_s > 0,
        }
        columns += [(device.key, name) for name, due in expected.items() if due or (device.key, name) in given]
    return columns


Place = tuple[int | None, int | None, int | None]
"""Columns of a device's counter, power and averaged power."""
Row = tuple[float, float | None, float | None, float | None]
"""Run time, counter, power, averaged power of one device as the file holds them."""

SUFFIX = {"counter_j": "_j", "power_w": "_w", "average_w": "_avg_w"}


NOWHERE: Place = (None, None, None)
_time = attrgetter("t")


def _put(values: list[float | None], at: int | None, value: float | None) -> float | None:
    """Put a value into its column, rounded as the file holds it, and return that; None where it has no column."""
    if at is None or value is None:
        return None
    values[at] = kept = round(float(value), 3)
    return kept


class Recording:
    """Writes events and samples and feeds the ledger, from any thread.

    A fault of the ledger costs the live numbers, never the record: it is logged, and a warning event says so once.
    """

    def __init__(self, writer: RunWriter) -> None:
        self.writer = writer
        self.ledger = Ledger(writer.manifest)
        self._lock = threading.RLock()
        self._origin = float(writer.manifest["clock"]["monotonic_origin"])
        self._places: dict[str, dict[str, Place]] = {}
        self._widths: dict[str, int] = {}
        self._ledger_failed = False
        self._warned: set[tuple[Any, ...]] = set()
        self._sealed_t = 0.0
        self._waiting: list[tuple[str, Sequence[Reading]]] = []
        self._unaccounted: dict[str, list[Row]] = {}
        self._unaccounted_since = self._newest_t = 0.0
        self.tap: Callable[[Sequence[Reading]], None] | None = None
        """Sees every reading too (idle baseline)."""

    def run_time(self, monotonic: float) -> float:
        """Run time of a CLOCK_MONOTONIC reading."""
        return monotonic - self._origin

    def now(self) -> float:
        """Run time now."""
        return self.writer.now()

    def event(self, type: str, t: float | None = None, **fields: Any) -> None:
        """Record one event; `t` is run time, None means now. Fields that are None stay (null is an answer)."""
        with self._lock:
            self._account()
            found = self.writer.event(type, t, **fields)
            self._guarded(lambda: self.ledger.event(found))

    def warn(self, code: str, text: str, **fields: Any) -> None:
        """Record a warning, once for each code, text, stage and device."""
        key = (code, text, fields.get("stage"), fields.get("device"))
        with self._lock:
            if key not in self._warned:
                self._warned.add(key)
                self.event("warning", code=code, text=text, **fields)

    def open_stream(self, stream: str, devices: Sequence[Device], first: Sequence[Reading]) -> None:
        """Begin a meter's stream."""
        columns = columns_of(devices, first)
        with self._lock:
            at = {column: i for i, column in enumerate(columns)}
            self._places[stream] = {
                key: (at.get((key, "counter_j")), at.get((key, "power_w")), at.get((key, "average_w")))
                for key, _ in columns
            }
            self._widths[stream] = len(columns)
            self.writer.open_stream(stream, [key + SUFFIX[name] for key, name in columns])

    def renew_devices(self, devices: Sequence[Device]) -> None:
        """Put into the manifest what is now known of devices. The live ledger goes on with what it knew."""
        known = {d.key: asdict(d) for d in devices}
        with self._lock:
            entries = [{**entry, **known.get(entry["key"], {})} for entry in self.writer.manifest["devices"]]
            names = [entry["name"] for entry in entries if entry["kind"] == "gpu"]
            hardware = {**self.writer.manifest["hardware"], "gpus": names}
            self.writer.update_manifest(devices=entries, hardware=hardware)

    def open_table(self, stream: str, columns: Sequence[str]) -> None:
        """Begin a stream of slow facts, which the ledger does not see."""
        with self._lock:
            self.writer.open_stream(stream, columns)

    def row(self, stream: str, values: Sequence[Any]) -> None:
        """Add a row to a stream of slow facts."""
        with self._lock:
            self.writer.sample(stream, self.writer.now(), values)

    def readings(self, stream: str, readings: Sequence[Reading]) -> None:
        """Record the readings of one poll or burst. They are in the file within about half a second."""
        if not readings:
            return
        with self._lock:
            if self.tap is not None:
                self.tap(readings)
            self._waiting.append((stream, readings))
            if readings[-1].t - self._waiting[0][1][0].t >= BATCH_S:
                self._take_waiting()
                self.writer.flush()

    def _take_waiting(self) -> None:
        """Write the readings that wait; the ledger takes them now and then."""
        waiting, self._waiting = self._waiting, []
        for stream, readings in waiting:
            rows = sorted(readings, key=_time)
            begin, keys = 0, {rows[0].key}
            for i, reading in enumerate(rows):
                if i and (reading.t - rows[begin].t > SAME_ROW_S or reading.key in keys):
                    self._row(stream, rows[begin:i])
                    begin, keys = i, set()
                keys.add(reading.key)
            self._row(stream, rows[begin:])
        if self._unaccounted and self._newest_t - self._unaccounted_since >= ACCOUNT_S:
            self._feed()

    def _account(self) -> None:
        """Write and account all that waits. Before an event too, so that the ledger sees them in order."""
        self._take_waiting()
        self._feed()

    def _row(self, stream: str, readings: Sequence[Reading]) -> None:
        t = round((readings[0].t + readings[-1].t) / 2 - self._origin, 6)
        places = self._places[stream]
        values: list[float | None] = [None] * self._widths[stream]
        if not self._unaccounted:
            self._unaccounted_since = t
        self._newest_t = t
        for reading in readings:
            at_counter, at_power, at_average = places.get(reading.key, NOWHERE)
            counter = _put(values, at_counter, reading.counter_j)
            power = _put(values, at_power, reading.power_w)
            average = _put(values, at_average, reading.average_w)
            self._unaccounted.setdefault(reading.key, []).append((t, counter, power, average))
        self.writer.sample(stream, t, values)

    def _feed(self) -> None:
        """Give the ledger what waits, device by device: it keeps their accounts apart."""
        waiting, self._unaccounted = self._unaccounted, {}
        if self._ledger_failed:
            return
        try:
            sample = self.ledger.sample
            for key, rows in waiting.items():
                for t, counter, power, average in rows:
                    sample(t, key, counter, power, average)
        except Exception as error:
            self._ledger_fault(error)

    def _guarded(self, call: Any) -> Any:
        if self._ledger_failed:
            return None
        try:
            return call()
        except Exception as error:
            self._ledger_fault(error)
            return None

    def _ledger_fault(self, error: Exception) -> None:
        self._ledger_failed = True
        log.exception("ledger failed")
        text = f"live accounting stopped ({type(error).__name__}); the record goes on and `kdwatch report` reads it"
        self.writer.event("warning", code="ledger_fault", text=text)

    def totals(self) -> Totals | None:
        """Energy so far; None if the live ledger failed."""
        with self._lock:
            self._account()
            return self._guarded(lambda: self.ledger.totals(self.writer.now()))

    def flush(self) -> None:
        """Hand to the files what has waited long enough: a meter that polls often does so itself."""
        with self._lock:
            if self._waiting and self.writer.now() + self._origin - self._waiting[0][1][0].t >= BATCH_S:
                self._take_waiting()
            self.writer.flush()

    def seal_if_due(self) -> None:
        """Close the segments each ten minutes, with a checkpoint of the ledger."""
        with self._lock:
            if self.now() - self._sealed_t >= SEAL_S:
                self.seal()

    def seal(self) -> None:
        """Close the segments now. Without a ledger there is no checkpoint, and segments stay open."""
        with self._lock:
            self._account()
            self._sealed_t = self.now()
            if not self._ledger_failed:
                state = self._guarded(self.ledger.state)
                if state is not None:
                    self.writer.seal(state)

    def close(self) -> None:
        """Flush and close all files."""
        with self._lock:
            self._take_waiting()
            self.writer.close()
