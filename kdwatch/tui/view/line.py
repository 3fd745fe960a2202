"""A line: pieces of text, each with a tone. Tones are names; the stylesheet gives them colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

Piece = tuple[str, str]
"""Text and its tone: empty, `dim`, `head`, `good`, `warn`, `bad`, `accent`, `line`, `fill` or `mark`."""

Line = tuple[Piece, ...]
"""Pieces from left to right."""


@lru_cache(maxsize=4096)
def width_of(text: str) -> int:
    """Cells that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, an ellipsis in place of what is cut."""
    if width <= 0:
        return ""
    if width_of(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def cut_middle(text: str, width: int) -> str:
    """`text` in at most `width` cells; what is cut is cut before its last quarter, for names that differ at the end."""
    end = width // 4
    if width_of(text) <= width or not text.isascii() or not end:
        return cut(text, width)
    return text[: width - 1 - end] + "…" + text[-end:]


def left(text: str, width: int) -> str:
    """`text` cut or padded on the right to exactly `width` cells."""
    text = cut(text, width)
    return text + " " * (width - width_of(text))


def right(text: str, width: int) -> str:
    """`text` cut or padded on the left to exactly `width` cells."""
    text = cut(text, width)
    return " " * (width - width_of(text)) + text


def text_of(line: Line) -> str:
    """A line without its tones."""
    return "".join(piece[0] for piece in line)


def length(line: Sequence[Piece]) -> int:
    """Cells that a line takes."""
    return sum(width_of(piece[0]) for piece in line)


def spread(start: Sequence[Piece], end: Sequence[Piece], width: int) -> Line:
    """`start` at the left edge and `end` at the right one; `end` gives way where both do not fit."""
    room = width - length(start) - length(end)
    if room < 1:
        return tuple(start)
    return (*start, (" " * room, ""), *end)


def wrapped(text: str, width: int) -> list[str]:
    """`text` broken between words into lines of at most `width` cells; longer words are cut through."""
    lines, line = [], ""
    for word in text.split(" "):
        while width_of(word) > width:
            lines += [line] if line else []
            line, head = "", word[: max(width // 2, 1) if not word.isascii() else width]
            lines.append(head)
            word = word[len(head) :]
        if line and width_of(line) + 1 + width_of(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
