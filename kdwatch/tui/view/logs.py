"""The log pane of the Run screen: a title and the newest lines at the bottom."""

from __future__ import annotations

from kdwatch.tui.fmt import plain
from kdwatch.tui.frame import Frame
from kdwatch.tui.view.line import Line, Piece, cut, length, spread

SAID_BY_MARKS = {"estimated"}
"""Warnings that the marks before the numbers say already."""


def log_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """The title with the newest warning and how far the running stage is; the lines fill the rest, newest last."""
    title = _title(frame, width)
    room = max(height - 1, 0)
    newest = list(frame.log)[-room:] if room else []
    if not newest:
        nothing: Line = (("nothing yet" if frame.live or frame.replay else "no output", "dim"),)
        return [title, nothing][:height]
    return [title, *(((cut(text, width), ""),) for text in newest)]


def _title(frame: Frame, width: int) -> Line:
    start: list[Piece] = [(cut(frame.log_title or "log", 40), "head")]
    end = _progress(frame)
    warnings = [w for w in frame.warnings if w[0] not in SAID_BY_MARKS]
    if warnings:
        code, text = warnings[-1]
        more = f"{len(warnings)} warnings, last: " if len(warnings) > 1 else "warning: "
        room = width - length(start) - (length(end) + 2 if end else 0) - 2
        start += [("  ", ""), (cut(f"{more}{code}: {text}", max(room, 0)), "warn")]
    return spread(start, end, width)


def _progress(frame: Frame) -> list[Piece]:
    """Step and loss of the running stage."""
    row = frame.running
    if row is None or row.step is None:
        return []
    steps = f"step {row.step}" + (f"/{row.total_steps}" if row.total_steps else "")
    return [(steps + (f"  loss {plain(row.loss)}" if row.loss is not None else ""), "dim")]
