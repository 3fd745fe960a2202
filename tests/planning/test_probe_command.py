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
from planners.proberead import read_probes
from planners.probes import Probe, rate_of

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


def test_kd_probes_two_batches_and_two_sizes_and_are_a_recipe(tmp_path: Path) -> None:
    plan = probe_plan(recipe(tmp_path, KD), 128, second_student="larger")
    stages = {s.name: s for s in parse_recipe(plan.text, tmp_path / "probe.yaml").stages}
    assert stages["probe-data"].settings["limit"] == 128
    assert [stages[n].settings["batch_tokens"] for n in ("probe-cache", "probe-cache-small")] == [4096, 1024]
    assert [stages[n].settings["student"] for n in ("probe-student", "probe-student-second")] == ["m", "larger"]
    assert stages["probe-student"].inputs == {"data": "probe-data", "logits": "probe-cache"}
    assert "early_stop" not in stages["probe-student"].settings
    assert stages["probe-evaluate"].settings["student"] == "m"
    assert all(stage.reuse is False for name, stage in stages.items() if name != "probe-data")
    assert plan.needed == {"probe-data", "probe-cache"} and plan.left_out == ("own",)


def test_generation_is_probed_at_two_batches_and_two_lengths(tmp_path: Path) -> None:
    plan = probe_plan(recipe(tmp_path, SYNTHETIC), 128)
    made = [s.settings for s in parse_recipe(plan.text, tmp_path / "probe.yaml").stages if s.uses == "teacher.generate"]
    assert {(s["batch_rows"], s["max_new_tokens"]) for s in made} == {(16, 64), (16, 16), (4, 64), (4, 16)}
    assert all(s["prompts"] == 6 * s["batch_rows"] for s in made)


def test_a_recipe_of_commands_has_nothing_to_probe(tmp_path: Path) -> None:
    commands = "name: c\nstages:\n  - {name: a, kind: student, run: [sh, -c, 'true']}\n"
    with pytest.raises(UsageProblem, match="no built-in stage"):
        probe_plan(recipe(tmp_path, commands), 128)
    done = CliRunner().invoke(cli, ["probe", str(tmp_path / "recipe.yaml")])
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1


def test_a_missing_recipe_is_one_line() -> None:
    done = CliRunner().invoke(cli, ["probe", "nowhere.yaml"])
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1 and "nowhere.yaml" in done.stderr


def write_probe_run(path: Path) -> Path:
    """A student at 100 W for 4 s of loading, then 300 W and 1000 tokens a second for 20 s."""
    device = {
        "key": "g0",
        "id": "g",
        "name": "G",
        "kind": "gpu",
        "scope": "board",
        "source": "counter",
        "stream": "nvml",
    }
    stage = {"name": "probe-student", "uses": "student.train", "with": {"batch_rows": 8}}
    writer = RunWriter.create(
        path,
        {"run_id": path.name, "name": "p", "regime": "custom", "devices": [device],
         "stages": [{"name": "probe-student", "kind": "student"}], "recipe": {"stages": [stage]}},
    )  # fmt: skip
    writer.open_stream("nvml", ["g0_j", "g0_w"])
    joules = 5000.0
    writer.event("run_started", t=0.0, wall=0.0, boottime=0.0)
    writer.event("stage_started", t=0.0, stage="probe-student", kind="student", pid=1, pgid=1)
    writer.event("model", t=1.0, stage="probe-student", role="student", params=2_000_000)
    writer.sample("nvml", 0.0, [joules, 100.0])
    for tick in range(1, 241):
        t = tick / 10
        watts = 100.0 if t <= 4.0 else 300.0
        joules += watts / 10
        writer.sample("nvml", t, [joules, watts])
        if tick == 40:
            writer.event("phase", t=t, stage="probe-student", name="work")
        if tick > 40 and tick % 10 == 0:
            writer.event("progress", t=t, stage="probe-student", tokens=int(1000 * (t - 4)), step=tick)
    writer.event("stage_ended", t=24.0, stage="probe-student", status="stopped", exit_code=143, signal=None)
    writer.event("run_ended", t=24.0, status="stopped", exit_code=143, reason=None)
    writer.close()
    return path


def test_a_probe_is_read_out_of_its_run(tmp_path: Path) -> None:
    (probe,) = read_probes(write_probe_run(tmp_path / "run"))
    assert (probe.kind, probe.params_b, probe.batch) == ("student", 0.002, 8.0)
    assert probe.startup_j == pytest.approx(400.0, rel=0.05)
    rate = rate_of(probe.points)
    assert rate is not None and rate.j_per_token == pytest.approx(0.3, rel=0.01)
    assert probe.total_j == pytest.approx(6400.0, rel=0.01)


def test_predictions_name_what_is_unknown_and_sum_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    found = predictions(recipe(tmp_path, KD), [])
    assert found["total_j"] is None and all(stage["energy_j"] is None and stage["why"] for stage in found["stages"])
    json.dumps(found, allow_nan=False)
    steady = tuple((1000.0 * n, 300.0 * n) for n in range(10))
    known = Probe("evaluate", steady, 100.0, 2800.0, of_teacher=True)
    lines = prediction_lines(predictions(recipe(tmp_path, KD), [known]) | {"run_id": "r", "probes_j": 1.0})
    assert lines[0].startswith("stage") and any("n/a" in line for line in lines)
