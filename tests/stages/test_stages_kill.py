"""kill -9 at random moments of each stage, start again, and the end is the same as without."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from stages_help import as_process, jsonl, task_rows, tiny_model

from kdwatch.stages.registry import BUILTIN
from kdwatch.stages.settings import TrainSettings

LIMIT_S = 240
ONE = {"device": "cpu", "threads": 1}
FORKER = Path(__file__).parent / "stage_forker.py"


@dataclass(frozen=True)
class Case:
    """One stage with what it needs."""

    uses: str
    settings: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)
    """Input name: case whose output it is."""


def cases(teacher: str, student: str, rows: str) -> dict[str, Case]:
    """Every stage that makes or measures something, and every regime of training."""
    train = {
        "student": student,
        "max_steps": 60,
        "batch_rows": 16,
        "learning_rate": 0.01,
        "checkpoint_every_s": 0.05,
        **ONE,
    }
    stop = {"epsilon": 0.0, "patience": 99, "every": 20}
    scores = {"exact_match": rows, "perplexity": True, "agreement": True, "max_new_tokens": 8, "batch_rows": 8, **ONE}
    answers = {"max_new_tokens": 12, "min_tokens": 0, "keep_truncated": True, "shard_rows": 20, "batch_rows": 8}
    cache = {"top_k": 10, "shard_tokens": 100, "batch_tokens": 200}
    return {
        "preprocess": Case("preprocess", {"data": rows, "tokenizer": student, "validation": 0.1}),
        "cache": Case("teacher.cache_logits", {"teacher": teacher, **cache, **ONE}, {"data": "preprocess"}),
        "cache-samples": Case(
            "teacher.cache_logits",
            {"teacher": teacher, "method": "sample", "samples": 10, "shard_tokens": 100, "batch_tokens": 200, **ONE},
            {"data": "preprocess"},
        ),
        "generate": Case("teacher.generate", {"teacher": teacher, **answers, **ONE}, {"data": "preprocess"}),
        "sft": Case("student.train", {**train, "early_stop": stop}, {"data": "preprocess"}),
        "kd": Case(
            "student.train",
            {**train, "objective": "kd", "accumulate": 2, "early_stop": stop},
            {"data": "preprocess", "logits": "cache"},
        ),
        "synthetic": Case(
            "student.train",
            {**train, "weights": "bfloat16", "optimizer": "adafactor", "packing": True},
            {"data": "generate"},
        ),
        "on-policy": Case(
            "student.train",
            {**train, "objective": "on_policy", "teacher": teacher, "max_new_tokens": 6, "max_steps": 20},
            {"data": "preprocess"},
        ),
        "teacher-scores": Case(
            "teacher.evaluate", {"teacher": teacher, **scores}, {"data": "preprocess", "logits": "cache"}
        ),
        "scores": Case(
            "evaluate",
            {"student": student, **scores},
            {"data": "preprocess", "logits": "cache", "teacher_scores": "teacher-scores"},
        ),
    }


NAMES = list(cases("", "", ""))


@dataclass
class World:
    """Undisturbed outputs, and the process that forks stages."""

    folder: Path
    cases: dict[str, Case]
    forker: subprocess.Popen[str]
    seconds: dict[str, float] = field(default_factory=dict)

    def run(
        self,
        name: str,
        folder: Path,
        kill_after: float | None = None,
        *,
        headroom_b: int | None = None,
        **changed: Any,
    ) -> tuple[int, float]:
        """(exit status, seconds) of one process of this stage, with changed settings, that writes into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        case = self.cases[name]
        output = folder / "out" if BUILTIN[case.uses].makes else None
        value = {
            "name": name,
            "settings": case.settings | changed,
            "inputs": {key: str(self.folder / made / "out") for key, made in case.inputs.items()},
            "output": output and str(output),
        }
        (folder / "config.json").write_text(json.dumps(value))
        order = {
            "uses": case.uses,
            "config": str(folder / "config.json"),
            "events": str(folder / "events.jsonl"),
            "log": str(folder / "log"),
            "kill_after": kill_after,
            "headroom_b": headroom_b,
        }
        (folder / "events.jsonl").write_text("")
        assert self.forker.stdin and self.forker.stdout
        print(json.dumps(order), file=self.forker.stdin, flush=True)
        answer = json.loads(self.forker.stdout.readline())
        return answer["code"], answer["seconds"]

    def whole(self, name: str) -> Path:
        """Folder of this stage run without a kill, made on first use."""
        for needed in self.cases[name].inputs.values():
            self.whole(needed)
        folder = self.folder / name
        if name not in self.seconds:
            code, self.seconds[name] = self.run(name, folder)
            assert code == 0, (folder / "log").read_text()
        return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Iterator[World]:
    """Two hundred rows, two tiny models, one process that has torch loaded."""
    folder = tmp_path_factory.mktemp("kill")
    rows = jsonl(folder / "rows.jsonl", task_rows(200))
    modules = sorted({BUILTIN[c.uses].module for c in cases("", "", "").values()})
    late = ["kdwatch.stages.nn.loop", "kdwatch.stages.cache.writer", "kdwatch.stages.generated.engines"]
    model = "transformers.models.llama.modeling_llama"
    command = [sys.executable, str(FORKER), *modules, *late, model]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forker:
        yield World(folder, cases(str(models["teacher"]), str(models["student"]), str(rows)), forker)
        assert forker.stdin
        forker.stdin.close()


