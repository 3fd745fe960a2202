"""A ledger from a run directory: the newest checkpoint, then what came after it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kdwatch.ledger.core import Ledger
from kdwatch.rundir.parse import Sample
from kdwatch.rundir.reader import Batch, RunReader


def feed(ledger: Ledger, batch: Batch) -> None:
    """Give a batch to the ledger, events and samples in order of time."""
    for entry in _in_order(batch.events, batch.samples):
        _give(ledger, entry)


def _in_order(events: Any, samples: Any) -> Iterator[Sample | Mapping[str, Any]]:
    keyed_events = ((e["t"], 0, n, e) for n, e in enumerate(events))
    keyed_samples = ((s.t, 1, n, s) for n, s in enumerate(samples))
    for *_, entry in heapq.merge(keyed_events, keyed_samples, key=lambda k: k[:2]):
        yield entry


def _give(ledger: Ledger, entry: Sample | Mapping[str, Any]) -> None:
    if isinstance(entry, Sample):
        ledger.sample(*entry)
    else:
        ledger.event(entry)


def resume(reader: RunReader, until: float | None = None) -> tuple[Ledger, int, int]:
    """The ledger of the newest usable checkpoint not after `until`, its segment number and its events' offset."""
    for number in reversed(list(reader.checkpoint_files())):
        found = reader.checkpoint_numbered(number)
        if found is None or (until is not None and found["t"] > until):
            continue
        try:
            return Ledger.from_state(reader.manifest, found["ledger"]), number, found["events_offset"]
        except ValueError:
            continue
    return Ledger(reader.manifest), 0, 0


def open_live(path: Path) -> tuple[RunReader, Ledger]:
    """A reader placed after the newest checkpoint and the ledger of that checkpoint: `feed(ledger, reader.poll())`
    brings it up to date, now and later. Opens a run of days in well under a second."""
    reader = RunReader(path)
    ledger, number, offset = resume(reader)
    reader.skip_to(number, offset)
    return reader, ledger


def load_ledger(path: Path, until: float | None = None) -> Ledger:
    """The ledger of a run, up to run time `until`. A run whose recorder is gone ends with its last reading."""
    reader = RunReader(path)
    ledger, number, offset = resume(reader, until)
    events = sorted(reader.iter_events(offset), key=lambda e: e["t"])
    samples = reader.iter_samples(end=until, after=number)
    for entry in _in_order((e for e in events if until is None or e["t"] <= until), samples):
        _give(ledger, entry)
    if until is None and reader.status() == "interrupted":
        ledger.interrupt()
    return ledger
