"""Observations from run directories: what a report and a manifest become, reuse at full cost, scope, other runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdwatch.cli.plan_text import plan_lines
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import runs_dir
from kdwatch.rundir.writer import RunWriter
from planners import PlanRequest, load, plan
from planners.emit import Models, recipe_text
from planners.modelsize import named_params_b, reported_params_b, stored_params_b
from planners.observations import Observations
from planners.runs import scope_of
from planners.schema import make_table

DEVICES = [
    {
        "key": "g0",
        "id": "GPU-0",
        "name": "Board",
        "kind": "gpu",
        "scope": "board",
        "source": "counter",
        "stream": "nvml",
    },
    {"key": "c0", "id": "pkg", "name": "CPU", "kind": "cpu", "scope": "package", "source": "counter", "stream": "nvml"},
]

STAGE_S = 60


def write_run(name: str, regime: str, stages: list[dict[str, Any]], **more: Any) -> Path:
    """A run whose stages take a minute each and use the joules they are given, shared by the devices."""
    path = runs_dir() / name
    recipe = {"name": name, "regime": regime, "stages": [
        {"name": s["name"], "uses": s.get("uses"), "with": s.get("with", {})} for s in stages]}  # fmt: skip
    writer = RunWriter.create(
        path,
        {"run_id": name, "name": name, "regime": regime, "devices": more.get("devices", DEVICES), "recipe": recipe,
         "hardware": {"cpu": "CPU", "gpus": ["Board"]},
         "stages": [{"name": s["name"], "kind": s["kind"], "uses": s.get("uses")} for s in stages]},
    )  # fmt: skip
    keys = [d["key"] for d in more.get("devices", DEVICES)]
    writer.open_stream("nvml", [f"{key}_{what}" for key in keys for what in ("j", "w")])
    used, t = 1000.0, 0.0
    writer.event("run_started", t=0.0, wall=0.0, boottime=0.0)
    writer.sample("nvml", 0.0, [value for _ in keys for value in (used, 0.0)])
    for stage in stages:
        if "reused_j" in stage:
            reused = {"run": "earlier", "artifact": "a", "energy_j": stage["reused_j"]}
            writer.event("stage_reused", t=t, stage=stage["name"], reused_from=reused)
            continue
        writer.event("stage_started", t=t, stage=stage["name"], kind=stage["kind"], pid=1, pgid=1)
        for event in stage.get("events", []):
            writer.event(event.pop("type"), t=t + 0.5, stage=stage["name"], **event)
        watts = stage["joules"] / len(keys) / STAGE_S
        for half in range(1, 2 * STAGE_S + 1):
            writer.sample("nvml", t + half / 2, [value for _ in keys for value in (used + watts * half / 2, watts)])
        t, used = t + STAGE_S, used + watts * STAGE_S
        writer.event("stage_ended", t=t, stage=stage["name"], status="completed", exit_code=0, signal=None)
    writer.event("run_ended", t=t, status=more.get("status", "completed"), exit_code=0, reason=None)
    writer.close()
    return path


TRAINING = {
    "objective": "kd",
    "alpha": 0.3,
    "temperature": 1.0,
    "student": "m",
    "early_stop": {"epsilon": 0.1, "patience": 2},
}


def kd_stages(**teacher: Any) -> list[dict[str, Any]]:
    """The stages of a KD run; `teacher` replaces how the cache stage went."""
    cache = {"name": "cache", "kind": "teacher", "uses": "teacher.cache_logits", "with": {"top_k": 20}}
    scores = {"t": {"student": 0.82, "teacher": 1.0}}
    return [
        {"name": "preprocess", "kind": "preprocess", "uses": "preprocess", "joules": 360.0},
        cache | (teacher or {"joules": 3600.0}),
        {
            "name": "student",
            "kind": "student",
            "uses": "student.train",
            "joules": 7200.0,
            "with": dict(TRAINING),
            "events": [
                {"type": "model", "role": "student", "params": 30_112},
                {"type": "progress", "tokens": 36_000, "step": 10, "total_steps": 10},
            ],
        },
        {
            "name": "evaluate",
            "kind": "evaluate",
            "uses": "evaluate",
            "joules": 720.0,
            "events": [{"type": "quality", "q": 0.82, "benchmarks": scores}],
        },
    ]


def test_a_run_becomes_an_observation() -> None:
    write_run("kd-1", "kd", kd_stages())
    row = load(["runs"]).table.row(0, named=True)
    assert row["total_kwh"] == pytest.approx(11_880 / 3.6e6, rel=3e-3)
    assert row["teacher_kwh"] == pytest.approx(1e-3, rel=0.01) and row["student_kwh"] == pytest.approx(2e-3, rel=0.01)
    assert (row["quality"], row["alpha"], row["tokens"]) == (0.82, 0.3, 36_000)
    assert row["student_params_b"] == pytest.approx(30_112e-9)
    assert (row["id"], row["scope"], row["hardware"]) == ("KD-30.1k", "gpu+cpu", "1x Board")
    assert json.loads(row["hyperparameters"])["early_stop"] is True


def test_a_reused_teacher_counts_in_full_and_is_shared_by_n() -> None:
    write_run("kd-2", "kd", kd_stages(reused_j=3600.0))
    observations = load(["kd-2"])
    assert observations.table["total_kwh"][0] == pytest.approx(11_880 / 3.6e6, rel=3e-3)
    result = plan(PlanRequest(budget_kwh=1, reuse_n=4), observations)
    assert result.recommendation is not None
    assert result.recommendation.predicted.per_student_kwh == pytest.approx((11_880 - 2700) / 3.6e6, rel=3e-3)


def test_repeats_of_one_recipe_are_one_candidate() -> None:
    for number, joules in enumerate((7000.0, 7400.0)):
        stages = kd_stages()
        stages[2]["joules"] = joules
        write_run(f"kd-{number}", "kd", stages)
    result = plan(PlanRequest(budget_kwh=1), load(["runs"]))
    assert [c["id"] for c in result.candidates] == ["KD-30.1k"]
    assert result.recommendation is not None and result.recommendation.predicted.spread == "repeats"


def test_other_settings_are_another_candidate_with_its_own_name() -> None:
    write_run("kd-a", "kd", kd_stages())
    stages = kd_stages()
    stages[2]["with"]["alpha"] = 0.8
    write_run("kd-b", "kd", stages)
    names = {c["id"] for c in plan(PlanRequest(budget_kwh=1), load(["runs"])).candidates}
    assert len(names) == 2 and names > {"KD-30.1k"} and any(name.startswith("KD-30.1k-a") for name in names)


def test_unfinished_and_other_runs_are_named_not_used() -> None:
    write_run("good", "kd", kd_stages())
    write_run("stopped", "kd", kd_stages(), status="stopped")
    write_run("custom", "custom", kd_stages())
    observations = load(["runs"])
    assert observations.table.height == 1
    assert {note.text for note in observations.notes} == {"stopped: status is stopped", "custom: regime is custom"}
    with pytest.raises(UsageProblem, match="status is stopped"):
        load(["stopped"])


def test_a_directory_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem) as problem:
        load([tmp_path])
    assert "\n" not in str(problem.value)


def test_own_recipe_is_emitted_and_accepted(tmp_path: Path) -> None:
    from kdwatch.pipeline.recipe import load_recipe
    from planners.emit import write_recipe

    stages = kd_stages()
    stages[0]["with"] = {"data": "rows.jsonl", "tokenizer": "m"}
    stages[1]["with"] |= {"teacher": "t"}
    path = write_run("kd-1", "kd", stages)
    manifest = json.loads((path / "manifest.json").read_text())
    recipe_stages = manifest["recipe"]["stages"]
    recipe_stages[1]["inputs"] = {"data": "preprocess"}
    recipe_stages[2]["inputs"] = {"data": "preprocess", "logits": "cache"}
    recipe_stages[3] |= {"inputs": {"student": "student"}, "with": {"exact_match": "test.jsonl"}}
    (path / "manifest.json").write_text(json.dumps(manifest))
    result = plan(PlanRequest(budget_kwh=1), load(["runs"]))
    write_recipe(result, tmp_path / "again.yaml")
    recipe = load_recipe(tmp_path / "again.yaml")
    assert recipe.regime == "kd" and recipe.stages[2].settings["alpha"] == 0.3
    assert recipe.budget == pytest.approx(3.6e6)


def test_an_emitted_recipe_runs_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths of a run's recipe start where they did, wherever the new recipe lies and is started."""
    from click.testing import CliRunner

    from kdwatch.cli.root import cli

    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
    (project / "work.sh").write_text(
        """sleep 0.3; echo '{"type": "quality", "q": 0.9, "benchmarks": {}}' >> $KDWATCH_EVENTS\n"""
    )
    (project / "r.yaml").write_text(
        "name: own\nregime: sft\nstages:\n"
        "- {name: student, kind: student, run: sh work.sh}\n- {name: evaluate, kind: evaluate, run: sh work.sh}\n"
    )
    monkeypatch.chdir(project)
    done = CliRunner().invoke(cli, ["run", "r.yaml", "--plain"])
    assert done.exit_code == 0, done.output
    monkeypatch.chdir(elsewhere)
    made = CliRunner().invoke(cli, ["plan", "--budget", "1kWh", "--frontier", "last", "--emit", "again.yaml"])
    assert made.exit_code == 0 and "not found" not in made.stderr, made.output
    monkeypatch.chdir("/")
    again = CliRunner().invoke(cli, ["run", str(elsewhere / "again.yaml"), "--plain"])
    assert again.exit_code == 0, again.output


