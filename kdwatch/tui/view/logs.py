"""The log pane of the Run screen: a title and the newest lines at the bottom."""

from __future__ import annotations

from kdwatch.tui.frame import Frame
from kdwatch.tui.view.line import Line, cut


def log_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """Warnings count in the title; the lines fill the rest, newest last."""
    title = [(frame.log_title or "log", "head")]
    if frame.warnings:
        code, text = frame.warnings[-1]
        more = f"{len(frame.warnings)} warnings, last: " if len(frame.warnings) > 1 else "warning: "
        title += [("  ", ""), (cut(f"{more}{code}: {text}", max(width - 20, 0)), "warn")]
    room = max(height - 1, 0)
    newest = list(frame.log)[-room:] if room else []
    if not newest:
        newest = ["nothing yet"]
        return [tuple(title), *(((text, "dim"),) for text in newest[:room])]
    return [tuple(title), *(((cut(text, width), ""),) for text in newest)]
