"""What stages report of themselves: their KDWATCH_EVENTS files, tailed, checked, and handed on as events."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LINE_LIMIT_B = 65536
READ_LIMIT_B = 1 << 20
"""Bytes taken at one time from one file: a flood waits, it does not stall the recorder."""
TEXT_LIMIT = 2000
EVENTS_LIMIT = 50_000
"""Events other than progress (which is merged) taken from one stage; more are refused."""

Number = int | float


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _finite(value: Any) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and abs(value) < 1e300 else None


def _text(value: Any) -> str | None:
    return value[:TEXT_LIMIT] if isinstance(value, str) else None


def _progress(raw: dict[str, Any]) -> dict[str, Any] | None:
    fields: dict[str, Any] = {k: _count(raw.get(k)) for k in ("tokens", "input_tokens", "step", "total_steps")}
    fields["loss"] = _finite(raw.get("loss"))
    known = {k: v for k, v in fields.items() if v is not None}
    return known or None


def _phase(raw: dict[str, Any]) -> dict[str, Any] | None:
    name = _text(raw.get("name"))
    return {"name": name[:64]} if name else None


def _scores(raw: Any) -> dict[str, dict[str, Number | None]]:
    if not isinstance(raw, dict):
        return {}
    rows = {str(name)[:200]: row for name, row in list(raw.items())[:1000] if isinstance(row, dict)}
    return {name: {who: _finite(row.get(who)) for who in ("student", "teacher")} for name, row in rows.items()}


def _quality(raw: dict[str, Any]) -> dict[str, Any] | None:
    q, benchmarks = _finite(raw.get("q")), _scores(raw.get("benchmarks"))
    return {"q": q, "benchmarks": benchmarks} if benchmarks or q is not None else None


def _warning(raw: dict[str, Any]) -> dict[str, Any] | None:
    code, text = _text(raw.get("code")), _text(raw.get("text"))
    return {"code": code[:64], "text": text} if code and text else None


def _baseline(raw: dict[str, Any]) -> dict[str, Any] | None:
    watts = raw.get("idle_w")
    if not isinstance(watts, dict):
        return None
    finite = {str(key)[:64]: _finite(value) for key, value in list(watts.items())[:256]}
    known = {key: value for key, value in finite.items() if value is not None and value >= 0}
    return {"idle_w": known, "duration_s": _finite(raw.get("duration_s"))} if known else None


def _model(raw: dict[str, Any]) -> dict[str, Any] | None:
    role, params = raw.get("role"), _count(raw.get("params"))
    kept = {"kept": True} if raw.get("kept") is True else {}
    return {"role": role, "params": params, **kept} if role in ("student", "teacher") and params else None


def _made(raw: dict[str, Any]) -> dict[str, Any] | None:
    rows, tokens = _count(raw.get("rows")), _count(raw.get("tokens"))
    return None if rows is None or tokens is None else {"rows": rows, "tokens": tokens}


CHECKS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "progress": _progress,
    "phase": _phase,
    "quality": _quality,
    "warning": _warning,
    "baseline": _baseline,
    "model": _model,
    "made": _made,
}
"""Events that a stage may report, and what is taken of each. The recorder's own events cannot be forged."""


def checked(raw: Any) -> tuple[str, float | None, dict[str, Any]] | None:
    """(type, CLOCK_MONOTONIC time or None, fields) of what a stage reported; None if it is not acceptable."""
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        return None
    check = CHECKS.get(raw["type"])
    fields = check(raw) if check else None
    if fields is None:
        return None
    part = _text(raw.get("part"))
    return raw["type"], _finite(raw.get("t")), fields | ({"part": part[:64]} if part else {})


def _part(event: tuple[str, float | None, dict[str, Any]]) -> Any:
    return event[2].get("part")


class ProgressTail:
    """Follows one stage's file from where it was last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.refused = 0
        """Lines that were not acceptable."""
        self.taken = 0
        self.offset = 0
        self._rest = b""
        self._skipping = False

    def read(self) -> list[tuple[str, float | None, dict[str, Any]]]:
        """New acceptable events. Consecutive progress is merged: the last count of each kind stands."""
        events: list[tuple[str, float | None, dict[str, Any]]] = []
        for line in self._lines():
            found = self._parse(line)
            if found is None or (found[0] != "progress" and not self._has_room()):
                self.refused += 1
            elif events and found[0] == events[-1][0] == "progress" and _part(found) == _part(events[-1]):
                events[-1] = ("progress", found[1], {**events[-1][2], **found[2]})
            else:
                events.append(found)
        return events

    def _has_room(self) -> bool:
        self.taken += 1
        return self.taken <= EVENTS_LIMIT

    @staticmethod
    def _parse(line: bytes) -> tuple[str, float | None, dict[str, Any]] | None:
        try:
            return checked(json.loads(line))
        except (ValueError, RecursionError):
            return None

    def _lines(self) -> Iterator[bytes]:
        data = self._new_bytes()
        if not data:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif len(line) > LINE_LIMIT_B:
                self.refused += 1
            elif line.strip():
                yield line
        if len(self._rest) > LINE_LIMIT_B:
            self._rest, self._skipping = b"", True
            self.refused += 1

    def _new_bytes(self) -> bytes:
        try:
            if self.path.lstat().st_size <= self.offset:
                return b""
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            data = os.pread(fd, READ_LIMIT_B, self.offset)
        except OSError:
            return b""
        finally:
            os.close(fd)
        self.offset += len(data)
        return data
