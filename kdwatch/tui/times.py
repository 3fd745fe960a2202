"""Times as people type them: `90`, `90s`, `2m`, `1:30`, `1:02:03`, `50%`."""

from __future__ import annotations

import re
from pathlib import Path

from kdwatch.rundir.errors import UsageProblem

_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|%)?")
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_FACTORS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_time(text: str, end_t: float) -> float | None:
    """Run time in seconds out of what was typed; None where it is no time. `%` is of `end_t`."""
    text = text.strip()
    if match := _CLOCK.fullmatch(text):
        return int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3])
    if match := _PLAIN.fullmatch(text):
        if match[2] == "%":
            return end_t * min(float(match[1]), 100.0) / 100.0
        return float(match[1]) * _FACTORS[match[2]]
    return None


def start_of(text: str, run: Path) -> float:
    """Run time at which a replay begins. Raises UsageProblem where `text` is no time."""
    if text.strip() in ("", "0"):
        return 0.0
    end_t = 0.0
    if "%" in text:
        from kdwatch.tui.replay import ReplayFeed

        end_t = ReplayFeed(run).find_end()
    found = parse_time(text, end_t)
    if found is None:
        raise UsageProblem(f"--at {text}: no time: use 90s, 2m, 1:30 or 50%")
    return found
