"""Rows of text from JSONL, JSON, Parquet or a hub data set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.stages.problem import StageProblem

HUB = "hub:"


@dataclass(frozen=True, slots=True)
class Keys:
    """Which keys of a row hold what."""

    prompt: str = "prompt"
    response: str = "response"
    messages: str = "messages"
    task: str = "task"


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation: messages of `role` and `content`, the last one the assistant's."""

    messages: tuple[tuple[str, str], ...]
    task: str | None = None
    is_chat: bool = False
    """True where the row came as messages, so that without a chat template it cannot be used."""

    @property
    def prompt(self) -> str:
        """First user text."""
        return self.messages[0][1]

    @property
    def response(self) -> str:
        """Last assistant text."""
        return self.messages[-1][1]


def read_rows(source: str, keys: Keys, *, split: str = "train", revision: str | None = None) -> Iterator[Row | None]:
    """Rows in file order; None for each that has no usable text.

    Raises StageProblem where the source cannot be read or a line is no JSON object.
    """
    for path in _paths(source, split, revision):
        for values in _records(path):
            yield _row(values, keys)


def _paths(source: str, split: str, revision: str | None) -> list[Path]:
    if source.startswith(HUB):
        return _hub_files(source.removeprefix(HUB), split, revision)
    path = Path(source).expanduser()
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in (".jsonl", ".json", ".parquet"))
        if not found:
            raise StageProblem(f"data: no .jsonl, .json or .parquet file in {path}: check the path")
        return found
    if not path.is_file():
        raise StageProblem(f"data: no such file {path}: check the path in the recipe")
    return [path]


def _hub_files(name: str, split: str, revision: str | None) -> list[Path]:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=["*.parquet", "*.jsonl"])
        )
    except Exception as error:  # the library raises many kinds; each means that the data is not to be had
        raise StageProblem(
            f"data: hub data set {name} cannot be had ({type(error).__name__}): check name and network"
        ) from None
    found = sorted(p for p in folder.rglob("*") if p.suffix in (".parquet", ".jsonl") and split in p.name)
    if not found:
        raise StageProblem(f"data: hub data set {name} has no .parquet or .jsonl file of split {split}")
    return found


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix == ".json":
        yield from _json_array(path)
    else:
        yield from _json_lines(path)


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    import polars

    try:
        yield from polars.read_parquet(path).iter_rows(named=True)
    except polars.exceptions.PolarsError as error:
        raise StageProblem(f"data: {path} is no readable Parquet file ({str(error).splitlines()[0]})") from None


def _json_array(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StageProblem(f"data: {path} is no JSON ({error})") from None
    if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
        raise StageProblem(f"data: {path} must hold an array of objects; one object a line is a .jsonl file")
    yield from values


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise StageProblem(
                    f"data: {path} line {number} is no JSON ({error}): mend or remove the line"
                ) from None
            if not isinstance(values, dict):
                raise StageProblem(
                    f"data: {path} line {number} is no object: give {{prompt, response}} or {{messages}}"
                )
            yield values


def _row(values: Mapping[str, Any], keys: Keys) -> Row | None:
    task = values.get(keys.task)
    name = task if isinstance(task, str) else None
    messages = values.get(keys.messages)
    if isinstance(messages, list):
        turns = _turns(messages)
        return Row(turns, name, is_chat=True) if turns else None
    prompt, response = values.get(keys.prompt), values.get(keys.response)
    if not isinstance(prompt, str) or not isinstance(response, str) or not prompt or not response:
        return None
    return Row((("user", prompt), ("assistant", response)), name)


def _turns(messages: list[Any]) -> tuple[tuple[str, str], ...] | None:
    turns = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            return None
        turns.append((role, content))
    while turns and turns[-1][0] != "assistant":
        turns.pop()
    return tuple(turns) or None
