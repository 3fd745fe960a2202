"""kill -9 at random moments of each stage, start again, and the end is the same as without."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from stages_help import as_process, in_process, preprocessed, task_rows

from kdwatch.stages import cache_logits, generate, train
from kdwatch.stages.settings import CacheSettings, GenerateSettings, TrainSettings

LIMIT_S = 240


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> dict[str, Any]:
    """A data set, and for each stage its settings, inputs and undisturbed output."""
    folder = tmp_path_factory.mktemp("kill")
    data = preprocessed(folder / "data", models["teacher"], task_rows(200), validation=0.1)
    one = {"device": "cpu", "threads": 1}
    teacher = str(models["teacher"])
    cache = {"teacher": teacher, "top_k": 10, "shard_tokens": 100, "batch_tokens": 200, **one}
    answers = {
        "teacher": teacher,
        "max_new_tokens": 12,
        "min_tokens": 0,
        "keep_truncated": True,
        "shard_rows": 40,
        "batch_rows": 8,
        **one,
    }
    student = {
        "student": str(models["student"]),
        "objective": "kd",
        "max_steps": 150,
        "batch_rows": 16,
        "learning_rate": 0.01,
        "checkpoint_every_s": 0.2,
        "early_stop": {"epsilon": 0.0, "patience": 99, "every": 30},
        **one,
    }
    in_process(cache_logits.work, CacheSettings(**cache), folder / "cache", data=data)
    in_process(generate.work, GenerateSettings(**answers), folder / "answers", data=data)
    in_process(train.work, TrainSettings(**student), folder / "student", data=data, logits=folder / "cache")
    return {
        "cache_logits": (cache, {"data": data}, folder / "cache", "shard-*.safetensors"),
        "generate": (answers, {"data": data}, folder / "answers", "*.npy"),
        "train": (student, {"data": data, "logits": folder / "cache"}, folder / "student", "model.safetensors"),
    }


def work_begins(events: Path, process: Any) -> bool:
    """Wait until the stage says that its work begins; False where it ended first."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if events.exists() and any('"work"' in line for line in events.read_text().splitlines()):
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    raise AssertionError("the stage did not begin")


def kill_until_done(name: str, world: dict[str, Any], folder: Path, kills: int, seed: int) -> int:
    """Kill the stage `kills` times at random moments of its work, then let it end; how often it was killed in time."""
    settings, inputs, whole, pattern = world[name]
    rng = random.Random(seed)
    output = folder / "out"
    done = 0
    for attempt in range(kills + 1):
        events = folder / f"events-{attempt}.jsonl"
        process = as_process(f"kdwatch.stages.{name}", settings, output, events, **inputs)
        if attempt < kills and work_begins(events, process):
            time.sleep(rng.uniform(0, 0.6))
            if process.poll() is None:
                done += 1
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if (output / "training.json").exists():
                break
            continue
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, errors
    files = sorted(p.name for p in whole.glob(pattern))
    assert files == sorted(p.name for p in output.glob(pattern))
    for file in files:
        assert (output / file).read_bytes() == (whole / file).read_bytes(), file
    return done


@pytest.mark.parametrize("name", ["cache_logits", "generate", "train"])
def test_killed_once_it_ends_the_same(name: str, world: dict[str, Any], tmp_path: Path) -> None:
    kill_until_done(name, world, tmp_path, kills=1, seed=1)


@pytest.mark.slow  # 51 process starts for each stage take about ten minutes
@pytest.mark.parametrize("name", ["cache_logits", "generate", "train"])
def test_killed_at_fifty_moments_it_ends_the_same(name: str, world: dict[str, Any], tmp_path: Path) -> None:
    killed = 0
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        killed += kill_until_done(name, world, folder, kills=5, seed=seed)
    assert killed >= 20


def test_sigterm_saves_within_a_few_seconds_and_says_so(world: dict[str, Any], tmp_path: Path) -> None:
    """SIGTERM: a checkpoint after the update in progress, exit status 143, and nothing that looks whole."""
    settings, inputs, _, _ = world["train"]
    output = tmp_path / "out"
    events = tmp_path / "events.jsonl"
    long = {**settings, "max_steps": 100_000, "checkpoint_every_s": 1000}
    process = as_process("kdwatch.stages.train", long, output, events, **inputs)
    assert work_begins(events, process)
    time.sleep(0.3)
    begin = time.monotonic()
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and "stopped" in errors
    assert time.monotonic() - begin < 20
    assert list((output / ".resume").glob("step-*/state.json"))
    assert not (output / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"student": "nowhere/x/y"}, "no such directory nowhere/x/y"),
        ({"student": "s", "alpha": 2}, "setting alpha"),
        ({"student": "s", "objective": "on_policy"}, "needs `teacher:`"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    settings: dict[str, Any], said: str, world: dict[str, Any], tmp_path: Path
) -> None:
    _, inputs, _, _ = world["train"]
    process = as_process("kdwatch.stages.train", settings, tmp_path / "o", data=inputs["data"])
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2 and said in errors
    assert "Traceback" not in errors and len(errors.strip().splitlines()) == 1


def test_out_of_memory_and_full_disk_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import errno

    from kdwatch.stages import entry

    config = tmp_path / "c.json"
    config.write_text(json.dumps({"name": "s", "settings": {"student": "x"}, "inputs": {}, "output": str(tmp_path)}))
    monkeypatch.setenv("KDWATCH_STAGE_CONFIG", str(config))

    def fails(error: BaseException) -> str:
        def work(_settings: Any, _stage: Any) -> None:
            raise error

        with pytest.raises(SystemExit) as ended:
            entry.run_stage(TrainSettings, work)
        assert ended.value.code == 1
        return capsys.readouterr().err

    assert "lower batch_rows" in fails(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")
    )
    assert "gradient_checkpointing" in fails(MemoryError())
    assert "disk full" in fails(OSError(errno.ENOSPC, "No space left on device", "x"))
    with pytest.raises(RuntimeError, match="something else"):
        fails(RuntimeError("something else"))
