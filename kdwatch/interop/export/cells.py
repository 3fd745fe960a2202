"""CSV that a spreadsheet cannot be made to execute."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
"""First characters that make a spreadsheet take a text cell as a formula or a command."""


def safe_cell(value: Any) -> Any:
    """Numbers as they are; None as an empty cell; text that would start a formula with `'` before it."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return value
    text = str(value).replace("\0", "")
    return f"'{text}" if text.lstrip(" ").startswith(DANGEROUS) else text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV document with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([safe_cell(column) for column in columns])
    for row in rows:
        writer.writerow([safe_cell(value) for value in row])
    return out.getvalue()
