"""Columns of fixed width that appear in order of importance as the width allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kdwatch.tui.view.line import Line, Piece, left, right

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of numbers or words."""

    head: str
    width: int
    cell: Callable[[Row], Piece]
    """Text and tone of a row's cell."""
    rank: int
    """Low ranks stay when the table is narrow."""
    align: str = "right"

    def place(self, text: str) -> str:
        """`text` in this column's width."""
        return right(text, self.width) if self.align == "right" else left(text, self.width)


def fitting(columns: Sequence[Column[Row]], width: int, name_min: int) -> list[Column[Row]]:
    """The columns that fit beside a name of `name_min` cells, in their own order."""
    room = width - name_min
    kept = []
    for column in sorted(columns, key=lambda c: c.rank):
        if column.width + 1 > room:
            break
        room -= column.width + 1
        kept.append(column)
    return [c for c in columns if c in kept]


def header(name: str, columns: Sequence[Column[Row]], width: int) -> Line:
    """The line of column heads."""
    name_width = name_room(columns, width)
    heads = "".join(" " + c.place(c.head) for c in columns)
    return ((left(name, name_width) + heads, "head"),)


def name_room(columns: Sequence[Column[Row]], width: int) -> int:
    """Cells left for the name."""
    return max(width - sum(c.width + 1 for c in columns), 1)


def row_line(name: Piece, row: Row, columns: Sequence[Column[Row]], width: int) -> Line:
    """One row: name, then each column's cell."""
    pieces: list[Piece] = [(left(name[0], name_room(columns, width)), name[1])]
    for column in columns:
        text, tone = column.cell(row)
        pieces.append((" " + column.place(text), tone))
    return tuple(pieces)
