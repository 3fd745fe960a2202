"""Answers on disk while they are made, one JSON file a shard, so that a kill costs at most one shard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kdwatch import progress
from kdwatch.stages.entry import resumed
from kdwatch.stages.files import canonical_hash, read_json, write_json
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import GenerateSettings

FOLDER = ".answers"


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """One prompt's answer."""

    row: int
    """Row of the prompt in its data set."""
    prompt_tokens: int
    ids: list[int]
    """Without the end-of-text token."""
    ended: bool
    """False where max_new_tokens came first."""


class AnswerStore:
    """Finished shards of one generation; those of other settings are thrown away."""

    def __init__(self, output: Path, settings: GenerateSettings, data: str) -> None:
        self.folder = output / FOLDER
        self.plan = canonical_hash(
            [settings.model_dump(mode="json", exclude={"device", "threads", "tensor_parallel"}), data]
        )
        self.tokens = 0
        """Output tokens so far, end-of-text tokens included."""
        self.prompt_tokens = 0
        self.rows = 0
        self.total_rows = 0
        self.kept: tuple[int, int] = (0, 0)
        """Output and prompt tokens of an earlier process: their energy is not this one's."""
        self._shards: dict[int, list[RowAnswer]] = {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def missing(self, rows: np.ndarray, shard_rows: int) -> list[tuple[int, np.ndarray]]:
        """(number, rows) of each shard that is not there."""
        missing = []
        self.total_rows = len(rows)
        for number, begin in enumerate(range(0, len(rows), shard_rows)):
            answers = self._read(number)
            if answers is None:
                missing.append((number, rows[begin : begin + shard_rows]))
            else:
                self._shards[number] = answers
                self.count(answers)
        self.kept = self.tokens, self.prompt_tokens
        if self.rows:
            resumed(f"at row {self.rows} of {self.total_rows}")
        return missing

    def count(self, answers: list[RowAnswer]) -> None:
        """Add to the totals."""
        self.rows += len(answers)
        self.tokens += sum(len(a.ids) + a.ended for a in answers)
        self.prompt_tokens += sum(a.prompt_tokens for a in answers)

    def report(self) -> None:
        """Tell how far it is, with the tokens of this process."""
        tokens, prompt = self.tokens - self.kept[0], self.prompt_tokens - self.kept[1]
        progress.progress(tokens=tokens, input_tokens=prompt, step=self.rows, total_steps=self.total_rows)

    def write(self, number: int, answers: list[RowAnswer]) -> None:
        """Keep one shard."""
        self._shards[number] = answers
        values = [[a.row, a.prompt_tokens, a.ids, a.ended] for a in answers]
        write_json(self.folder / f"{number:06d}.json", {"plan": self.plan, "answers": values})

    def _read(self, number: int) -> list[RowAnswer] | None:
        path = self.folder / f"{number:06d}.json"
        if not path.is_file():
            return None
        try:
            value: dict[str, Any] = read_json(path, "answers")
            if value["plan"] == self.plan:
                return [RowAnswer(*entry) for entry in value["answers"]]
        except (StageProblem, KeyError, TypeError):
            pass
        return None

    def __iter__(self) -> Iterator[RowAnswer]:
        """All answers in the order of their rows."""
        for number in sorted(self._shards):
            yield from self._shards[number]

    def remove(self) -> None:
        """The data set is written: the shards are no longer needed."""
        shutil.rmtree(self.folder, ignore_errors=True)
