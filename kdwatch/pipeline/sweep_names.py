"""Names of a sweep's runs: the recipe's name and the settings that vary, as far as they fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kdwatch.pipeline.hashing import hash_value

LONGEST = 64
"""Characters of a run's name (`kdwatch.pipeline.spawn.NAME`)."""
_OTHER = re.compile(r"[^A-Za-z0-9._]+")


def point_name(base: str, settings: Mapping[str, Any]) -> str:
    """`kd-s-alpha0.3-temperature2`; one that is too long ends with a hash of its settings."""
    name = "-".join([base, *(_label(key, value) for key, value in settings.items())])
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 7].rstrip('-._')}-{hash_value(dict(settings))[:6]}"


def varying_keys(points: Sequence[Mapping[str, Any]]) -> set[str]:
    """Keys that have more than one value over all points: only these tell points apart."""
    values: dict[str, set[str]] = {}
    for settings in points:
        for key, value in settings.items():
            values.setdefault(key, set()).add(repr(value))
    return {key for key, found in values.items() if len(found) > 1}


def unique_names(names: Sequence[str]) -> list[str]:
    """The same names; one that stands twice gets a number."""
    taken: set[str] = set()
    found = []
    for name in names:
        own, number = name, 1
        while own in taken:
            number += 1
            own = f"{name[: LONGEST - len(str(number)) - 1]}-{number}"
        taken.add(own)
        found.append(own)
    return found


def _label(key: str, value: Any) -> str:
    """`alpha0.3`; a text that begins with a letter (a path, a model's name) stands for itself, by its last part."""
    if isinstance(value, str):
        text = value.rstrip("/").rsplit("/", 1)[-1]
        if text[:1].isalpha():
            return _plain(text)
    return _plain(key.rsplit(".", 1)[-1] + _text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "-on" if value else "-off"
    if isinstance(value, int | float):
        return f"{value:.12g}"
    if value is None:
        return "-none"
    if isinstance(value, list):
        return "-".join(map(_text, value))
    return hash_value(value)[:6] if isinstance(value, dict) else str(value)


def _plain(text: str) -> str:
    return _OTHER.sub("-", text).strip("-") or "x"