def test_models_named_by_a_path_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    result = plan(PlanRequest(budget_kwh=20), load(["paper"]))
    text = recipe_text(result, Models(data="rows.jsonl", student="owner/model"))
    assert str(tmp_path / "rows.jsonl") in text and "student: owner/model" in text


@pytest.mark.parametrize(
    ("sources", "scope"),
    [
        ({"gpu": "counter"}, "gpu"),
        ({"gpu": "counter", "cpu": "counter"}, "gpu+cpu"),
        ({"gpu": "counter", "cpu": "estimated"}, "gpu+cpu_estimated"),
        ({"cpu": "estimated"}, "cpu_estimated"),
        ({"cpu": "counter"}, "cpu"),
        ({"other": "counter"}, "other"),
    ],
)
def test_scope_says_what_the_energy_covers(sources: dict[str, str], scope: str) -> None:
    devices = [{"kind": kind, "source": source} for kind, source in sources.items()]
    assert scope_of({"stages": [{"devices": devices}]}) == scope


def test_a_device_that_stands_beside_the_total_is_no_scope() -> None:
    """A module's counter holds its CPU, which is shown beside it."""
    beside = {"kind": "cpu", "source": "estimated", "counted": False}
    module = {"kind": "other", "source": "counter", "counted": True}
    assert scope_of({"stages": [{"devices": [module, beside]}]}) == "other"


