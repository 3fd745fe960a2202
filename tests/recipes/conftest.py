"""Fixtures of the recipes' and sweeps' tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_helpers import DATA, TOKENIZER_WORDS

from kdwatch.pipeline.sweep import Sweep, load_sweep


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a small data set and a model directory that holds only a tokenizer."""
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DATA))
    model = tmp_path / "model"
    model.mkdir()
    vocabulary = {word: i for i, word in enumerate(TOKENIZER_WORDS)}
    tokenizer = {
        "version": "1.0",
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        "added_tokens": [],
    }
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "pad_token": "<pad>"}))
    return tmp_path


@pytest.fixture
def sweep_of(tmp_path: Path) -> Callable[[str], Sweep]:
    """Read a sweep from text."""
    import textwrap

    def read(text: str) -> Sweep:
        path = tmp_path / "grid.yaml"
        path.write_text(textwrap.dedent(text))
        return load_sweep(path)

    return read
