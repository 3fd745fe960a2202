"""The demo: tasks with right answers and a clean split, honest noise, and (slow) the whole of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kdwatch.demo
from kdwatch.demo.files import NOISE, SHORT, Length, write_demo
from kdwatch.demo.summary import ABOUT, summary
from kdwatch.demo.tasks import MAKERS, STUDENT_TASKS, Example, examples, held_out, noisy
from kdwatch.ledger.report import build_report
from kdwatch.pipeline.recipe import load_recipe

SAMPLES = Path(__file__).parents[2] / "sample_runs"


def answer(prompt: str) -> str:
    """The right answer, from the prompt's text alone."""
    kind, rest = prompt[:-1].split(" ", 1)
    if kind == "cnt":
        letter, word = rest.split(" ")
        return str(word.count(letter))
    if kind == "max":
        return max(rest.split(" "))
    if kind == "nxt":
        return "".join("a" if c == "z" else chr(ord(c) + 1) for c in rest)
    if kind == "add":
        return str(sum(map(int, rest.split("+"))))
    return rest[::-1] if kind == "rev" else "".join(sorted(rest))


@given(seed=st.integers(0, 10_000), test=st.booleans())
def test_every_example_is_right_and_on_its_side_of_the_split(seed: int, test: bool) -> None:
    for row in islice(examples(seed, tuple(MAKERS), test=test), 30):
        assert row.response == answer(row.prompt)
        assert held_out(row.prompt) is test


def test_a_quarter_of_the_labels_is_wrong_in_one_character() -> None:
    rows = noisy(3, 4000, 0.25)
    wrong = [r for r in rows if r.response != answer(r.prompt)]
    assert len(wrong) / len(rows) == pytest.approx(0.25, abs=0.03)
    for row in wrong:
        right = answer(row.prompt)
        assert len(right) == len(row.response)
        assert sum(a != b for a, b in zip(right, row.response, strict=True)) == 1


def test_demo_says_that_labels_are_noisy() -> None:
    assert "quarter of the training labels" in ABOUT and NOISE == 0.25


def test_demo_folder_is_whole_and_holds_no_absolute_path(tmp_path: Path) -> None:
    write_demo(tmp_path, "s")
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    tests = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    assert len(rows) == SHORT.rows and not {r["prompt"] for r in rows} & {r["prompt"] for r in tests}
    assert all(Example(**r).response == answer(r["prompt"]) for r in tests)
    assert not any(re.search(r": /", p.read_text()) for p in tmp_path.glob("*.yaml"))


def test_length_and_student_reach_every_recipe(tmp_path: Path) -> None:
    for path in write_demo(tmp_path, "xs", Length(40, 5, 2)):
        (student,) = [stage for stage in load_recipe(path).stages if stage.uses == "student.train"]
        assert (student.settings["epochs"], student.settings["student"]) == (2, "base_xs"), path
    lines = {name: (tmp_path / name).read_text().count("\n") for name in ("train.jsonl", "test.jsonl")}
    assert lines == {"train.jsonl": 40, "test.jsonl": 5 * len(STUDENT_TASKS)}


def test_shipped_teacher_scores_at_least_95_percent_on_every_task() -> None:
    """As measured when it was made."""
    made = json.loads((Path(kdwatch.demo.__file__).parent / "assets" / "made.json").read_text())["checkpoints"]
    assert min(made["polish"]["held_out"].values()) >= 0.95


def test_summary_shows_energies_q_and_what_was_reused() -> None:
    text = summary([build_report(SAMPLES / name) for name in ("demo-sft", "demo-kd", "demo-synthetic")])
    lines = text.splitlines()
    assert all("completed" in line for line in lines[1:4])
    assert all(line.count("~") >= 2 for line in lines[1:4]), "all energy of the samples is a model's"
    assert any(line.startswith("demo-kd: preprocess was reused from run") for line in lines)
    assert "estimated" in text
    assert max(map(len, lines[:4])) <= 100


@pytest.mark.slow  # two whole demos: real training, about four minutes on two quiet cores
def test_two_demos_end_well_and_the_second_reuses_the_teachers_outputs(own_home: Path) -> None:
    command = [sys.executable, "-m", "kdwatch", "demo", "--plain", "--student", "s"]
    for _ in range(2):
        done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=1500, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    reports = [build_report(p) for p in sorted((own_home / "runs").iterdir())]
    assert [r["status"] for r in reports] == ["completed"] * 6
    q = {r["regime"]: r["quality"]["q"] for r in reports[:3]}
    assert q["kd"] > q["sft"] and q["synthetic_sft"] > q["sft"]
    for report in reports[4:]:
        teacher = next(s for s in report["stages"] if s["kind"] == "teacher")
        assert teacher["status"] == "reused" and teacher["energy_j"]["total"] == 0
        assert teacher["reused_from"]["energy_j"] > 0
        assert report["teacher_reuse"]["reuse_count"] == 2


@pytest.mark.slow  # sixteen pipelines of real training, some ten minutes on two quiet cores
def test_the_grid_gives_a_frontier_in_under_twenty_minutes(tmp_path: Path, own_home: Path) -> None:
    """Of CPU time, which other work on the machine does not stretch; stages run one after the other."""
    write_demo(tmp_path, "s")
    done = subprocess.run(
        [sys.executable, "-m", "kdwatch", "sweep", str(tmp_path / "grid.yaml"), "--json"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    points = json.loads(done.stdout)["points"]
    assert len(points) >= 12 and all(p["status"] == "completed" and p["total_j"] > 0 for p in points)
    assert any(p["on_frontier"] for p in points) and all(0 < p["quality"] < 1.2 for p in points)
    stages = [s for run in (own_home / "runs").iterdir() for s in build_report(run)["stages"]]
    assert sum(s["cpu_s"] or 0.0 for s in stages) < 1200
