"""A manifest in its documented shape, whatever the file held: readers need not ask the type of each field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OBJECTS = ("clock", "recorder", "recipe", "hardware", "versions", "git")
TEXTS = ("run_id", "name", "regime", "created_at", "region", "kdwatch_version", "protocol")


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; empty for anything else."""
    return [dict(v) for v in value if isinstance(v, Mapping)] if isinstance(value, list | tuple) else []


def shaped(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with known fields of a wrong type left out. Unknown fields stay as they are."""
    found = dict(manifest)
    for name in OBJECTS:
        if name in found:
            found[name] = mapping(found[name])
    for name in TEXTS:
        if name in found and not isinstance(found[name], str):
            found[name] = None
    for name in ("devices", "stages", "sensors", "warnings"):
        if name in found:
            found[name] = objects(found[name])
    found["devices"] = [_device(d) for d in found.get("devices", []) if isinstance(d.get("key"), str) and d["key"]]
    found["stages"] = [s for s in found.get("stages", []) if isinstance(s.get("name"), str) and s["name"]]
    return found


def _device(device: dict[str, Any]) -> dict[str, Any]:
    for name in ("id", "name", "kind", "scope", "source", "stream"):
        if name in device and not isinstance(device[name], str):
            del device[name]
    return {**device, "details": mapping(device.get("details"))}
