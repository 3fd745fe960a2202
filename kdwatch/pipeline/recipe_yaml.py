"""YAML with places: where each key stands, so that an error can name file, line and key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

Location = tuple[str | int, ...]
"""Path to a value: `("stages", 0, "uses")`."""

LIMIT_B = 4_000_000
LIMIT_NODES = 100_000


@dataclass(frozen=True)
class PlacedYaml:
    """A document as plain Python values, with the line (from 1) of every key and item."""

    path: Path
    data: Any
    lines: dict[Location, int]

    def line(self, location: Location) -> int:
        """Line of the value at `location`, or of the nearest thing above it that the file holds."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def problem(self, location: Location, text: str) -> UsageProblem:
        """`FILE:LINE: KEY: text`."""
        key = dotted(location)
        where = f"{self.path}:{self.line(location)}"
        return UsageProblem(f"{where}: {key}: {text}" if key else f"{where}: {text}")


def dotted(location: Location) -> str:
    """`stages[0].uses`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return clean(text, 120)


def read_yaml(path: Path) -> PlacedYaml:
    """Read one YAML document.

    Raises UsageProblem for a missing, unreadable or too large file, a syntax error, a key that stands twice,
    aliases that multiply the document, or a value that plain YAML does not know.
    """
    try:
        if path.is_dir():
            raise UsageProblem(f"{path}: is a directory: give a recipe file (YAML)")
        if path.stat().st_size > LIMIT_B:
            raise UsageProblem(f"{path}: larger than {LIMIT_B} bytes: this is no recipe")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageProblem(f"{path}: no such file: give the path of a recipe") from None
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{path}: not UTF-8 text (byte {error.start}): save the recipe as UTF-8") from None
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {error.strerror}") from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> PlacedYaml:
    """The same for text that is already read; `path` is for messages."""
    loader = yaml.SafeLoader(text)
    lines: dict[Location, int] = {}
    try:
        node = loader.get_single_node()
        if node is None:
            raise UsageProblem(f"{path}: empty: a recipe has at least `stages:`")
        if _expanded_size(node, {}) > LIMIT_NODES:
            raise UsageProblem(f"{path}: aliases (*name) multiply it beyond {LIMIT_NODES} values: write them out")
        _walk(node, (), path, lines, set())
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UsageProblem(f"{path}:{line}: YAML: {clean(error.problem or error.context, 160)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageProblem(f"{path}: YAML: {clean(error, 160)}") from None
    finally:
        loader.dispose()
    return PlacedYaml(path, data, lines)


def _walk(node: yaml.Node, here: Location, path: Path, lines: dict[Location, int], seen: set[int]) -> None:
    lines.setdefault(here, node.start_mark.line + 1)
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _walk(item, (*here, i), path, lines, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            if name != "<<" and (*here, name) in lines:
                raise UsageProblem(f"{path}:{line}: {dotted((*here, name))}: stands twice: keep one")
            lines[(*here, name)] = line
            _walk(value, (*here, name), path, lines, seen)


def _expanded_size(node: yaml.Node, known: dict[int, int]) -> int:
    """Nodes of the document once its aliases are written out; a node that holds itself is endless."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = LIMIT_NODES + 1
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_expanded_size(item, known) for item in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_expanded_size(key, known) + _expanded_size(value, known) for key, value in node.value)
    known[id(node)] = size
    return size
