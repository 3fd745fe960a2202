"""Scores and Q: measured, complete, and said where they cannot be had."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stages_help import in_process, jsonl, random_rows, task_rows, token_rows

from kdwatch.stages import cache_logits, evaluate, teacher_evaluate
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.data.tokens import read_tokens
from kdwatch.stages.nn import models as loading
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring.quality import compare
from kdwatch.stages.settings import CacheSettings, EvaluateSettings, StudentEvaluateSettings, TeacherEvaluateSettings

CPU = {"device": "cpu", "threads": 1}


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("KDWATCH_EVENTS", str(path))
    return path


def of_type(events: Path, kind: str) -> list[dict[str, Any]]:
    return [e for e in map(json.loads, events.read_text().splitlines()) if e["type"] == kind]


def answers_of(model: Path, prompts: list[str], most: int) -> list[tuple[str, bool]]:
    """(greedy answer, whether it ended) by transformers' own generate, one row at a time."""
    loaded = loading.load_model(str(model), EvaluateSettings(), torch.device("cpu"), dtype=torch.float32)
    tokenizer = TextTokenizer.load(str(model))
    found = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt, special=True)])
        out = loaded.generate(ids, max_new_tokens=most, do_sample=False, eos_token_id=2, pad_token_id=0)
        answer = out[0, ids.shape[1] :].tolist()
        found.append((tokenizer.decode(answer), 2 in answer))
    return found


@pytest.fixture
def test_file(tmp_path: Path, models: dict[str, Path]) -> Path:
    """Forty prompts of two tasks; expected is what the teacher says for the first thirty, and nonsense for the rest."""
    prompts = [r["prompt"] for r in task_rows(40)]
    said = answers_of(models["teacher"], prompts, 12)
    rows = [
        {"prompt": p, "response": (a or "?") if i < 30 else "@@@", "task": "even" if i % 2 == 0 else "odd"}
        for i, (p, (a, _)) in enumerate(zip(prompts, said, strict=True))
    ]
    return jsonl(tmp_path / "test.jsonl", rows)


@pytest.mark.parametrize("batch_rows", [1, 7, 256])
def test_exact_match_by_task_is_the_same_for_every_batch_size(
    tmp_path: Path, models: dict[str, Path], test_file: Path, batch_rows: int, events: Path
) -> None:
    """Row 37. An answer that never ends is not right, since a reader would see more than the answer."""
    settings = TeacherEvaluateSettings(
        teacher=str(models["teacher"]), exact_match=str(test_file), max_new_tokens=12, batch_rows=batch_rows, **CPU
    )
    out = in_process(teacher_evaluate.work, settings, tmp_path / "out")
    record = json.loads((out / "scores.json").read_text())
    rows = [json.loads(line) for line in test_file.read_text().splitlines()]
    said = answers_of(models["teacher"], [r["prompt"] for r in rows], 12)
    right = [ended and a.strip() == r["response"].strip() for (a, ended), r in zip(said, rows, strict=True)]
    assert 0 < sum(right) < 30
    assert record["benchmarks"] == {"even": sum(right[0::2]) / 20, "odd": sum(right[1::2]) / 20}
    assert record["batch_rows"] == batch_rows
    last = of_type(events, "progress")[-1]
    assert last["tokens"] == record["tokens"] > last["input_tokens"] > 0


def test_q_is_the_mean_of_ratios_by_benchmark(
    tmp_path: Path, models: dict[str, Path], events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = tmp_path / "scores"
    scores.mkdir()
    (scores / "scores.json").write_text(json.dumps({"benchmarks": {"a": 0.5, "b": 0.8}}))
    command = [sys.executable, "-c", "import json; print('noise'); print(json.dumps({'a': 0.25, 'b': 0.8}))"]
    settings = StudentEvaluateSettings(command=command, **CPU)
    in_process(evaluate.work, settings, None, student=models["student"], teacher_scores=scores)
    event = of_type(events, "quality")[0]
    assert event["q"] == pytest.approx((0.5 + 1.0) / 2)
    assert event["benchmarks"] == {"a": {"student": 0.25, "teacher": 0.5}, "b": {"student": 0.8, "teacher": 0.8}}


@pytest.mark.parametrize(
    ("student", "teacher", "said"),
    [
        ({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.0}, "benchmark b: the teacher's score is 0"),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, "benchmark b: the student has no score"),
        ({"a": 1.0, "b": 1.0}, {"a": 1.0}, "benchmark b: the teacher has no score"),
    ],
)
def test_what_has_no_ratio_is_said_and_not_averaged_over(student: Any, teacher: Any, said: str) -> None:
    found = compare(student, teacher)
    assert found.q is None and said in found.problems[0]
    assert set(found.benchmarks) == {"a", "b"}


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.floats(0.01, 1), min_size=1, max_size=6), st.floats(0.1, 2))
def test_a_student_that_scores_a_factor_of_the_teacher_has_that_q(teacher: dict[str, float], factor: float) -> None:
    found = compare({name: score * factor for name, score in teacher.items()}, teacher)
    assert found.q == pytest.approx(factor)


