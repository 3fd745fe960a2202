"""Delimited text as people and tools write it: where the header is, what separates cells, which rows are whole."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat

from kdwatch.interop.columns import Column, classify
from kdwatch.interop.dates import CLOCK, NotATime, split_date
from kdwatch.interop.source import Lines
from kdwatch.interop.values import LONGEST, NotANumber, parse_number

DELIMITERS = (",", ";", "\t", "|")
BLANKS = " "
"""The delimiter of tables whose columns are set apart by any number of blanks."""
DAY = re.compile(r"^\d{1,4}[-/.]\d\d?[-/.]\d{1,4}$")
SEARCH = 400
"""Lines in which the header is looked for; a banner or a shell prompt may come before it."""
BUFFER = 20_000
"""Rows from which the layout is learned before the rest is streamed."""
SMALLEST_BLOCK = 64
"""Fewer lines are read one by one."""
DRIVER_ERRORS = (
    "unable to determine the device handle",
    "no devices were found",
    "failed to initialize nvml",
    "nvidia-smi has failed",
    "gpu is lost",
    "error:",
    "driver/library version mismatch",
)


ONE_CELL = re.compile(r"[,;\t|:]|\s\d")
"""In a line that would be a header of one column: it is rather a sentence, `name: value`, or cells of another kind."""


UNIT = re.compile(r"^(?:[mkuµ]?W|%|C|[MG]Hz|[MG]iB|[\[(].*[\])])$")
"""A word that belongs to the cell before it in a table of blanks."""


def split(line: str, delimiter: str) -> list[str]:
    """Cells of one line, quotes taken off; an unpaired quote stays in its own line."""
    if delimiter == BLANKS:
        return _words(line)
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        row = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        row = line.split(delimiter)
    return [cell.strip() for cell in row]


def _words(line: str) -> list[str]:
    """Cells between blanks; a date and its clock are one cell, so are a number and its unit."""
    cells: list[str] = []
    for word in line.split():
        if cells and (UNIT.match(word) or (CLOCK.match(word) and DAY.match(cells[-1]))):
            cells[-1] += f" {word}"
        else:
            cells.append(word)
    return cells


OPTION = re.compile(r"\s--[a-z]")
"""Of a command line with its prompt, which names the fields that it asks for: no header."""
DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)$")


def delimiter_of(header: str) -> str:
    """The delimiter of a known header line."""
    return max(DELIMITERS, key=header.count)


def split_row(line: str, delimiter: str) -> list[str]:
    """Cells of one line; where `;` stands between cells, a comma in a number is the decimal mark."""
    cells = split(line, delimiter)
    return [DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells] if delimiter == ";" else cells


def looks_like_value(cell: str) -> bool:
    """Whether a cell is a number, a time or "no reading", rather than a name."""
    try:
        parse_number(cell)
    except NotANumber:
        if len(cell) <= LONGEST and CLOCK.match(cell):
            return True
        try:
            split_date(cell)
        except NotATime:
            return False
    return True


@dataclass(slots=True)
class Table:
    """A header (None if there is none), its delimiter, and the lines below."""

    delimiter: str
    header: list[str] | None
    lines: Iterator[str]
    stream: Lines | None = None
    """What `lines` comes from, where it can go on in blocks."""
    above: int = 0
    """Rows above the header that fit it and are read too: the first header of an appended log is lost."""
    columns: list[Column] = field(default_factory=list)
    first_line: list[str] = field(default_factory=list)
    """Cells of the first line, to say what a file without a usable header holds."""


def find_table(lines: Lines) -> Table:
    """Find the header, or that there is none, in the first lines; the iterator goes on below it."""
    table = _find_table(iter(lines))
    table.stream = lines
    return table


def _find_table(stream: Iterator[str]) -> Table:
    first = list(islice(stream, SEARCH))
    for number, line in enumerate(first):
        found = _blank_header(first[number : number + 3]) or header_of(line)
        if found:
            delimiter, header = found
            above = [text for text in first[:number] if _fits(split(text, delimiter), len(header))]
            columns = [classify(place, name) for place, name in enumerate(header)]
            return Table(
                delimiter, header, chain(above, first[number + 1 :], stream), above=len(above), columns=columns
            )
    if table := _marked_header(first, stream):
        return table
    delimiter = _common_delimiter(first)
    top = split(next((line for line in first if line.strip()), ""), delimiter)
    return Table(delimiter, None, chain(first, stream), first_line=[cell[:60] for cell in top[:40]])


def _blank_header(lines: Sequence[str]) -> tuple[str, list[str]] | None:
    """Names between blanks, with as many values in the lines below and no other delimiter."""
    names, below = _words(lines[0][:2000]), [_words(line[:2000]) for line in lines[1:]]
    if len(names) < 2 or not below or any(mark in lines[0] for mark in DELIMITERS) or lines[0].lstrip()[:1] in "#+[":
        return None
    if any(len(cells) != len(names) or not all(map(looks_like_value, cells)) for cells in below):
        return None
    roles = {classify(place, name).role for place, name in enumerate(names)}
    return (BLANKS, names) if roles & {"power", "bare", "energy"} and not any(map(looks_like_value, names)) else None


def _fits(cells: list[str], width: int) -> bool:
    """Whether the cells are a row of a table of several columns, rather than a line of a banner."""
    return len(cells) == width > 1 and 2 * sum(bool(c) and looks_like_value(c) for c in cells) > width


def _marked_header(first: list[str], stream: Iterator[str]) -> Table | None:
    """A header behind `#`, as numpy's savetxt writes it: names, and as many cells in the line below."""
    for number, line in enumerate(first[:-1]):
        found = header_of(line.lstrip().lstrip("#")) if line.lstrip().startswith("#") else None
        if found and len(found[1]) > 1 and len(split(first[number + 1], found[0])) == len(found[1]):
            columns = [classify(place, name) for place, name in enumerate(found[1])]
            return Table(found[0], found[1], chain(first[number + 1 :], stream), columns=columns)
    return None


