"""How a stage reports what it does. Imports nothing heavy and never raises into the caller's work.

A stage's process finds `KDWATCH_EVENTS` in its environment: a file to append JSON lines to. Any program
in any language can do the same; this module is the convenience for Python. Without the variable every
call is a no-op. What is reported inside `part` (or with `KDWATCH_PART` set) says of a part of the stage.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def emit(kind: str, **fields: Any) -> None:
    """Append one event line: `{"type": kind, "t": CLOCK_MONOTONIC seconds, ...}`.

    One `write` of one line in append mode, so that lines of several processes do not mix.
    """
    path = os.environ.get("KDWATCH_EVENTS")
    if not path:
        return
    part = os.environ.get("KDWATCH_PART")
    whole = {"type": kind, "t": time.monotonic(), **fields} | ({"part": part} if part else {})
    line = json.dumps(whole, allow_nan=False, default=str) + "\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
    except OSError:
        pass


def progress(
    *,
    tokens: int | None = None,
    input_tokens: int | None = None,
    step: int | None = None,
    total_steps: int | None = None,
    loss: float | None = None,
) -> None:
    """Report cumulative counts of this stage so far; unknown ones are left out."""
    fields = {"tokens": tokens, "input_tokens": input_tokens, "step": step, "total_steps": total_steps, "loss": loss}
    emit("progress", **{k: v for k, v in fields.items() if v is not None and v == v})


def phase(name: str) -> None:
    """Say that a phase (`import`, `load`, `work`, `save`) begins; it lasts until the next one or the end."""
    emit("phase", name=name)


@contextmanager
def phases(name: str, then: str = "work") -> Iterator[None]:
    """Phase `name` for the duration of a block, then phase `then`."""
    phase(name)
    try:
        yield
    finally:
        phase(then)


@contextmanager
def part(name: str) -> Iterator[None]:
    """A part of a stage with counts of its own, here and in the processes that it starts."""
    os.environ["KDWATCH_PART"] = name
    phase("begin")
    try:
        yield
    finally:
        phase("end")
        del os.environ["KDWATCH_PART"]


def made(*, rows: int, tokens: int) -> None:
    """Report what a stage hands on where its settings do not tell: rows that were kept, and their tokens."""
    emit("made", rows=rows, tokens=tokens)


def quality(benchmarks: Mapping[str, Mapping[str, float | None]], q: float | None = None) -> None:
    """Report scores: `{benchmark: {"student": score, "teacher": score}}` and Q, the mean of their ratios.

    Those of a part are no scores of the run, and are not reported.
    """
    if "KDWATCH_PART" in os.environ:
        return
    emit("quality", benchmarks={k: dict(v) for k, v in benchmarks.items()}, q=q)


def warning(code: str, text: str) -> None:
    """Report a warning that belongs in the run's record."""
    emit("warning", code=code, text=text)


def stage_config() -> dict[str, Any]:
    """The configuration that the recorder wrote for this built-in stage (`KDWATCH_STAGE_CONFIG`):
    `{"name", "settings": {...}, "inputs": {name: path}, "output": path or null}`."""
    with open(os.environ["KDWATCH_STAGE_CONFIG"], encoding="utf-8") as f:  # noqa: PTH123  (pathlib costs import time)
        return json.load(f)