def test_sizes_of_models(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "F16", "shape": [10, 20], "data_offsets": [0, 400]},
                         "b": {"dtype": "F16", "shape": [7], "data_offsets": [400, 414]}}).encode()  # fmt: skip
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(414))
    assert stored_params_b(tmp_path) == pytest.approx(207e-9)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    assert stored_params_b(tmp_path) is None
    assert stored_params_b(tmp_path / "nowhere") is None
    assert [named_params_b(n) for n in ("allenai/OLMo-2-1124-7B", "SmolLM2-135M-Instruct", "student")] == [
        7.0,
        0.135,
        None,
    ]
    assert (
        reported_params_b(
            [{"type": "model", "role": "student", "params": 5e9}, {"type": "model", "role": "teacher", "params": 1}],
            "student",
        )
        == 5.0
    )
    assert reported_params_b([{"type": "model", "role": "student", "params": "many"}], "student") is None


def test_what_is_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write_run("kd-1", "kd", kd_stages())
    assert load(["runs", "kd-1", path, "last"]).table.height == 1
    table = tmp_path / "mine.csv"
    table.write_text("regime,total_kwh,quality\nsft,1,0.5\nsft,1,0.5\n")
    twice = load([table, str(table), "paper", "paper"]).table
    assert twice.height == 2 + 7, "two equal rows of one file are two runs"


def test_runs_on_other_data_are_no_repeats_and_are_named_apart() -> None:
    for name, data in (("a", "aaaa0000"), ("b", "aaaa0000"), ("c", "cccc0000")):
        path = write_run(name, "kd", kd_stages())
        with (path / "events.jsonl").open("a") as events:
            made = {"t": 1.0, "type": "artifact", "stage": "preprocess", "artifact": data * 8, "kind": "dataset"}
            events.write(json.dumps(made | {"energy_j": 1.0}) + "\n")
    observations = load(["runs"])
    assert observations.table["data"].to_list() == ["cccc0000", "aaaa0000", "aaaa0000"]
    names = {c["id"] for c in plan(PlanRequest(budget_kwh=1), observations).candidates}
    assert names == {"KD-30.1k", "KD-30.1k-data-aaaa0000"}