def header_of(line: str) -> tuple[str, list[str]] | None:
    """Delimiter and names if the line is a header of a log: names only, at least one that is a time or a power."""
    if not line.strip() or line.lstrip().startswith(("#", "+", "[")) or len(line) > 20_000 or OPTION.search(line):
        return None
    best: tuple[int, str, list[str]] | None = None
    for delimiter in DELIMITERS:
        cells = split(line, delimiter)
        if any(cell and looks_like_value(cell) for cell in cells):
            continue
        roles = [classify(place, cell).role for place, cell in enumerate(cells)]
        useful = sum(role in ("time", "power", "bare", "energy", "date") for role in roles)
        if len(cells) == 1 and (ONE_CELL.search(line) or len(line.split()) > 3 or len(line) > 60):
            continue
        if useful and (best is None or len(cells) > len(best[2])):
            best = (useful, delimiter, cells)
    return (best[1], best[2]) if best else None


def _common_delimiter(lines: Sequence[str]) -> str:
    """Of the delimiters, the one that most lines have equally often; `,` where none is."""
    best, score = ",", 0
    for delimiter in DELIMITERS:
        counts = Counter(line.count(delimiter) for line in lines if line.strip())
        width, often = max(counts.items(), key=lambda item: item[1] * (item[0] > 0), default=(0, 0))
        if width and often > score:
            best, score = delimiter, often
    return best


@dataclass(slots=True)
class RowCounts:
    """What happened to the lines below the header."""

    rows: int = 0
    malformed: int = 0
    driver_errors: int = 0
    repeated_headers: int = 0
    changed_headers: int = 0
    """Repeated headers with other columns or another order; the rows below are read by name."""
    torn: bool = False


class Block:
    """Some thousand lines of one width without quotes, split column by column."""

    def __init__(self, reader: RowReader, lines: list[str], cells: list[str], width: int) -> None:
        self._reader, self._lines = reader, lines
        self._cells, self._width = cells, width

    def __len__(self) -> int:
        return len(self._lines)

    def column(self, place: int) -> list[str]:
        """The cells of one column."""
        return list(map(str.strip, self._cells[place :: self._width]))

    def taken(self) -> None:
        """Count the rows: all of them were read."""
        self._reader.counts.rows += len(self)
        self._reader.counts.torn = False

    def rows(self) -> Iterator[list[str]]:
        """The same row by row, where one of them needs a closer look (a header, a message of the driver)."""
        return self._reader.rows(self._lines)


