"""Two processes give what one gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from stages_help import as_process, in_process, random_rows, token_rows

from kdwatch.stages import train
from kdwatch.stages.nn.ranks import Ranks
from kdwatch.stages.settings import TrainSettings


@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_row_is_somebodys_and_nobody_is_idle(size: int) -> None:
    group = np.arange(size)
    shares = [Ranks(rank, 3).share(group) for rank in range(3)]
    assert sorted(r for rows, weight in shares if weight for r in rows) == list(range(size))
    assert all(len(rows) for rows, _ in shares)


def test_two_processes_train_to_the_weights_of_one(tmp_path: Path, models: dict[str, Path]) -> None:
    """torchrun with gloo on this machine; ragged rows, an odd last group; equal up to the order of sums."""
    from safetensors.torch import load_file

    token_rows(tmp_path / "data", models["student"], random_rows(3, 11))
    settings = {
        "student": str(models["student"]),
        "device": "cpu",
        "threads": 1,
        "batch_rows": 2,
        "accumulate": 2,
        "epochs": 2,
        "learning_rate": 1e-3,
    }
    in_process(train.work, TrainSettings(**settings), tmp_path / "one", data=tmp_path / "data")
    events = tmp_path / "events.jsonl"
    process = as_process(
        "kdwatch.stages.train", {**settings, "processes": 2}, tmp_path / "two", events, data=tmp_path / "data"
    )
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)
    a, b = (json.loads((tmp_path / name / "training.json").read_text()) for name in ("one", "two"))
    assert a["tokens"] == b["tokens"]
    said = [json.loads(line) for line in events.read_text().splitlines()]
    assert max(e["tokens"] for e in said if e["type"] == "progress") == a["tokens"]
    assert [e["name"] for e in said if e["type"] == "phase"].count("work") == 1
