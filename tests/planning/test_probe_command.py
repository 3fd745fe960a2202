"""`kdwatch probe`: what it makes of a recipe, how it reads a run, and that it says what it cannot probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kdwatch.cli.probe import prediction_lines, predictions
from kdwatch.cli.probe_recipe import probe_plan
from kdwatch.cli.root import cli
from kdwatch.pipeline.recipe import load_recipe, parse_recipe
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.writer import RunWriter
from planners.costmodel import Declined
from planners.proberead import read_probes
from planners.probes import Probe, predict_generation, rate_of

KD = """
name: kd
regime: kd
stages:
  - {name: prerun, uses: prerun}
  - {name: data, uses: preprocess, with: {data: rows.jsonl, tokenizer: m, validation: 0.1}}
  - {name: cache, uses: teacher.cache_logits, with: {teacher: t, top_k: 20, batch_tokens: 4096}, inputs: {data: data}}
  - name: student
    uses: student.train
    with: {student: m, objective: kd, max_steps: 500, early_stop: {epsilon: 0.01, patience: 2}}
    inputs: {data: data, logits: cache, validation: data}
  - {name: scores, uses: teacher.evaluate, with: {teacher: t, exact_match: test.jsonl}}
  - {name: evaluate, uses: evaluate, with: {exact_match: test.jsonl}, inputs: {student: student}}
  - {name: own, kind: other, run: [sh, -c, 'true']}
"""
SYNTHETIC = """
name: syn
regime: synthetic_sft
stages:
  - {name: data, uses: preprocess, with: {data: rows.jsonl, tokenizer: m}}
  - name: answers
    uses: teacher.generate
    with: {teacher: t, max_new_tokens: 64, batch_rows: 16}
    inputs: {data: data}
  - {name: student, uses: student.train, with: {student: m, objective: sft}, inputs: {data: answers}}