def test_the_baseline_is_plain_sft_on_as_many_tokens_and_the_same_data() -> None:
    shape = {"student_params_b": 1.0, "preprocess_kwh": 0.1, "eval_kwh": 0.1, "quality": 0.5, "basis": "measured"}

    def row(name: str, regime: str, tokens: float, data: str, student: float, teacher: float = 0.0) -> dict[str, Any]:
        return shape | {"id": name, "regime": regime, "tokens": tokens, "data": data, "student_kwh": student,
                        "teacher_kwh": teacher, "total_kwh": 0.2 + student + teacher, "source": "t.csv"}  # fmt: skip

    rows = [row("short", "sft", 1e6, "a", 2.0), row("other", "sft", 4e6, "b", 9.0), row("same", "sft", 4e6, "a", 8.0),
            row("kd", "kd", 4.1e6, "a", 6.0, teacher=10.0)]  # fmt: skip
    (entry,) = plan(PlanRequest(budget_kwh=50), Observations(make_table(rows))).break_even
    assert entry.baseline == "same" and entry.n_star == pytest.approx(5.0)


def test_a_probing_run_is_left_out_without_a_word(tmp_path: Path) -> None:
    write_run("kd-1", "kd", kd_stages())
    probe = write_run("probe-1", "custom", [{"name": "probe", "kind": "other", "uses": "probe", "joules": 5.0}])
    assert load(["runs"]).notes == ()
    with pytest.raises(UsageProblem, match="--probes"):
        load([probe])


def test_two_settings_of_one_size_say_nothing_of_sizes() -> None:
    shape = {"student_params_b": 1.0, "preprocess_kwh": 0.1, "eval_kwh": 0.1, "basis": "measured", "source": "t.csv"}
    rows = [shape | {"id": name, "regime": regime, "teacher_kwh": teacher, "student_kwh": student, "quality": quality,
                     "total_kwh": 0.2 + teacher + student, "prompts": prompts}
            for name, regime, teacher, student, quality, prompts in (
                ("SFT", "sft", 0.0, 8.0, 0.5, None), ("Syn", "synthetic_sft", 2.0, 7.0, 0.6, 10.0),
                ("Syn", "synthetic_sft", 4.0, 7.5, 0.7, 20.0))]  # fmt: skip
    best = plan(PlanRequest(budget_kwh=50, reuse_n=4), Observations(make_table(rows))).recommendation
    assert best is not None and best.id == "Syn-p20"
    assert "small_students_amortise_slowest" not in {reason.rule for reason in best.reasons}


def test_a_reuse_that_never_pays_is_said_in_words() -> None:
    shape = {"student_params_b": 1.0, "preprocess_kwh": 0.1, "eval_kwh": 0.1, "basis": "measured", "source": "t.csv"}
    rows = [shape | {"id": name, "regime": regime, "teacher_kwh": teacher, "student_kwh": 5.0, "quality": quality,
                     "total_kwh": 5.2 + teacher}
            for name, regime, teacher, quality in (("SFT", "sft", 0.0, 0.5), ("KD", "kd", 3.0, 0.6))]  # fmt: skip
    best = plan(PlanRequest(budget_kwh=50), Observations(make_table(rows))).recommendation
    assert best is not None
    texts = [reason.text for reason in best.reasons if reason.rule == "reuse_break_even"]
    assert texts == ["however often the teacher's output is reused, it never pays back against SFT"]


@pytest.mark.parametrize(("scope", "told"), [("cpu_estimated", "run, energy estimated"), ("gpu", "measured")])
def test_a_run_whose_energy_a_model_told_is_not_called_measured(tmp_path: Path, scope: str, told: str) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(
        "id,regime,preprocess_kwh,teacher_kwh,student_kwh,eval_kwh,quality,student_params_b,scope\n"
        f"A,sft,0,0,2,0,0.7,1,{scope}\nB,kd,0,2,1,0,0.8,1,{scope}\n"
    )
    result = plan(PlanRequest(budget_kwh=20), load([str(table)]))
    text = "\n".join(plan_lines(result))
    assert f"RECOMMENDED  B   ({told}, mine.csv)" in text
    assert f"strictly better from 3, {told}" in " ".join(text.split())
