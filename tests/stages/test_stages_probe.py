"""Stage `probe`: parts in one process, the teacher loaded once, each part over when its speed is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from stages_help import jsonl, task_rows

from kdwatch.stages import preprocess
from kdwatch.stages.data.tokens import read_tokens
from kdwatch.stages.entry import Stage
from kdwatch.stages.pace import Pace
from kdwatch.stages.probe_settings import PROBED
from kdwatch.stages.registry import BUILTIN
from kdwatch.stages.settings import PreprocessSettings


def start(folder: Path, parts: Sequence[Mapping[str, Any]], **settings: Any) -> subprocess.Popen[str]:
    """The stage as the recorder starts it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    value = {"name": "probe", "settings": {"parts": list(parts), **settings}, "inputs": {}, "output": None}
    config.write_text(json.dumps(value))
    env = os.environ | {"KDWATCH_STAGE_CONFIG": str(config), "KDWATCH_EVENTS": str(folder / "events.jsonl")}
    command = [sys.executable, "-P", "-m", "kdwatch.stages.probe"]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def events(folder: Path) -> list[dict[str, Any]]:
    """What the stage reported."""
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kd_parts(folder: Path, models: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Data, two forward passes, a student that would train for ever, two evaluations."""
    data = jsonl(folder / "rows.jsonl", task_rows(3000))
    teacher, student, cpu = str(models["teacher"]), str(models["student"]), {"device": "cpu", "threads": 1}
    preprocess = {"data": str(data), "tokenizer": student}
    rows = preprocess | {"limit": 200}
    cache = {"teacher": teacher, "batch_tokens": 512, **cpu}
    train = {"student": student, "objective": "kd", "max_steps": 1_000_000, **cpu}
    tests = {"exact_match": str(data), "limit": 8, "max_new_tokens": 4, **cpu}
    inputs = {"data": "rows"}
    return [
        {"name": "data", "uses": "preprocess", "with": preprocess},
        {"name": "rows", "uses": "preprocess", "with": rows, "whole": True, "measured": False},
        {"name": "cache", "uses": "teacher.cache_logits", "with": cache, "inputs": inputs, "whole": True},
        {"name": "small", "uses": "teacher.cache_logits", "with": cache | {"batch_tokens": 128}, "inputs": inputs},
        {"name": "student", "uses": "student.train", "with": train, "inputs": inputs | {"logits": "cache"}},
        {"name": "scores", "uses": "teacher.evaluate", "with": tests | {"teacher": teacher}},
        {"name": "evaluate", "uses": "evaluate", "with": tests | {"student": student}},
    ]


def test_all_parts_run_in_one_process_and_report_apart(tmp_path: Path, models: dict[str, Path]) -> None:
    parts = kd_parts(tmp_path, models)
    process = start(tmp_path / "run", parts, least_seconds=0.5, seconds=1.0)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 0, text
    seen = events(tmp_path / "run")
    begun = [e["part"] for e in seen if e["type"] == "phase" and e["name"] == "begin"]
    assert begun == ["data", "rows", "shared", *(part["name"] for part in parts[2:])]
    assert [e["part"] for e in seen if e["type"] == "phase" and e["name"] == "end"] == begun
    loads = {e["part"]: e.get("kept", False) for e in seen if e["type"] == "model"}
    assert loads == {"cache": False, "small": True, "student": False, "scores": True, "evaluate": False}
    tokens = {e["part"]: e["tokens"] for e in seen if e["type"] == "progress" and "tokens" in e}
    assert set(tokens) == {part["name"] for part in parts} and all(tokens.values())
    assert not [e for e in seen if e["type"] == "quality"], "a probe's scores are none of the run's"
    assert [e["step"] for e in seen if e["type"] == "progress" and "part" not in e] == [1, 2, 3, 4, 5, 6, 7]
    work = {e["name"]: e["t"] for e in seen if e["type"] == "phase" and e["part"] == "student"}
    assert work["save"] - work["work"] > 0.4, "it would have trained for ever, and was over in time"
    assert not (tmp_path / "run" / "scratch").exists()


def test_a_generation_ends_once_it_has_enough_and_what_it_made_is_trained_on(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    _, rows, *_ = kd_parts(tmp_path, models)
    rows["with"] |= {"limit": 2000}
    cpu, inputs = {"device": "cpu", "threads": 1}, {"data": "rows"}
    asked = {"teacher": str(models["teacher"]), "max_new_tokens": 6, "batch_rows": 8, "shard_rows": 8, **cpu}
    asked |= {"keep_truncated": True, "min_tokens": 0}
    train = {"student": str(models["student"]), "max_steps": 5, **cpu}
    parts = [
        rows,
        {"name": "answers", "uses": "teacher.generate", "with": asked, "inputs": inputs, "whole": True, "least": 24},
        {"name": "student", "uses": "student.train", "with": train, "inputs": {"data": "answers"}},
    ]
    process = start(tmp_path / "run", parts, least_seconds=0.2, seconds=0.3)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 0, text
    seen = events(tmp_path / "run")
    answered = max(e["step"] for e in seen if e["type"] == "progress" and e.get("part") == "answers")
    assert 24 <= answered < 2000
    (made,) = [e for e in seen if e["type"] == "made"]
    assert 0 < made["rows"] <= answered and made["part"] == "answers"
    assert any(e["type"] == "progress" and e.get("part") == "student" for e in seen)


def test_term_ends_the_probe_and_leaves_nothing(tmp_path: Path, models: dict[str, Path]) -> None:
    parts = [part for part in kd_parts(tmp_path, models) if part["name"] in ("rows", "cache", "student")]
    process = start(tmp_path / "run", parts, least_seconds=300.0, seconds=300.0)
    deadline = time.monotonic() + 60
    while not any(e["type"] == "progress" and e.get("part") == "student" for e in events(tmp_path / "run")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert not (tmp_path / "run" / "scratch").exists()


def test_a_part_that_fails_is_named(tmp_path: Path, models: dict[str, Path]) -> None:
    parts = kd_parts(tmp_path, models)[:1]
    parts[0]["with"]["data"] = str(tmp_path / "nowhere.jsonl")
    process = start(tmp_path / "run", parts)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 2 and text.startswith("kdwatch stage: data: data: no such file")
    assert len(text.splitlines()) == 1


def test_data_that_is_slow_to_open_still_gives_some_rows(tmp_path: Path, models: dict[str, Path]) -> None:
    """The time of the part is over before the first row is read."""
    rows = jsonl(tmp_path / "rows.jsonl", task_rows(2 * preprocess.CHUNK_ROWS))
    stage = Stage("data", {}, tmp_path / "out", enough=True, report_s=0.0)
    preprocess.work(PreprocessSettings(data=str(rows), tokenizer=str(models["student"])), stage)
    assert len(read_tokens(tmp_path / "out")) == preprocess.CHUNK_ROWS


def test_a_teacher_that_is_kept_reports_the_role_it_is_asked_for(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may be one part's teacher and another's student."""
    import torch

    from kdwatch.stages.nn.models import kept_loaded, load_model
    from kdwatch.stages.settings import EvaluateSettings

    monkeypatch.setenv("KDWATCH_EVENTS", str(tmp_path / "events.jsonl"))
    with kept_loaded():
        for role in ("teacher", "student", None):
            load_model(str(models["teacher"]), EvaluateSettings(), torch.device("cpu"), dtype=torch.float32, role=role)
    assert [(e["role"], e.get("kept", False)) for e in events(tmp_path)] == [("teacher", False), ("student", True)]


def test_what_can_be_probed_is_what_the_recorder_starts() -> None:
    assert {name: (BUILTIN[name].module, BUILTIN[name].settings) for name in PROBED} == PROBED


@pytest.mark.slow  # torchrun imports torch three times
def test_several_processes_are_a_part_of_their_own(tmp_path: Path, models: dict[str, Path]) -> None:
    parts = [part for part in kd_parts(tmp_path, models) if part["name"] in ("rows", "cache", "student")]
    parts[-1]["with"] |= {"processes": 2}
    process = start(tmp_path / "run", parts, least_seconds=0.5, seconds=1.5)
    text = process.communicate(timeout=200)[0]
    assert process.returncode == 0, text
    mine = [e for e in events(tmp_path / "run") if e.get("part") == "student"]
    assert "process" in [e.get("name") for e in mine] and any(e["type"] == "progress" for e in mine)


def steady(pace: Pace, reports: int, step_s: float = 0.25, wobble: float = 0.0) -> None:
    for n in range(1, reports + 1):
        tokens = 100 * n + (int(100 * wobble) if n % 2 else 0)
        pace.report({"type": "progress", "t": 10.0 + step_s * n, "tokens": tokens, "step": n})


def test_a_steady_speed_is_enough_after_the_least_time() -> None:
    pace = Pace(least_s=2.0, most_s=30.0)
    pace.report({"type": "phase", "name": "load", "t": 5.0})
    assert not pace.over(1000.0), "the work has not begun"
    pace.report({"type": "phase", "name": "work", "t": 10.0})
    steady(pace, 6)
    assert not pace.over(11.9) and pace.over(12.0)


def test_an_unsteady_speed_is_watched_until_the_time_is_over() -> None:
    pace = Pace(least_s=2.0, most_s=30.0)
    pace.report({"type": "phase", "name": "work", "t": 10.0})
    steady(pace, 20, wobble=0.5)
    assert not pace.over(15.0) and pace.over(40.0)


def test_data_that_others_need_is_read_first() -> None:
    pace = Pace(least_s=1.0, most_s=3.0, least_steps=50)
    pace.report({"type": "phase", "name": "work", "t": 10.0})
    steady(pace, 49)
    assert not pace.over(100.0)
    steady(pace, 50)
    assert pace.over(100.0)