"""


def recipe(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path)


def parts(plan: Any, tmp_path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """By probing stage, its parts by name."""
    made = parse_recipe(plan.text, tmp_path / "probe.yaml")
    return {stage.name: {part["name"]: part for part in stage.settings["parts"]} for stage in made.stages}


def test_kd_probes_two_batches_and_two_sizes_in_one_process(tmp_path: Path) -> None:
    plan = probe_plan(recipe(tmp_path, KD), 128, 30.0, second_student="larger")
    (found,) = parts(plan, tmp_path).values()
    assert list(found) == [
        "data-all",
        "data",
        "cache",
        "cache-small",
        "student",
        "student-second",
        "scores",
        "evaluate",
    ]
    assert found["data"]["with"]["limit"] == 128 and found["data"]["with"]["validation"] == 0
    assert "limit" not in found["data-all"]["with"] and not found["data"]["measured"]
    assert [found[n]["with"]["batch_tokens"] for n in ("cache", "cache-small")] == [4096, 1024]
    assert [found[n]["with"]["student"] for n in ("student", "student-second", "evaluate")] == ["m", "larger", "m"]
    assert found["student"]["inputs"] == {"data": "data", "logits": "cache"}
    assert "early_stop" not in found["student"]["with"]
    assert {name for name, part in found.items() if part.get("whole")} == {"data", "cache"}
    assert plan.left_out == ("own",)


def test_generation_is_probed_at_two_batches_and_two_lengths(tmp_path: Path) -> None:
    (found,) = parts(probe_plan(recipe(tmp_path, SYNTHETIC), 128, 30.0), tmp_path).values()
    made = [part["with"] for part in found.values() if part["uses"] == "teacher.generate"]
    assert {(s["batch_rows"], s["max_new_tokens"]) for s in made} == {(16, 64), (16, 16), (4, 64), (4, 16)}
    assert found["answers"]["least"] == 6 * 16 and "prompts" not in made[0]
    assert all(s["prompts"] == 6 * s["batch_rows"] for s in made[1:])
    assert found["student"]["inputs"] == {"data": "answers"} and found["answers"]["whole"]


def test_a_batch_that_is_left_to_the_memory_is_probed_so(tmp_path: Path) -> None:
    text = SYNTHETIC.replace(", batch_rows: 16", "")
    (found,) = parts(probe_plan(recipe(tmp_path, text), 128, 30.0), tmp_path).values()
    made = [part["with"] for part in found.values() if part["uses"] == "teacher.generate"]
    assert {(s.get("batch_rows"), s["max_new_tokens"]) for s in made} == {(None, 64), (None, 16), (16, 64), (16, 16)}
    steady = tuple((100.0 * n, 200.0 * n) for n in range(10))
    left = Probe("generate", steady, 0.0, 0.0, length=64.0, samples=90.0)
    assert predict_generation([left], 1000, None, 64).mean == pytest.approx(1000 * 10 * 2.0)
    with pytest.raises(Declined, match="left to the memory"):
        predict_generation([left], 1000, None, 32)


def test_stages_on_other_gpus_are_probed_there_with_what_they_need(tmp_path: Path) -> None:
    text = KD.replace("  - name: student\n", "  - name: student\n    gpus: [1]\n")
    first, second = parts(probe_plan(recipe(tmp_path, text), 128, 30.0), tmp_path).values()
    assert "student" not in first and list(second) == ["data", "cache", "student"]
    assert [part.get("measured") for part in second.values()] == [False, False, None]


def test_an_evaluation_that_asks_others_is_left_out(tmp_path: Path) -> None:
    text = KD.replace("evaluate, with: {exact_match: test.jsonl}", "evaluate, with: {lm_eval: {tasks: [gsm8k]}}")
    assert probe_plan(recipe(tmp_path, text), 128, 30.0).left_out == ("evaluate", "own")


def test_a_recipe_of_commands_has_nothing_to_probe(tmp_path: Path) -> None:
    commands = "name: c\nstages:\n  - {name: a, kind: student, run: [sh, -c, 'true']}\n"
    with pytest.raises(UsageProblem, match="no built-in stage"):
        probe_plan(recipe(tmp_path, commands), 128, 30.0)
    done = CliRunner().invoke(cli, ["probe", str(tmp_path / "recipe.yaml")])
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1


def test_a_missing_recipe_is_one_line() -> None:
    done = CliRunner().invoke(cli, ["probe", "nowhere.yaml"])
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1 and "nowhere.yaml" in done.stderr


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"name": "a", "uses": "prerun"}, "cannot be probed"),
        ({"name": "a", "uses": "student.train", "with": {"student": "m", "epoch": 1}}, "epoch"),
        (
            {"name": "a", "uses": "student.train", "with": {"student": "m"}, "inputs": {"data": "b"}},
            "no earlier part b",
        ),
    ],
)
def test_a_part_that_cannot_be_is_named(tmp_path: Path, part: dict[str, Any], text: str) -> None:
    stage = {"name": "probe", "uses": "probe", "with": {"parts": [part]}}
    with pytest.raises(UsageProblem, match=text):
        parse_recipe(json.dumps({"name": "p", "stages": [stage]}), tmp_path / "p.yaml")


BOARD = {"key": "g0", "id": "g", "name": "G", "kind": "gpu", "scope": "board", "source": "counter", "stream": "nvml"}


class FakeRun:
    """A probing run at 100 W but for its work, which takes 300 W; times in tenths of a second."""

    def __init__(self, path: Path, parts: list[dict[str, Any]]) -> None:
        stage = {"name": "probe", "uses": "probe", "with": {"parts": parts}}
        manifest = {"run_id": path.name, "name": "p", "regime": "custom", "devices": [BOARD], "hardware": {"cpu": "C"},
                    "stages": [{"name": "probe", "kind": "other"}], "recipe": {"stages": [stage]}}  # fmt: skip
        self.path, self.writer = path, RunWriter.create(path, manifest)
        self.writer.open_stream("nvml", ["g0_j", "g0_w"])
        self.t, self.joules, self.watts, self.name = 0.0, 5000.0, 100.0, ""
        self.writer.event("run_started", t=0.0, wall=0.0, boottime=0.0)
        self.writer.event("stage_started", t=0.0, stage="probe", kind="other", pid=1, pgid=1)
        self.writer.sample("nvml", 0.0, [self.joules, self.watts])

    def wait(self, tenths: int) -> None:
        for _ in range(tenths):
            self.t = round(self.t + 0.1, 1)
            self.joules += self.watts / 10
            self.writer.sample("nvml", self.t, [self.joules, self.watts])

    def event(self, kind: str, **fields: Any) -> None:
        self.writer.event(kind, t=self.t, stage="probe", part=self.name, **fields)

    def phase(self, name: str, then: int = 0) -> None:
        self.event("phase", name=name)
        self.watts = 300.0 if name == "work" else 100.0
        self.wait(then)

    def end(self) -> Path:
        self.writer.event("stage_ended", t=self.t, stage="probe", status="completed", exit_code=0, signal=None)
        self.writer.event("run_ended", t=self.t, status="completed", exit_code=0, reason=None)
        self.writer.close()
        return self.path


def write_probe_run(path: Path, params: int = 2_000_000) -> Path:
    """1 s before anything, 3 s of imports, then a student: 2 s of loading, 20 s of work at 1000 tokens a second, 1 s of
    saving; 0.5 s to end."""
    part = {"name": "student", "uses": "student.train", "with": {"student": "m", "batch_rows": 8}}
    run = FakeRun(path, [part])
    run.wait(10)
    run.name = "shared"
    run.phase("begin", 30)
    run.phase("end")
    run.name = "student"
    run.phase("begin")
    run.phase("load", 20)
    run.event("model", role="student", params=params)
    run.phase("work")
    for second in range(1, 21):
        run.wait(10)
        run.event("progress", tokens=1000 * second, step=second)
    run.phase("save", 10)
    run.phase("end", 5)
    return run.end()


def test_a_probe_is_read_out_of_its_run(tmp_path: Path) -> None:
    (probe,) = read_probes(write_probe_run(tmp_path / "run"))
    assert (probe.kind, probe.params_b, probe.batch) == ("student", 0.002, 8.0)
    assert probe.startup_j == pytest.approx(750.0, rel=0.05), "starting, imports, loading, saving, ending"
    rate = rate_of(probe.points)
    assert rate is not None and rate.j_per_token == pytest.approx(0.3, rel=0.01)
    assert probe.total_j == pytest.approx(6300.0, rel=0.01)


def test_a_teacher_that_was_loaded_already_counts_with_its_loading(tmp_path: Path) -> None:
    specs = [{"name": n, "uses": "teacher.cache_logits", "with": {"teacher": "t", "batch_tokens": b}} for n, b in
             (("cache", 64), ("cache-small", 16))]  # fmt: skip
    run = FakeRun(tmp_path / "run", specs)
    for run.name, load, kept in (("cache", 40, {}), ("cache-small", 2, {"kept": True})):
        run.phase("begin")
        run.phase("load", load)
        run.event("model", role="teacher", params=5_000_000, **kept)
        run.phase("work")
        for second in range(1, 9):
            run.wait(10)
            run.event("progress", tokens=500 * second)
        run.wait(4)
        run.phase("save", 1)
        run.phase("end")
    whole, small = read_probes(run.end())
    assert small.startup_j == pytest.approx(whole.startup_j + 20.0, rel=0.05)
    assert whole.tail_j == pytest.approx(120.0, rel=0.12), "0.4 s, told by readings that are 0.1 s apart"


def test_a_part_that_did_not_end_is_no_probe(tmp_path: Path) -> None:
    run = FakeRun(tmp_path / "run", [{"name": "student", "uses": "student.train", "with": {"student": "m"}}])
    run.name = "student"
    run.phase("begin")
    run.phase("work", 10)
    run.event("progress", tokens=1000)
    assert read_probes(run.end()) == []


def test_predictions_name_what_is_unknown_and_sum_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    found = predictions(recipe(tmp_path, KD), [])
    assert found["total_j"] is None and all(stage["energy_j"] is None and stage["why"] for stage in found["stages"])
    json.dumps(found, allow_nan=False)
    text = KD.replace("{name: data, uses: preprocess, with: {", "{name: data, uses: preprocess, with: {limit: 100, ")
    settings = {"student": "m", "objective": "kd"}
    steady = tuple((1000.0 * n, 300.0 * n) for n in range(10))
    known = Probe("student", steady, 100.0, 2800.0, uses="student.train", settings=settings)
    found = predictions(recipe(tmp_path, text), [known]) | {"run_id": "r", "probes_j": 1.0}
    (student,) = [stage for stage in found["stages"] if stage["energy_j"]]
    assert student["energy_j"] == pytest.approx(100 + 0.3 * student["tokens"]) and student["basis"] == "interpolated"
    other = Probe("student", steady, 100.0, 2800.0, uses="student.train", settings=settings | {"batch_rows": 64})
    assert predictions(recipe(tmp_path, text), [other])["total_j"] is None, "another batch is another rate"
    lines = prediction_lines(found)
    assert lines[0].startswith("stage") and any("n/a" in line for line in lines)


def test_a_probe_that_fails_says_why(tmp_path: Path) -> None:
    text = KD.split("  - {name: cache")[0] + "  - {name: scores, uses: teacher.evaluate, with: {teacher: t, " \
        "exact_match: test.jsonl}}\n"  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(text)
    done = CliRunner().invoke(cli, ["probe", str(tmp_path / "recipe.yaml")])
    assert done.exit_code == 1 and done.stdout == ""
    assert "the probes ended before their time: data-all: model: m is no directory" in done.stderr
