"""`kdwatch plan` from outside: the documented answers, one line and exit 2 for bad input, 80 columns, the recipe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import planners
from kdwatch.cli.plan_text import plan_lines
from kdwatch.cli.root import cli
from kdwatch.tui.planning import problem_of, scaled_budget
from kdwatch.tui.raster import ASCII
from kdwatch.tui.view.line import text_of
from kdwatch.tui.view.plan import card_lines, chart_lines
from planners.wording import energy

ROOT = Path(__file__).parents[2]


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *args])


def test_twenty_kwh_as_json() -> None:
    done = run("--budget", "20kWh", "--frontier", "paper", "--json")
    assert done.exit_code == 0
    made = json.loads(done.stdout)
    assert made["recommendation"]["id"] == "SFT-7B"
    assert made["recommendation"]["predicted"]["total_kwh"] == 19.5
    assert made["slack_kwh"] == pytest.approx(0.5)


def test_infeasible_is_an_answer() -> None:
    done = run("--budget", "18MJ", "--frontier", "paper", "--json")
    assert done.exit_code == 0
    made = json.loads(done.stdout)
    assert (made["feasible"], made["cheapest"]["per_student_kwh"], made["shortfall_kwh"]) == (
        False,
        7.0,
        pytest.approx(2.0),
    )
    assert "NOTHING FITS" in run("--budget", "5kWh", "--frontier", "paper").stdout


def test_sources_may_follow_one_another() -> None:
    study = str(ROOT / "tests" / "data" / "paper" / "paper_frontier.csv")
    done = run("--budget", "20kWh", "--json", "--frontier", study, "paper")
    assert json.loads(done.stdout)["sources"] == [study, "paper"]


def test_without_runs_the_default_is_the_study() -> None:
    assert json.loads(run("--budget", "20kWh", "--json").stdout)["recommendation"]["id"] == "SFT-7B"


@pytest.mark.parametrize(
    "args",
    [
        ["--budget", "20kWh"],
        ["--budget", "5kWh"],
        ["--budget", "35kWh", "--predict", "--reuse", "20", "--region", "FRA", "--pue", "1.2", "--confidence", "0.9"],
        ["--cost", "104", "--energy-price", "0.3", "--gpu-hour-price", "2", "--mean-gpu-w", "400"],
        ["--min-quality", "0.8", "--serve-tokens", "1e9", "--hypervolume-reference", "45,0.6"],
        ["--budget", "3kWh", "--co2", "100g", "--intensity", "300"],
    ],
)
def test_text_fits_80_columns_and_has_no_escape_codes(args: list[str]) -> None:
    done = run(*args, "--frontier", "paper")
    assert done.exit_code == 0, done.output
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "\x1b" not in done.stdout and "nan" not in done.stdout.lower().split()


def test_long_names_fit_80_columns() -> None:
    samples = sorted(str(path) for path in (ROOT / "sample_runs" / "grid").glob("demo-*"))
    for args in (
        ["--budget", "1.5kJ"],
        ["--min-quality", "0.8", "--predict"],
        ["--reuse", "1e9", "--budget", "1e12kWh"],
    ):
        done = run("--frontier", *samples, *args)
        assert done.exit_code == 0, done.output
        assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_the_chart_shows_frontier_budget_and_choice() -> None:
    text = run("--budget", "20kWh", "--frontier", "paper").stdout
    assert all(mark in text for mark in ("●", "○", "★", "budget 20.0)", "kWh per student"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--budget", "20"], "no unit"),
        (["--budget", "20kW"], "is a power"),
        (["--budget", "nan"], "--budget"),
        (["--budget", "-5kWh"], "negative"),
        (["--min-quality", "high"], "--min-quality"),
        (["--min-quality", "nan"], "min-quality"),
        (["--reuse", "0"], "reuse"),
        (["--co2", "5kg"], "region or intensity"),
        (["--co2", "5kg", "--region", "FRAA"], "FRA (France)"),
        (["--co2", "5kWh", "--region", "FRA"], "no mass"),
        (["--objective", "cheap"], "max_quality"),
        (["--scope", "gpu"], "no observation has scope"),
        (["--sizes", "1,two", "--predict"], "--sizes"),
        (["--hypervolume-reference", "45"], "no pair"),
        (["--budget", "1kWh", "--program-budget", "9kWh", "--students", "3"], "give one"),
        (["--frontier", "no-such-run"], "no-such-run"),
        (["--frontier", "pyproject.toml"], "pyproject.toml"),
        (["--reuse", "1e308"], "reuse: 1e+308 cannot be used"),
        (["--budget", "5kWh", "--emit", "x.yaml"], "nothing fits"),
        (["--budget", "20kWh", "--data", "rows.jsonl"], "--emit"),
        (["--budget", "20kWh", "--emit", "/no/such/dir/x.yaml"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = run(*args, "--frontier", "paper")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1 and words in done.stderr
    assert done.stderr.startswith("kdwatch: ")


@pytest.mark.parametrize(
    ("args", "kinds"),
    [
        (["--budget", "20kWh"], ["prerun", "preprocess", "student.train", "teacher.evaluate", "evaluate"]),
        (["--budget", "8kWh", "--reuse", "20"],
         ["prerun", "preprocess", "teacher.cache_logits", "student.train", "teacher.evaluate", "evaluate"]),
        (["--budget", "45kWh"], ["prerun", "preprocess", "student.train", "teacher.evaluate", "evaluate"]),
    ],
)  # fmt: skip
def test_the_emitted_recipe_is_one_that_run_accepts(tmp_path: Path, args: list[str], kinds: list[str]) -> None:
    from kdwatch.pipeline.recipe import load_recipe

    path = tmp_path / "recipe.yaml"
    done = run(*args, "--frontier", "paper", "--emit", str(path))
    assert done.exit_code == 0 and str(path) in done.stderr
    recipe = load_recipe(path)
    assert [stage.uses for stage in recipe.stages] == kinds
    assert recipe.budget is not None and recipe.name.startswith("plan-")


def test_a_synthetic_recipe_generates_then_trains(tmp_path: Path) -> None:
    from kdwatch.pipeline.recipe import load_recipe

    table = tmp_path / "mine.csv"
    table.write_text(
        "regime,student_params_b,total_kwh,quality,max_new_tokens,teacher_batch\nsynthetic_sft,1,2,0.9,256,16\n"
    )
    path = tmp_path / "recipe.yaml"
    done = run("--budget", "3kWh", "--frontier", str(table), "--emit", str(path))
    assert done.exit_code == 2 and "--student-model" in done.stderr and "--data" in done.stderr
    named = ["--student-model", "models/small", "--teacher-model", "models/large", "--data", "rows.jsonl"]
    assert run("--budget", "3kWh", "--frontier", str(table), "--emit", str(path), *named).exit_code == 0
    stages = {stage.name: stage for stage in load_recipe(path).stages}
    assert stages["teacher"].settings["max_new_tokens"] == 256 and stages["teacher"].settings["batch_rows"] == 16
    assert stages["student"].inputs["data"] == "teacher"


def test_the_recipe_of_an_own_run_has_the_what_ifs_that_it_was_planned_with(tmp_path: Path) -> None:
    """The sample generated 8 tokens at batch 256; its other settings stay, and without a what-if all do."""
    from kdwatch.pipeline.recipe import load_recipe

    sample, path = str(ROOT / "sample_runs" / "demo-synthetic"), tmp_path / "recipe.yaml"

    def generation(*args: str) -> dict[str, object]:
        assert run("--frontier", sample, "--emit", str(path), *args).exit_code == 0
        return next(dict(s.settings) for s in load_recipe(path).stages if s.uses == "teacher.generate")

    plain = generation()
    assert (plain["max_new_tokens"], plain["batch_rows"]) == (8, 256)
    changed = generation("--max-new-tokens", "20", "--teacher-batch", "64", "--prompt-share", "0.5")
    assert changed == plain | {"max_new_tokens": 20, "batch_rows": 64}
    assert "# Planned for 50% of the prompts" in path.read_text(encoding="utf-8")


def test_the_case_runner_agrees_on_every_case_and_tells_a_wrong_one(tmp_path: Path) -> None:
    script, cases = ROOT / "tests" / "planner_cases.py", ROOT / "tests" / "data" / "planner_cases.json"
    done = subprocess.run([sys.executable, script, cases], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    asked = json.loads(cases.read_text(encoding="utf-8"))
    assert {case["id"]: set(case["expected"]) for case in asked} == {key: set(value) for key, value in answers.items()}
    asked[1]["expected"]["energy_kwh"] = 7.1
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(asked), encoding="utf-8")
    done = subprocess.run([sys.executable, script, wrong], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "A1: energy_kwh" in done.stderr
    assert subprocess.run([sys.executable, script, tmp_path / "none"], capture_output=True, check=False).returncode == 2


def test_a_table_of_one_total_leaves_nothing_empty_on_the_card(tmp_path: Path) -> None:
    table = tmp_path / "one.csv"
    table.write_text("id,regime,total_kwh,quality\nA,sft,7,0.5\n", encoding="utf-8")
    shown = run("--frontier", str(table), "--budget", "20kWh").stdout
    assert "  stages     teacher 0 kWh; preprocess, student, evaluate n/a\n" in shown and "NOT CHOSEN" not in shown
    table.write_text("id,regime,total_kwh,quality\nA,sft,-3,0.5\n", encoding="utf-8")
    assert "energy is -3 kWh" in run("--frontier", str(table), "--budget", "20kWh").stderr


def test_lines_about_bad_input_read_as_sentences() -> None:
    said = run("--co2", "5kg", "--region", "XX").stderr
    assert "unknown region 'XX': no name is near. Use a three-letter" in said
    said = run("--program-budget", "5kWh", "--students", "3", "--reuse", "4").stderr
    assert "students 3 and reuse 4 contradict" in said


def test_the_hypervolume_reference_is_kept_and_without_one_there_is_no_value() -> None:
    def volume(*args: str) -> tuple[float | None, list[float] | None]:
        made = json.loads(run("--frontier", "paper", "--json", *args).stdout)
        return made["hypervolume"], made["hypervolume_reference"]

    assert volume() == (None, None)
    assert volume("--hypervolume-reference", "45,0.6") == (pytest.approx(9.737), [45.0, 0.6])
    assert volume() == (pytest.approx(9.737), [45.0, 0.6])


def test_names_of_files_that_are_not_beside_the_recipe_are_told(tmp_path: Path) -> None:
    from planners.emit import missing_paths

    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "stages:\n- {name: a, uses: preprocess, with: {data: rows.jsonl, tokenizer: owner/model}}\n"
        "- {name: b, uses: student.train, with: {student: m}}\n"
    )
    (tmp_path / "m").mkdir()
    assert missing_paths(recipe) == (tmp_path, ["rows.jsonl"])
    recipe.write_text(f"workdir: {tmp_path / 'm'}\n{recipe.read_text()}")
    assert missing_paths(recipe) == (tmp_path / "m", ["rows.jsonl", "m"])


@pytest.mark.parametrize(
    ("kwh", "text"),
    [(19.5, "19.50 kWh"), (0.5, "0.500 kWh"), (0.0, "0 kWh"), (3.4e-4, "1.22 kJ"), (2.7e-7, "0.972 J")],
)
def test_an_energy_is_told_in_the_unit_that_fits_it(kwh: float, text: str) -> None:
    assert energy(kwh) == text


def test_runs_of_joules_are_told_and_drawn_in_joules() -> None:
    """A demo's run of a kilojoule is no `0.00 kWh`, in the text and on the screen."""
    samples = sorted(str(path) for path in (Path(__file__).parents[2] / "sample_runs" / "grid").glob("demo-*"))
    result = planners.plan(planners.PlanRequest(budget_kwh=4e-4), planners.load(samples))
    text = "\n".join(plan_lines(result))
    screen = "\n".join(text_of(line) for line in chart_lines(result.to_json(), 100, 20, ASCII, None))
    for shown in (text, screen):
        assert "kJ per student" in shown and "budget 1.44" in shown and "0.00 kWh" not in shown


