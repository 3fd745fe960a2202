"""One cache of logits for all temperatures of a sweep: each is declared to the stage that makes the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdwatch.pipeline.hashing import canonical

CACHE, TRAIN = "teacher.cache_logits", "student.train"
DEFAULT_T = 1.0
"""`temperature` of the train stage where the recipe names none."""


def declare_temperatures(recipes: Sequence[dict[str, Any]]) -> None:
    """Give every cache stage of these documents, in place, all temperatures that students train with on its like.

    Caches are alike where the stage's settings are equal but for `temperatures`. A cache whose declared temperatures
    suffice stays as it is, so that one stored earlier serves.
    """
    wanted: dict[str, set[float]] = {}
    caches: list[tuple[str, dict[str, Any]]] = []
    for data in recipes:
        for cache, temperature in _pairs(data):
            group = _group(cache)
            caches.append((group, cache))
            wanted.setdefault(group, set(_declared(cache))).add(temperature)
    for group, cache in caches:
        if set(_declared(cache)) != wanted[group]:
            cache["with"] = {**cache["with"], "temperatures": sorted(wanted[group])}


def _pairs(data: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], float]]:
    """(cache stage, temperature) of each student that trains on logits."""
    stages = [s for s in data.get("stages") or [] if isinstance(s, dict)]
    caches = {s.get("name"): s for s in stages if s.get("uses") == CACHE and isinstance(s.get("with"), dict)}
    for stage in stages:
        inputs = stage.get("inputs")
        cache = caches.get(inputs.get("logits")) if isinstance(inputs, dict) else None
        if stage.get("uses") == TRAIN and cache is not None:
            settings = stage.get("with")
            value = settings.get("temperature", DEFAULT_T) if isinstance(settings, dict) else DEFAULT_T
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                yield cache, float(value)


def _declared(cache: Mapping[str, Any]) -> list[float]:
    values = cache["with"].get("temperatures")
    if not isinstance(values, list):
        return []
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _group(cache: Mapping[str, Any]) -> str:
    return canonical({key: repr(value) for key, value in cache["with"].items() if key != "temperatures"})
