"""Trainers' logs for tokens, steps and loss: LLaMA-Factory and Transformers JSON lines, trainer_state.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kdwatch.interop.formats.harness import parse_json
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedStage, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.times import parse_span
from kdwatch.interop.values import integer_or_none, number_or_none

TOKENS = ("num_input_tokens_seen", "num_tokens", "total_tokens", "tokens_seen", "tokens")
STEPS = ("current_steps", "step", "global_step")
Entry = Mapping[str, Any]

MOST_LINES = 300_000
"""Of one trainer: its steps are kept in memory."""


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read either kind. Raises LogProblem where no entry has a step."""
    if source.head.lstrip().startswith("{") and '"log_history"' in source.head + _tail_hint(source):
        return _state(source)
    return _lines(source)


def _tail_hint(source: TextSource) -> str:
    """trainer_state.json may put its history after 64 KiB of other keys."""
    return '"log_history"' if not source.head.partition("\n")[0].rstrip().endswith("}") else ""


def _entries(source: TextSource, log: ImportedLog) -> Iterator[Entry]:
    bad = 0
    for line in source.lines(MOST_LINES):
        if not line.strip():
            continue
        log.rows += 1
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield entry
        else:
            bad += 1
    if bad:
        log.note("malformed_rows", f"{bad} lines are no JSON objects (a torn write?)")


def _lines(source: TextSource) -> ImportedLog:
    log = ImportedLog(source.path, "trainer-log-jsonl", source.encoding)
    stage = LoggedStage(source.path.stem, "student")
    backward = previous = 0
    longest_remaining = None
    for entry in _entries(source, log):
        step = first(entry, STEPS)
        if step is not None:
            backward += step < previous
            previous = step
        remaining = parse_span(str(entry.get("remaining_time", "")))
        if remaining is not None:
            longest_remaining = max(longest_remaining or 0.0, remaining)
        _point(stage, entry, step)
    _finish(log, stage)
    log.details |= {"lines": log.rows, "max_remaining_s": longest_remaining, "backward_steps": backward}
    return log


def _state(source: TextSource) -> ImportedLog:
    data = parse_json(source)
    log = ImportedLog(source.path, "trainer-state-json", source.encoding)
    stage = LoggedStage(source.path.stem, "student")
    history = data.get("log_history")
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    log.rows = len(entries)
    for entry in entries:
        _point(stage, entry, first(entry, STEPS))
    stage.total_steps = integer_or_none(data.get("max_steps")) or stage.total_steps
    final = integer_or_none(data.get("num_input_tokens_seen"))
    if final:
        stage.details["tokens_final"] = final
    step = integer_or_none(data.get("global_step"))
    if step is not None:
        last: dict[str, float | int] = {"step": step}
        if final:
            last["tokens"] = final
        stage.points.append(last)
    _finish(log, stage)
    return log


def first(entry: Entry, names: tuple[str, ...]) -> int | None:
    """The first of the names that holds a whole number."""
    return next((value for name in names if (value := integer_or_none(entry.get(name))) is not None), None)


def _point(stage: LoggedStage, entry: Entry, step: int | None) -> None:
    total = integer_or_none(entry.get("total_steps"))
    if total:
        stage.total_steps = total
    runtime = number_or_none(entry.get("train_runtime"))
    if runtime is not None:
        stage.details["train_runtime_s"] = runtime
    if step is None or step < 0:
        return
    point: dict[str, float | int] = {"step": step}
    tokens = first(entry, TOKENS)
    if tokens is not None and tokens > 0:
        point["tokens"] = tokens
    loss = number_or_none(entry.get("loss"))
    if loss is not None:
        point["loss"] = loss
    elapsed = parse_span(str(entry.get("elapsed_time", "")))
    if elapsed is not None:
        point["t_s"] = elapsed
    stage.points.append(point)


def merged(points: list[dict[str, float | int]]) -> list[dict[str, float | int]]:
    """One point a step: ranks that write the same file, and lines split over two kinds of entry, come together."""
    by_step: dict[int, dict[str, float | int]] = {}
    for point in points:
        held = by_step.setdefault(int(point["step"]), {})
        for name, value in point.items():
            held[name] = max(held.get(name, value), value) if name in ("tokens", "t_s") else value
    return [by_step[step] for step in sorted(by_step)]


def _finish(log: ImportedLog, stage: LoggedStage) -> None:
    raw = len(stage.points)
    if not raw:
        raise LogProblem("no entry with a step", rows=log.rows)
    stage.points = merged(stage.points)
    last = stage.points[-1]
    stage.step = int(last["step"])
    losses = [point["loss"] for point in stage.points if "loss" in point]
    stage.loss = losses[-1] if losses else None
    tokens = [int(point["tokens"]) for point in stage.points if "tokens" in point]
    stage.tokens = max(tokens, default=None)
    times = [float(point["t_s"]) for point in stage.points if "t_s" in point]
    stage.duration_s = max(times, default=stage.details.get("train_runtime_s"))
    log.duration_s = stage.duration_s
    log.stages.append(stage)
    log.time_kind = "elapsed" if times else None
    log.details |= {
        "distinct_steps": len(stage.points),
        "last_step": stage.step,
        "total_steps": stage.total_steps,
        "last_elapsed_s": max(times, default=None),
        "has_tokens": bool(tokens),
    }
    log.note("no_power", "a trainer's log: steps and loss, no energy; import it together with the power log of the run")
    if not tokens:
        log.note("no_tokens", "no token count in it (include_num_input_tokens_seen was off): unknown")
    if raw > len(stage.points) + 1:
        log.note(
            "repeated_steps",
            f"{raw} entries of {len(stage.points)} steps: several ranks or kinds of entry, merged by step",
        )
