"""A recording played on the same frames: a clock that pauses, jumps and runs at 1x to 1000x."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kdwatch.rundir import layout
from kdwatch.rundir.parse import Sample, parse_event
from kdwatch.rundir.text import clean
from kdwatch.tui.feed import LOG_LINES, RunFeed
from kdwatch.tui.fmt import duration
from kdwatch.tui.frame import Frame, ReplayState, StageRow

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Speeds of the faster and slower keys."""

PLAY_ON_S = 120.0
"""A jump forward up to this far plays on; a longer one begins at the nearest checkpoint."""

CHUNK = 1 << 18
"""Bytes of events read at a time."""


class ReplayFeed(RunFeed):
    """Plays a run directory; at the end of one that is still being written it follows."""

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 1.0,
        start: float = 0.0,
        g_per_kwh: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(path, g_per_kwh=g_per_kwh)
        self.speed = speed
        self.paused = False
        self.loop = False
        self._clock = clock
        self._before: float | None = None
        self._position = 0
        self._start = start
        self._events: Iterator[dict[str, Any]] = iter(())
        self._samples: Iterator[Sample] = iter(())
        self._next_event: dict[str, Any] | None = None
        self._next_sample: Sample | None = None
        self._target = 0.0
        self.end_t = 0.0
        self._taken = [0, 0]
        self._base = (0, 0)
        self._following = False
        self._timeline: list[tuple[float, str]] | None = None

    def _stand(self, segment: int, events_offset: int, t: float) -> None:
        self.t = t
        self._base, self._taken, self._following = (segment, events_offset), [0, 0], False
        self._events = lazy_events(self.path / layout.EVENTS, events_offset)
        self._samples = self.reader.iter_samples(after=segment)
        self._next_event = next(self._events, None)
        self._next_sample = next(self._samples, None)

    def frame(self) -> Frame:
        """Move the clock and return the picture at its time."""
        first = not self._opened
        if first:
            self.end_t = self.find_end()
            self.seek(self._start)
        now = self._clock()
        if self._before is not None and not self.paused:
            self._target += (now - self._before) * self.speed
        self._before = now
        if self._target >= self.end_t:
            self._at_end()
        self._play_to(min(self._target, self.end_t))
        return self.still(first)

    def _at_end(self) -> None:
        """Follow a recording that grows; else begin again, or pause."""
        if self.paused:
            self._target = min(self._target, self.end_t)
        elif self.reader.status() == "running":
            self._follow()
        elif self.loop:
            self.seek(0.0)
        else:
            self._target = self.end_t
            self.paused = True

    def _follow(self) -> None:
        """Take what was written since; the first time, leave out what was played already."""
        skip_samples, skip_events = 0, 0
        if not self._following:
            self._play_to(self.end_t)
            self.reader.skip_to(*self._base)
            skip_samples, skip_events = self._taken
            self._following = True
        batch = self.reader.poll()
        self.take(batch.events[skip_events:], batch.samples[skip_samples:])
        self._target = self.end_t = max(self.end_t, self.t)

    def pause(self, on: bool) -> None:
        """Pause or go on; a replay that followed goes on from where it was paused."""
        if on and self._following:
            self.open(until=self.t)
            self._play_to(self._target)
        self.paused = on
        if not on and self._target >= self.end_t and self.reader.status() != "running":
            self.seek(0.0)

    def still(self, first: bool = False) -> Frame:
        """The picture at the clock's time."""
        if self.t >= self.end_t and self.reader.status() == "interrupted":
            self.ledger.interrupt()
        status = self.ledger.status
        self._read_info()
        state = ReplayState(self.speed, self.paused, self.loop, self.end_t)
        return self.picture(status, live=False, first=first, replay=state)

    def seek(self, t: float) -> None:
        """Jump to a run time."""
        t = min(max(t, 0.0), self.end_t)
        if not self._opened or t < self.t or t - self.t > PLAY_ON_S:
            self._lost.clear()
            self.open(until=t)
            self.notices = type(self.notices)()
        self._target = t
        self._play_to(t)
        self.notices.on(self.still(), quiet=True)

    def step(self, direction: int) -> None:
        """One sample on (+1) or back (-1), paused."""
        self.paused = True
        if direction > 0:
            if self._next_sample is not None:
                self.seek(self._next_sample.t)
            return
        earlier = self._sample_before(self.t)
        self.seek(earlier if earlier is not None else 0.0)

    def _sample_before(self, t: float) -> float | None:
        """Time of the last samples before `t`."""
        for back in (3.0, 60.0, 900.0):
            found = None
            for sample in self.reader.iter_samples(start=max(t - back, 0.0), end=t - 1e-6):
                if sample.t < t:
                    found = sample.t
            if found is not None:
                return found
        return None

    def change_speed(self, step: int) -> None:
        """The next faster (+1) or slower (-1) of SPEEDS."""
        faster = [s for s in SPEEDS if s > self.speed]
        slower = [s for s in SPEEDS if s < self.speed]
        self.speed = (faster or [SPEEDS[-1]])[0] if step > 0 else (slower or [SPEEDS[0]])[-1]

    def stage_start(self, step: int) -> float | None:
        """Start of the next (+1) or an earlier (-1) stage, seen from the clock; None where there is none."""
        starts = sorted(self.starts())
        if step > 0:
            return next((s for s in starts if s > self.t + 0.05), None)
        return next((s for s in reversed(starts) if s < self.t - 1.0), 0.0)

    def starts(self) -> list[float]:
        """Run times at which stages started, over the whole recording."""
        return [e["t"] for e in self._all_events() if e["type"] in ("stage_started", "stage_reused", "stage_skipped")]

    def log_part(self, rows: Sequence[StageRow], replay: ReplayState | None) -> dict[str, Any]:
        """What happened up to the clock's time: a log has no times, so a replay shows the events."""
        if self._timeline is None or self._following:
            self._timeline = [(e["t"], text) for e in self._all_events() if (text := event_text(e))]
        end = bisect_right(self._timeline, self.t, key=lambda item: item[0])
        lines = [f"{duration(t)}  {text}" for t, text in self._timeline[max(end - LOG_LINES, 0) : end]]
        return {"log_title": "events", "log": lines}

    def _all_events(self) -> Iterator[dict[str, Any]]:
        return lazy_events(self.path / layout.EVENTS, 0)

    def find_end(self) -> float:
        """Run time of the last event or sample on disk."""
        checkpoint = self.reader.checkpoint()
        number, offset, t = 0, 0, 0.0
        if checkpoint is not None:
            number, offset, t = checkpoint["number"], checkpoint["events_offset"], checkpoint["t"]
        for event in lazy_events(self.path / layout.EVENTS, offset):
            t = max(t, event["t"])
        for sample in self.reader.iter_samples(after=number):
            t = max(t, sample.t)
        return t

    def _play_to(self, t: float) -> None:
        """Feed events and samples up to run time `t`, events first where both fall together."""
        with self.lock:
            while True:
                sample, event = self._next_sample, self._next_event
                if event is not None and event["t"] <= t and (sample is None or event["t"] <= sample.t):
                    self.take_event(event)
                    self._taken[1] += 1
                    self._next_event = next(self._events, None)
                elif sample is not None and sample.t <= t:
                    self.take_sample(sample)
                    self._taken[0] += 1
                    self._next_sample = next(self._samples, None)
                else:
                    break
            self.history.settle()
        self.t = max(self.t, t)


