"""Harmless text: what comes out of a run directory may hold anything, a terminal must see none of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # operating-system commands and other strings
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_PLAIN = re.compile(r"[ -~]*\Z")
_DROPPED = {"Cc", "Cf", "Cs", "Co", "Cn"}
"""Unicode categories without a shape: controls, bidi and other format marks, surrogates, private use."""


def clean(value: Any, limit: int | None = 200) -> str:
    """One line of printable text: no escape codes, control or bidi characters; cut to `limit` characters.

    Line breaks and tabs become single spaces; None becomes the empty string.
    """
    text = "" if value is None else str(value)
    if not _PLAIN.match(text):
        text = _ESCAPES.sub("", text)
        text = re.sub(r"\s", " ", text)
        text = "".join(c for c in text if c == " " or unicodedata.category(c) not in _DROPPED)
        text = re.sub(" +", " ", text)
    text = text.strip()
    if limit is not None and len(text) > limit:
        text = text[: max(0, limit - 1)] + "…"
    return text
