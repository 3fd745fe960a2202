"""Time without power readings on a device that has a counter: what was counted then has nothing to be checked by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Span(NamedTuple):
    """Power fell silent at `start` and spoke again at `end`; the counter moved by `joules`."""

    start: float
    end: float
    joules: float


class DarkTime:
    """Seconds and joules of a counter over the gaps of the power beside it. Times are run time."""

    def __init__(self) -> None:
        self.past_s = 0.0
        self.past_j = 0.0
        self.spans: list[Span] = []
        self.last: tuple[float, float, float] | None = None
        """Of the newest power reading: time, the counter then, uncovered time of the power up to it."""

    def reading(self, t: float, joules: float, uncovered_s: float) -> None:
        """A power reading at `t`, when the counter stood at `joules`."""
        if self.last is not None and uncovered_s > self.last[2]:
            self.spans.append(Span(self.last[0], t, max(0.0, joules - self.last[1])))
        self.last = (t, joules, uncovered_s)

    def at(self, t: float, joules: float, held_s: float) -> tuple[float, float]:
        """Dark seconds and joules up to `t`, when the counter stood at `joules`; power holds for `held_s` after its
        newest reading."""
        seconds, dark_j = self.past_s, self.past_j
        for span in self.spans:
            share = min(1.0, max(0.0, (t - span.start) / (span.end - span.start)))
            seconds += share * (span.end - span.start)
            dark_j += share * span.joules
        if self.last is not None and t - self.last[0] > held_s:
            silent = t - self.last[0]
            seconds += silent - held_s
            dark_j += max(0.0, joules - self.last[1]) * (silent - held_s) / silent
        return seconds, dark_j

    def prune(self, before: float) -> None:
        """Keep only the sums of spans that ended before a time."""
        for span in [s for s in self.spans if s.end <= before]:
            self.past_s += span.end - span.start
            self.past_j += span.joules
        self.spans = [s for s in self.spans if s.end > before]

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""
        return {"past": [self.past_s, self.past_j], "spans": [list(s) for s in self.spans], "last": self.last}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.past_s, self.past_j = map(float, state["past"])
        self.spans = [Span(*map(float, s)) for s in state["spans"]]
        last = state["last"]
        self.last = (float(last[0]), float(last[1]), float(last[2])) if last else None