def event_text(event: Mapping[str, Any]) -> str | None:
    """An event in words; None for those that the tables show better."""
    kind, stage = event["type"], clean(event.get("stage"), 60)
    match kind:
        case "stage_started":
            return f"{stage} started"
        case "stage_ended":
            code = event.get("exit_code")
            return f"{stage} {clean(event.get('status'), 20)}" + (f", exit code {clean(code, 6)}" if code else "")
        case "stage_skipped":
            return f"{stage} skipped {clean(event.get('reason'), 80)}".rstrip()
        case "stage_reused":
            return f"{stage} reused an earlier output"
        case "phase":
            if event.get("name") == "work":
                return None  # what a stage does unless it says otherwise
            return f"{stage} phase {clean(event.get('name'), 20)}"
        case "run_started" | "run_ended":
            return f"run {kind[4:]} {clean(event.get('status'), 20)}".rstrip()
        case "warning":
            return f"warning {clean(event.get('code'), 30)}: {clean(event.get('text'), 300)}"
        case "sensor":
            what, text = clean(event.get("what"), 20), clean(event.get("text"), 120)
            return f"sensor {clean(event.get('device'), 20)} {what} {text}".rstrip()
        case "control":
            return f"asked: {clean(event.get('action'), 20)} {stage}".rstrip()
        case "quality":
            q = event.get("q")
            return f"{stage} quality Q {q:.3f}" if isinstance(q, float) else f"{stage} quality"
        case "artifact":
            return f"{stage} made {clean(event.get('kind'), 30)} {clean(event.get('artifact'), 12)}"
    return None


def lazy_events(path: Path, offset: int) -> Iterator[dict[str, Any]]:
    """Events of a file from a byte offset on, read in pieces; damaged and torn lines are left out."""
    try:
        with path.open("rb") as f:
            f.seek(offset)
            rest = b""
            while data := f.read(CHUNK):
                lines = (rest + data).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    if event := parse_event(line):
                        yield event
    except OSError:
        return