def result(folder: Path) -> dict[str, Any]:
    """All that a stage leaves: files by content, and the scores it reported. When losses were reported, by the clock,
    is left out; tokens too, since each process counts its own."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "out").rglob("*")) if (folder / "out").is_dir() else ():
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    if "out/training.json" in found:
        record = json.loads(found["out/training.json"])
        record.pop("losses")
        found["out/training.json"] = record
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    found["quality"] = [{k: v for k, v in e.items() if k != "t"} for e in events if e["type"] == "quality"]
    return found


def kill_and_resume(world: World, name: str, folder: Path, kills: int, seed: int) -> None:
    """Kill at `kills` moments drawn evenly from the stage's own duration, always on what the one before left; where it
    ends first, its result is compared, and the next kills hit a new one."""
    expected = result(world.whole(name))
    rng = random.Random(seed)
    killed = attempt = 0
    while True:
        last = killed == kills
        code, _ = world.run(name, folder / str(attempt), None if last else rng.uniform(0, world.seconds[name]))
        if code == -9:
            killed += 1
            continue
        assert code == 0, (folder / str(attempt) / "log").read_text()
        found = result(folder / str(attempt))
        assert {key: found.get(key) == value for key, value in expected.items()} == dict.fromkeys(expected, True)
        assert set(found) == set(expected)
        if last:
            return
        attempt += 1


@pytest.mark.parametrize("name", NAMES)
def test_killed_a_few_times_it_ends_the_same(name: str, world: World, tmp_path: Path) -> None:
    kill_and_resume(world, name, tmp_path, kills=3, seed=1)


@pytest.mark.slow  # some 700 processes
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_fifty_moments_it_ends_the_same(name: str, world: World, tmp_path: Path) -> None:
    kill_and_resume(world, name, tmp_path, kills=50, seed=2)


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


def test_sigterm_saves_within_a_few_seconds_and_says_so(world: World, tmp_path: Path) -> None:
    """SIGTERM: a checkpoint after the update in progress, exit status 143, and nothing that looks whole."""
    data = world.whole("preprocess") / "out"
    output = tmp_path / "out"
    events = tmp_path / "events.jsonl"
    long = {**world.cases["sft"].settings, "max_steps": 100_000, "checkpoint_every_s": 1000}
    process = as_process("kdwatch.stages.train", long, output, events, data=data)
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
def test_bad_input_is_one_line_and_exit_2(settings: dict[str, Any], said: str, world: World, tmp_path: Path) -> None:
    data = world.whole("preprocess") / "out"
    process = as_process("kdwatch.stages.train", settings, tmp_path / "o", data=data)
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
    assert "disk full" in fails(ValueError("serializing: I/O error: No space left on device (os error 28)"))
    with pytest.raises(RuntimeError, match="something else"):
        fails(RuntimeError("something else"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set by what /proc says")
def test_real_want_of_memory_ends_with_one_line_that_says_what_to_lower(world: World, tmp_path: Path) -> None:
    """A student whose output layer alone makes 700 MB of a batch that it may not have, and may have in small ones."""
    world.whole("preprocess")
    student = str(tiny_model(tmp_path / "wide", rows=120_000))
    code, _ = world.run("sft", tmp_path / "a", headroom_b=600_000_000, student=student, batch_rows=180, max_steps=1)
    said = (tmp_path / "a" / "log").read_text().splitlines()[-1]
    assert code == 1 and "out of memory" in said and "lower batch_rows" in said
    assert "Traceback" not in (tmp_path / "a" / "log").read_text()
    code, _ = world.run("sft", tmp_path / "b", headroom_b=600_000_000, student=student, batch_rows=8, max_steps=1)
    assert code == 0, (tmp_path / "b" / "log").read_text()


SMALL_DISK = """
mount -t tmpfs -o size=$1 none "$2" || exit 77
"$3" -m "$4"
code=$?
ls -A "$2"
exit $code
"""


MORE = pytest.mark.slow  # the same by two other writers, each with a start of torch


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("preprocess", "8k"),
        ("sft", "40k"),
        pytest.param("cache", "12k", marks=MORE),
        pytest.param("generate", "16k", marks=MORE),
    ],
)
def test_a_disk_that_fills_up_ends_with_one_line_and_nothing_that_looks_whole(
    name: str, size: str, world: World, tmp_path: Path
) -> None:
    """On a real small file system; skipped where none can be mounted."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    world.whole(name)
    case = world.cases[name]
    disk = tmp_path / "disk"
    disk.mkdir()
    config = {
        "name": name,
        "settings": {**case.settings, "checkpoint_every_s": 1e-9} if name == "sft" else case.settings,
        "inputs": {key: str(world.folder / made / "out") for key, made in case.inputs.items()},
        "output": str(disk),
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", size, str(disk), sys.executable]
    env = {**os.environ, "KDWATCH_STAGE_CONFIG": str(tmp_path / "config.json")}
    done = subprocess.run([*words, BUILTIN[case.uses].module], env=env, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no small file system can be mounted here")
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr and "free" in done.stderr.splitlines()[-1]
    assert not {"meta.json", "manifest.json", "training.json"} & set(done.stdout.split())