class RowReader:
    """Rows of the header's width, decimal commas without quotes put together again."""

    def __init__(self, table: Table, width: int, joins: Sequence[int] = ()) -> None:
        """`joins`: places in the header whose cells are written as `30,3` without quotes."""
        self.counts = RowCounts()
        self._delimiter = table.delimiter
        self._header = table.header
        self._width = width
        self._joins = tuple(joins)
        self._names = frozenset(name for name in table.header or () if name)
        self._order: list[int | None] | None = None
        """Where the first header's columns stand below a later header; None while the order is the first one's."""

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Whole rows; the others are counted. A repeated header is skipped."""
        counts = self.counts
        for line in lines:
            if not line.strip():
                continue
            cells = split(line, self._delimiter)
            counts.torn = False
            if not self._names.isdisjoint(cells) and self._is_header(line, cells):
                continue
            if len(cells) != self._width:
                cells = self._fit(line, cells)
                if not cells:
                    continue
            counts.rows += 1
            yield cells if self._order is None else ["" if at is None else cells[at] for at in self._order]

    def blocks(self, blocks: Iterable[list[str]]) -> Iterator[list[str] | Block]:
        """Rows, and blocks of rows where lines are regular. The last line is always a row."""
        held: list[str] = []
        for lines in blocks:
            if not lines:
                continue
            *ready, last = held + lines
            held = [last]
            block = self._block(ready)
            if block is None:
                yield from self.rows(ready)
            else:
                yield block
        yield from self.rows(held)

    def _block(self, lines: list[str]) -> Block | None:
        if self._order is not None or self._joins or self._delimiter == BLANKS or len(lines) < SMALLEST_BLOCK:
            return None
        text = self._delimiter.join(lines)
        if '"' in text or set(map(str.count, lines, repeat(self._delimiter))) != {self._width - 1}:
            return None
        return Block(self, lines, text.split(self._delimiter), self._width)

    def _is_header(self, line: str, cells: list[str]) -> bool:
        """Whether the line is a header again; one with other columns tells where the first one's columns stand now."""
        assert self._header is not None
        if cells == self._header:
            self._width, self._order = len(cells), None
        elif self._joins or (header_of(line) or ("", []))[1] != cells:
            return False
        else:
            self._width = len(cells)
            self._order = [cells.index(name) if name in cells else None for name in self._header]
            self.counts.changed_headers += 1
        self.counts.repeated_headers += 1
        return True

    def _fit(self, line: str, cells: list[str]) -> list[str]:
        if self._joins and (joined := join_cells(cells, self._width, self._joins)):
            return joined
        while len(cells) > self._width and not cells[-1]:
            cells.pop()
        if len(cells) == self._width:
            return cells
        lowered = line.lower()
        if any(text in lowered for text in DRIVER_ERRORS):
            self.counts.driver_errors += 1
        elif header_of(line):
            self.counts.repeated_headers += 1
            return []
        else:
            self.counts.malformed += 1
            self.counts.torn = True
        self.counts.rows += 1
        return []


SHAPE = re.compile(r"^[+-]?\d*(?:\.(\d*))?\s*(\D*)$")


def without_torn(
    rows: Iterable[list[str] | Block], cut_off: Callable[[], bool], on_torn: Callable[[str], None]
) -> Iterator[list[str] | Block]:
    """All rows but a last one whose last number was cut: the file ends without a line end (`cut_off`), and that
    cell has other decimals or another unit than all those before that came row by row."""
    shapes: set[tuple[int, str]] = set()
    held: list[str] | None = None
    count = 0
    for row in rows:
        if held is not None:
            if len(shapes) < 2:
                shapes.add(_shape(held[-1]))
            count += 1
            yield held
        held = row if isinstance(row, list) else None
        if isinstance(row, Block):
            yield row
    if held is None:
        return
    if count >= 2 and len(shapes) == 1 and cut_off() and _shape(held[-1]) not in shapes:
        on_torn(held[-1])
        return
    yield held


def _shape(cell: str) -> tuple[int, str]:
    match = SHAPE.match(cell[:LONGEST])
    return (len(match[1] or ""), match[2]) if match else (-1, "")


def join_cells(cells: list[str], width: int, joins: Sequence[int]) -> list[str] | None:
    """Put `30`,`3` together to `30.3` at the places `joins`; None where the cells do not fit."""
    if len(cells) != width + len(joins):
        return None
    out: list[str] = []
    source = iter(cells)
    for place in range(width):
        cell = next(source)
        if place in joins:
            fraction = next(source)
            if not re.fullmatch(r"[+-]?\d+", cell) or not re.fullmatch(r"\d+", fraction):
                return None
            cell = f"{cell}.{fraction}"
        out.append(cell)
    return out


def decimal_joins(lines: Sequence[str], delimiter: str, columns: Sequence[Column]) -> tuple[int, ...]:
    """Places of columns with unquoted decimal commas, () for none.

    Either every row has one field more than the header and the last has one or two digits, or every row has one
    more for each column that is not a time, a name or a key.
    """
    if delimiter != ",":
        return ()
    rows = [split(line, delimiter) for line in lines if line.strip()]
    width = len(columns)
    longer = [row for row in rows if len(row) > width and row[-1]]
    if not longer or len(longer) < 0.5 * len(rows):
        return ()
    measured = tuple(c.place for c in columns if c.role in ("power", "bare", "energy", "other"))
    if len(measured) > 1 and all(join_cells(row, width, measured) for row in longer):
        return measured
    last = (width - 1,)
    if all(re.fullmatch(r"\d{1,2}", row[-1]) and join_cells(row, width, last) for row in longer):
        return last
    return ()