def test_the_screen_tells_the_range_of_what_it_tells_and_where_the_settings_come_from() -> None:
    """KD-1B at N = 20 needs 6.45 kWh per student; 3 % of it, times 1.645, is 0.318."""
    plan = planners.plan(planners.PlanRequest(budget_kwh=8.0, reuse_n=20), planners.load(["paper"])).to_json()
    screen = " ".join(" ".join(text_of(line) for line in card_lines(plan, 100)).split())
    assert "6.45 kWh per student at N = 20 90% range 6.13 kWh to 6.77 kWh" in screen
    assert "temperature 1, top_k 100, early_stop True (from rules)" in screen


@pytest.mark.parametrize("text", ["nan", "inf", "1.5", "many"])
def test_the_form_refuses_a_number_of_students_that_is_none(text: str) -> None:
    assert "--reuse" in (problem_of({"reuse": text}) or "")


def test_the_keys_move_a_budget_of_joules_too() -> None:
    """1.8 kJ are 0.0005 kWh; a tenth more is 0.00055. Nothing is moved to a kWh that nobody asked for."""
    assert scaled_budget("1.8kJ", 1.1) == "0.00055kWh"
    assert scaled_budget("20kWh", 1.1) == "22kWh"
    assert scaled_budget("0kWh", 1.1) is None


