"""`kdwatch report`, `ls`, `rm`, `prune` as a person calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from run_files import CLOCK, STAGES, whole_story, write_run

from kdwatch.cli.root import cli
from kdwatch.rundir.paths import runs_dir
from kdwatch.rundir.process import identity


def kdwatch(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


@pytest.fixture
def run() -> Path:
    return write_run(runs_dir() / "20260101-kd", whole_story(), stages=STAGES, region="FRA", pue=1.2, budget_j=1e5)


def test_report_text_fits_80_columns_and_says_everything(run: Path) -> None:
    done = kdwatch("report", "last")
    assert done.exit_code == 0 and done.stderr == ""
    text = done.stdout.replace("\u00a0", " ")
    assert max(len(line) for line in text.splitlines()) <= 80
    for word in (
        "20260101-kd", "completed", "teacher", "student", "reused: artifact cdcdcdcdcdc", "55.0 J when made",
        "unattributed", "E_teacher/N = ~425 J", "counter", "estimated", "~3.40 kJ", "France", "56.039 g/kWh", "2023",
        "PUE 1.2", "0.900", "import 2.00 s", "±", "budget", "not known: dram",
    ):  # fmt: skip
        assert word in text, word
    assert "pending" in text and "n/a" in text


def test_what_was_estimated_when_it_was_made_is_marked() -> None:
    """`~` before the energy of a reused output and the teacher's share; 1700 J over 4 uses are 425 J. Where that was
    not recorded they are marked as the run is, which has estimated RAM."""
    for told, mark in ((True, "~"), (False, ""), (None, "~")):
        story = whole_story()
        for kind, _, fields in story:
            if kind == "stage_reused":
                fields["reused_from"]["estimated"] = told
            elif kind == "teacher_reuse":
                fields["estimated"] = told
        path = write_run(runs_dir() / f"r-{told}", story, stages=STAGES)
        text = kdwatch("report", str(path)).stdout.replace("\u00a0", " ")
        assert f", {mark}55.0 J when made" in text
        assert f"E_teacher/N = {mark}425 J: {mark}1.70 kJ over 4 uses" in text
        assert "unattributed  ~" in text and "total         ~" in text


def test_report_json_is_the_object_and_nothing_else(run: Path) -> None:
    done = kdwatch("report", "20260101", "--json", "--region", "POL", "--pue", "1")
    report = json.loads(done.stdout)
    assert report["schema"] == 1 and report["grid_g_per_kwh"] == 661.926 and done.stderr == ""


def test_report_by_the_papers_protocol(run: Path) -> None:
    text = kdwatch("report", "last", "--protocol", "paper").stdout
    assert "paper" in text and "n/a" in text
    assert json.loads(kdwatch("report", "last", "--protocol", "paper", "--json").stdout)["protocol"] == "paper"


@pytest.mark.parametrize(
    "args",
    [("report", "nothing"), ("report", "last", "--region", "XXX"), ("report", "last", "--pue", "0.2"), ("report", "/"),
     ("rm", "nothing"), ("prune", "--older-than", "soon"), ("report", "last", "--intensity", "-3")],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(run: Path, args: tuple[str, ...]) -> None:
    done = kdwatch(*args)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_names_from_a_run_reach_the_terminal_harmless() -> None:
    evil = "\x1b]0;owned\x07\x1b[31mred\u202e"
    stages = [{"name": evil, "kind": evil}]
    events = [
        ("stage_started", 1.0, {"stage": evil}), ("phase", 1.0, {"stage": evil, "name": evil}),
        ("stage_ended", 3.0, {"stage": evil, "status": evil, "exit_code": 3}),
        ("warning", 1.0, {"code": evil, "text": evil}),
        ("quality", 2.0, {"stage": evil, "q": 1.0, "benchmarks": {evil: {"student": 1.0}}}),
        ("run_ended", 5.0, {"status": evil}),
    ]  # fmt: skip
    write_run(runs_dir() / "r", events, stages=stages, name=evil, regime=evil)
    for args in (("report", "last"), ("ls",), ("report", "last", "--protocol", "paper")):
        done = kdwatch(*args)
        assert done.exit_code == 0
        assert not any(c in done.stdout for c in "\x1b\x07\u202e") and done.stdout.isascii() is not None
        assert all(line.replace("\u00a0", " ").isprintable() for line in done.stdout.split("\n"))


def test_ls_shows_the_newest_first(run: Path) -> None:
    later = {**CLOCK, "wall_origin": CLOCK["wall_origin"] + 1000}
    newer = write_run(runs_dir() / "20260102-sft", [], stages=STAGES, clock=later)
    (runs_dir() / "broken").mkdir()
    (runs_dir() / "broken/manifest.json").write_text("{")
    lines = kdwatch("ls").stdout.splitlines()
    assert lines[0].startswith("RUN") and lines[1].startswith(newer.name) and lines[2].startswith(run.name)
    assert "interrupted" in lines[1] and "completed" in lines[2] and "damaged" in lines[3]
    rows = json.loads(kdwatch("ls", "--json").stdout)
    assert [r["run_id"] for r in rows] == ["20260102-sft", "20260101-kd", "broken"]
    assert rows[1]["total_j"] > 0 and rows[1]["estimated"] is True and rows[1]["q"] == 0.9
    assert len(json.loads(kdwatch("ls", "--json", "-n", "1").stdout)) == 1


def test_ls_cuts_ids_to_the_terminal_and_no_others() -> None:
    from kdwatch.ledger.listing import list_rows, row_lines

    path = write_run(runs_dir() / ("20260101-" + "long" * 12), whole_story(), stages=STAGES)
    rows = list_rows([path])
    assert path.name in row_lines(rows)[1]
    cut = row_lines(rows, 80)
    assert all(len(line.replace("\u00a0", " ")) <= 80 for line in cut) and "20260101-long" in cut[1]


def test_ls_without_runs_says_how_to_begin() -> None:
    done = kdwatch("ls")
    assert done.exit_code == 0 and done.stdout == "" and "kdwatch demo" in done.stderr
    assert json.loads(kdwatch("ls", "--json").stdout) == []


def test_rm_asks_and_deletes(run: Path) -> None:
    asked = CliRunner().invoke(cli, ["rm", "20260101"], input="n\n")
    assert asked.exit_code == 1 and run.exists()
    assert kdwatch("rm", "20260101", "--yes").exit_code == 0 and not run.exists()


def test_rm_refuses_a_run_that_records(run: Path) -> None:
    busy = write_run(runs_dir() / "busy", [], recorder=identity())
    done = kdwatch("rm", "--yes", "20260101", "busy")
    assert done.exit_code == 2 and "still recording" in done.stderr
    assert busy.exists() and run.exists()


def test_prune_lists_then_deletes_what_is_old(run: Path) -> None:
    dry = kdwatch("prune", "--older-than", "0s", "--dry-run")
    assert dry.stdout == "20260101-kd\n" and "would be deleted" in dry.stderr and run.exists()
    assert kdwatch("prune", "--older-than", "99999d", "--yes").stdout == "" and run.exists()
    assert kdwatch("prune", "--older-than", "0s", "--yes").stdout == "20260101-kd\n" and not run.exists()


def test_a_reader_that_goes_away_is_no_error(run: Path) -> None:
    """`kdwatch report | head -1`."""
    command = f"{sys.executable} -m kdwatch report last | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