def test_perplexity_and_agreement(tmp_path: Path, models: dict[str, Path]) -> None:
    """The teacher agrees with its own cache everywhere; perplexity is exp of the mean loss on the held-out rows."""
    data_path = tmp_path / "data"
    data = token_rows(data_path, models["teacher"], random_rows(4, 10), held_out=4)
    wanted = CacheSettings(teacher=str(models["teacher"]), top_k=5, **CPU)
    logits = in_process(cache_logits.work, wanted, tmp_path / "logits", data=data_path)
    settings = TeacherEvaluateSettings(teacher=str(models["teacher"]), perplexity=True, agreement=True, **CPU)
    out = in_process(teacher_evaluate.work, settings, tmp_path / "out", data=data_path, logits=logits)
    scores = json.loads((out / "scores.json").read_text())["benchmarks"]
    assert scores["teacher_agreement"] == 1.0
    model = loading.load_model(str(models["teacher"]), EvaluateSettings(), torch.device("cpu"), dtype=torch.float32)
    total, count = 0.0, 0
    for r in range(6, 10):
        ids, targets = data.row(r)
        with torch.no_grad():
            z = model(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0, :-1, :98]
        losses = -torch.log_softmax(z.double(), 1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:].astype(np.int64))]
        total += float(losses[torch.from_numpy(np.array(targets[1:]))].sum())
        count += int(targets.sum())
    assert 1 / scores["inverse_perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert read_tokens(data_path).meta["response_tokens"] > count


def test_a_command_may_tell_its_tokens(tmp_path: Path, models: dict[str, Path], events: Path) -> None:
    told = {"scores": {"a": 0.5}, "tokens": 120, "input_tokens": 100}
    command = [sys.executable, "-c", f"print('''{json.dumps(told)}''')"]
    settings = TeacherEvaluateSettings(teacher=str(models["teacher"]), command=command, **CPU)
    out = in_process(teacher_evaluate.work, settings, tmp_path / "out")
    record = json.loads((out / "scores.json").read_text())
    assert record["benchmarks"] == {"a": 0.5} and record["tokens"] == 120
    last = of_type(events, "progress")[-1]
    assert (last["tokens"], last["input_tokens"]) == (120, 100)
    assert "work" in [e["name"] for e in of_type(events, "phase")]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('print(\'{"scores": {"a": 1}, "tokens": -1}\')', "must print one JSON object"),
        ("print('no json')", "must print one JSON object"),
        ("print('{\"a\": NaN}')", "must print one JSON object"),
        ("raise SystemExit(3)", "failed"),
    ],
)
def test_a_command_that_fails_is_named(models: dict[str, Path], code: str, said: str) -> None:
    settings = StudentEvaluateSettings(command=[sys.executable, "-c", code], **CPU)
    with pytest.raises(StageProblem, match=said):
        in_process(evaluate.work, settings, None, student=models["student"])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "no benchmark"),
        ({"perplexity": True}, "need the input data"),
        ({"exact_match": "nowhere.jsonl"}, "no such file nowhere.jsonl"),
    ],
)
def test_what_is_missing_is_said(models: dict[str, Path], values: dict[str, Any], said: str) -> None:
    with pytest.raises(StageProblem, match=said):
        in_process(evaluate.work, StudentEvaluateSettings(**values, **CPU), None, student=models["student"])


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda m: (m / "model.safetensors").write_bytes(b"torn"), "cannot be loaded"),
        (lambda m: (m / "model.safetensors").unlink(), "no .safetensors weights"),
        (lambda m: (m / "config.json").unlink(), "no config.json"),
        (lambda m: (m / "tokenizer.json").write_text("{"), "cannot be read"),
    ],
)
def test_missing_and_torn_models_are_told_in_one_line(
    tmp_path: Path, models: dict[str, Path], test_file: Path, break_it: Any, said: str
) -> None:
    import shutil

    model = shutil.copytree(models["student"], tmp_path / "model")
    break_it(model)
    settings = StudentEvaluateSettings(student=str(model), exact_match=str(test_file), **CPU)
    with pytest.raises(StageProblem, match=said) as caught:
        in_process(evaluate.work, settings, None)
    assert "\n" not in str(caught.value)


def test_batches_are_asked_once_each_the_longest_first() -> None:
    from kdwatch.stages.scoring.exact import batch_order

    order = batch_order(1000, 64)
    assert order[0] == 0 and sorted(order) == list(range(0, 1000, 64)) and order != sorted(order)
    assert batch_order(1000, 64) == order and batch_order(3, 64) == [0]