def test_a_budget_far_above_all_runs_is_told_and_leaves_the_points_apart() -> None:
    """20 kWh beside runs of a kilojoule: its line would put every point into the first column."""
    samples = sorted(str(path) for path in (Path(__file__).parents[2] / "sample_runs" / "grid").glob("demo-*"))
    result = planners.plan(planners.PlanRequest(budget_kwh=20.0), planners.load(samples))
    text = "\n".join(plan_lines(result))
    screen = "\n".join(text_of(line) for line in chart_lines(result.to_json(), 100, 20, ASCII, None))
    dearest = max(c["per_student_kwh"] for c in result.candidates if c["quality"] is not None) * 3600  # kJ
    for shown in (text, screen):
        assert "budget 20.00 kWh: far to the right" in shown
        labels = next(line for line in reversed(shown.splitlines()) if re.fullmatch(r"\s*[\d.]+(\s+[\d.]+)+", line))
        assert float(labels.split()[-1]) <= 1.01 * dearest


def test_the_screen_says_it_too_where_only_several_limits_together_can_be_relaxed() -> None:
    """SFT-1B needs 7.00 kWh, which is 17.5 hours at 400 W: neither limit alone can be moved far enough."""
    request = planners.PlanRequest(budget_kwh=5.0, gpu_hours=1.0, mean_gpu_w=400.0)
    plan = planners.plan(request, planners.load(["paper"])).to_json()
    screen = " ".join(" ".join(text_of(line) for line in card_lines(plan, 80)).split())
    assert "relax all" in screen and screen.count("then SFT-1B") == 1
    assert "5.00 kWh to 7.00 kWh" in screen and "1 GPU-hours to 17.5 GPU-hours" in screen
