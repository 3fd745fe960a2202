"""Two processes give what one gives."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stages_help import as_process, in_process, random_rows, token_rows

from kdwatch.stages import cache_logits, train
from kdwatch.stages.nn import launch
from kdwatch.stages.nn.ranks import Ranks
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import CacheSettings, TrainSettings


@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_row_is_somebodys_and_nobody_is_idle(size: int) -> None:
    group = np.arange(size)
    shares = [Ranks(rank, 3).share(group) for rank in range(3)]
    assert sorted(r for rows, weight in shares if weight for r in rows) == list(range(size))
    assert all(len(rows) for rows, _ in shares)


@pytest.mark.parametrize(
    ("values", "launcher"),
    [
        ({"early_stop": {"epsilon": 0.0, "patience": 9, "every": 2}}, "accelerate"),
        ({"objective": "kd", "alpha": 0.3, "temperature": 2, "packing": True}, "torchrun"),
        pytest.param(
            {"objective": "on_policy", "max_new_tokens": 5, "divergence": "reverse"},
            "torchrun",
            marks=pytest.mark.slow,  # a third launch of two processes
        ),
    ],
)
def test_two_processes_train_to_the_weights_of_one(
    tmp_path: Path, models: dict[str, Path], values: dict[str, Any], launcher: str
) -> None:
    """gloo on this machine; ragged rows, an odd last group, each process with its rows of the logit cache; equal up to
    the order of sums, whatever launcher started them."""
    from safetensors.torch import load_file

    token_rows(tmp_path / "data", models["student"], random_rows(3, 16), held_out=5)
    inputs = {"data": tmp_path / "data"}
    if values.get("objective") == "kd":
        wanted = CacheSettings(
            teacher=str(models["teacher"]), top_k=10, temperatures=[2], shard_tokens=30, device="cpu", threads=1
        )
        inputs["logits"] = in_process(cache_logits.work, wanted, tmp_path / "logits", data=tmp_path / "data")
    elif "early_stop" not in values:
        values = {**values, "teacher": str(models["teacher"])}
    settings = {
        "student": str(models["student"]),
        "device": "cpu",
        "threads": 1,
        "batch_rows": 2,
        "accumulate": 2,
        "epochs": 2,
        "learning_rate": 1e-3,
        **values,
    }
    in_process(train.work, TrainSettings(**settings), tmp_path / "one", **inputs)
    events = tmp_path / "events.jsonl"
    spread = {**settings, "processes": 2, "launcher": launcher}
    process = as_process("kdwatch.stages.train", spread, tmp_path / "two", events, **inputs)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    before, one, two = (
        load_file(folder / "model.safetensors") for folder in (models["student"], tmp_path / "one", tmp_path / "two")
    )
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)
    assert any(float((one[name] - before[name]).abs().max()) > 2e-3 for name in one)
    a, b = (json.loads((tmp_path / name / "training.json").read_text()) for name in ("one", "two"))
    assert a["tokens"] == b["tokens"]
    assert b["validation_losses"] == [[n, pytest.approx(loss, rel=1e-4)] for n, loss in a["validation_losses"]]
    assert len(a["validation_losses"]) == (3 if "early_stop" in values else 0)
    said = [json.loads(line) for line in events.read_text().splitlines()]
    assert max(e["tokens"] for e in said if e["type"] == "progress") == a["tokens"]
    assert [e["name"] for e in said if e["type"] == "phase"].count("work") == 1


@pytest.mark.slow  # two launches of two processes each
def test_two_processes_save_soon_after_sigterm_and_resume_to_the_same(tmp_path: Path, models: dict[str, Path]) -> None:
    """Which of them the signal reaches first does not matter; what they took up again ends as what was not stopped."""
    from safetensors.torch import load_file

    token_rows(tmp_path / "data", models["student"], random_rows(3, 11))
    settings = {"student": str(models["student"]), "device": "cpu", "threads": 1, "max_steps": 400, "batch_rows": 4}
    in_process(train.work, TrainSettings(**settings), tmp_path / "one", data=tmp_path / "data")
    events = tmp_path / "events.jsonl"
    spread = {**settings, "processes": 2}
    process = as_process("kdwatch.stages.train", spread, tmp_path / "two", events, data=tmp_path / "data")
    begin = time.monotonic()
    while not events.exists() or '"step"' not in events.read_text():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < begin + 240, "no step was reported"
        time.sleep(0.05)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)  # as the recorder sends it: to launcher and workers too
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert time.monotonic() - begin < 30
    assert list((tmp_path / "two" / ".resume").glob("step-*/state.json"))
    process = as_process("kdwatch.stages.train", spread, tmp_path / "two", events, data=tmp_path / "data")
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)


def test_a_launcher_that_is_not_installed_is_said(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda _: None)
    monkeypatch.delenv("RANK", raising=False)
    settings = TrainSettings(student=str(models["student"]), processes=2, launcher="accelerate")
    with pytest.raises(StageProblem, match="accelerate is not installed"):
        in_process(train.work, settings, None)
