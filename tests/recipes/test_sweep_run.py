"""Sweeps that run: on a package of 100 W, with commands that train nothing but report what a stage reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sim_powercap import Driver, PowercapTree

from kdwatch.cli.plan import plan
from kdwatch.cli.sweep import sweep as command
from kdwatch.ledger.report import build_report
from kdwatch.rundir.paths import list_runs
from kdwatch.rundir.reader import RunReader

PATIENCE_S = 60.0

STAGE = """
import json, os, time
def say(**what):
    with open(os.environ["KDWATCH_EVENTS"], "a") as f:
        f.write(json.dumps(what) + "\\n")
share = float(os.environ["SHARE"])
if os.environ["KDWATCH_STAGE"] == "student":
    say(type="progress", tokens=1000)
    time.sleep(float(os.environ.get("HOLD", "0.2")) * share)
    raise SystemExit(int(os.environ.get("FAIL") == os.environ["SHARE"]))
say(type="quality", q=share / 4, benchmarks={"sums": {"student": share / 4, "teacher": 1.0}})
time.sleep(0.05)
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A sweep of three points, each with twice the quality of the one before."""
    tree = PowercapTree(tmp_path / "sim")
    zone = tree.add("intel-rapl:0", "package-0")
    monkeypatch.setenv("KDWATCH_POWERCAP_ROOT", str(tree.root))
    (tmp_path / "stage.py").write_text(STAGE)
    stages = [
        {"name": name, "kind": name, "run": [sys.executable, "stage.py"], "env": {"SHARE": "1"}}
        for name in ("student", "evaluate")
    ]
    recipe = {"name": "own", "regime": "sft", "stages": stages}
    (tmp_path / "own.yaml").write_text(json.dumps(recipe))
    path = tmp_path / "grid.yaml"
    write(path, ["1", "2", "4"])
    with Driver({zone: 100.0}, step_s=0.01):
        yield path


def write(path: Path, shares: list[str], **more: Any) -> None:
    """Both stages have the same share: one grid for each point."""
    sweep = [{"recipe": "own.yaml", "student.env.SHARE": [s], "evaluate.env.SHARE": [s]} for s in shares]
    path.write_text(json.dumps({"name": "grid", "sweep": sweep, **more}))


def kdwatch(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kdwatch", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sweep(path: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run a sweep to its end, in this process: exit code, its object, what it said."""
    done = CliRunner().invoke(command, [str(path), "--json", *words])
    return done.exit_code, json.loads(done.stdout) if done.stdout else {}, done.stderr


def beaten(point: dict[str, Any], points: list[dict[str, Any]]) -> bool:
    """Whether another point is better in quality for no more energy; qualities differ here."""
    return any(o["quality"] > point["quality"] and o["per_student_kwh"] <= point["per_student_kwh"] for o in points)


def test_points_run_once_and_give_a_frontier_that_plan_takes(grid: Path) -> None:
    code, result, said = sweep(grid)
    assert code == 0, said
    points = result["points"]
    assert [p["name"] for p in points] == ["own-SHARE1-SHARE1", "own-SHARE2-SHARE2", "own-SHARE4-SHARE4"]
    assert [p["quality"] for p in points] == [0.25, 0.5, 1.0]
    assert all(p["status"] == "completed" and not p["skipped"] and p["total_j"] > 0 for p in points)
    assert result["spent_j"] == pytest.approx(sum(p["total_j"] for p in points))
    assert [p["on_frontier"] for p in points] == [not beaten(p, points) for p in points] and points[2]["on_frontier"]
    assert len(result["frontier"]) == sum(p["on_frontier"] for p in points) and result["left_out"] == []
    for run in map(Path, (p["run"] for p in points)):
        codes = {e["code"] for e in RunReader(run).iter_events() if e["type"] == "warning"}
        assert "shared_host" not in codes  # the run before has ended for good

    planned = CliRunner().invoke(plan, ["--frontier", *(p["run_id"] for p in points), "--json"])
    answer = json.loads(planned.stdout)
    assert [(f["id"], f["quality"]) for f in answer["frontier"]] == [
        (f["id"], f["quality"]) for f in result["frontier"]
    ]

    code, again, said = sweep(grid)
    assert code == 0 and "done before, skipped" in said and "~" not in said  # RAPL is measured
    assert [p["run"] for p in again["points"]] == [p["run"] for p in points]
    assert all(p["skipped"] for p in again["points"]) and again["spent_j"] == 0
    assert len(list_runs()) == 3

    write(grid, ["1", "3"], region="FRA")
    code, more, _ = sweep(grid)
    assert [p["skipped"] for p in more["points"]] == [True, False]  # a region changes no measurement


def test_a_point_that_fails_does_not_end_the_sweep_and_is_tried_again(
    grid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "1")
    write(grid, ["1", "2"])
    code, result, said = sweep(grid)
    assert code == 1 and "stage student failed: see " in said
    assert [p["status"] for p in result["points"]] == ["failed", "completed"]
    assert len(result["left_out"]) == 1 and "failed" in result["left_out"][0]["why"]
    monkeypatch.delenv("FAIL")
    code, result, _ = sweep(grid)
    assert code == 0 and [p["skipped"] for p in result["points"]] == [False, True]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_the_sweep_and_the_next_call_goes_on(
    grid: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    monkeypatch.setenv("HOLD", "40")
    write(grid, ["0.001", "1"])
    process = kdwatch("sweep", grid)
    deadline = time.monotonic() + PATIENCE_S
    while len(runs := list_runs()) < 2 or not started(runs[0]):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, number)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, said
    assert "stopped after 1 of 2 points" in said and "own-SHARE0.001-SHARE0.001" in out
    assert RunReader(runs[0]).status() == "stopped" and not RunReader(runs[0]).alive()
    ended = [e for e in RunReader(runs[0]).iter_events() if e["type"] == "run_ended"]
    assert ended[0]["exit_code"] == code
    monkeypatch.delenv("HOLD")
    done, result, _ = sweep(grid)
    assert done == 0 and [p["skipped"] for p in result["points"]] == [True, False]


def started(run: Path) -> bool:
    return any(e["type"] == "stage_started" for e in RunReader(run).iter_events())


def test_a_run_that_still_goes_on_is_followed_not_doubled(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLD", "3")
    write(grid, ["1"])
    first = kdwatch("sweep", grid)
    deadline = time.monotonic() + PATIENCE_S
    while not (runs := list_runs()) or not started(runs[0]):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.02)
    first.kill()  # the sweep alone: its recorder goes on
    first.communicate()
    code, result, _ = sweep(grid)
    assert code == 0 and result["points"][0]["status"] == "completed" and len(list_runs()) == 1


def test_two_sweeps_at_once_run_each_point_once(grid: Path) -> None:
    write(grid, ["1", "2"])
    both = [kdwatch("sweep", grid, "--json") for _ in range(2)]
    results = [json.loads(process.communicate(timeout=2 * PATIENCE_S)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(list_runs()) == 2
    assert [p["run"] for p in results[0]["points"]] == [p["run"] for p in results[1]["points"]]


def test_dry_run_tells_what_is_done_and_runs_nothing(grid: Path) -> None:
    write(grid, ["1"])
    assert sweep(grid)[0] == 0
    write(grid, ["1", "2"])
    _, dry, _ = sweep(grid, "--dry-run")
    assert [p["status"] for p in dry["points"]] == ["completed", "to run"]
    assert dry["stages_to_run"] == 2 and len(list_runs()) == 1
    ran = build_report(list_runs()[0])["stages"]
    told = dry["points"][1]["stages"]  # the same commands: as much as they used before
    assert [s["energy_label"] for s in told] == ["predicted", "predicted"]
    assert [s["energy_j"] for s in told] == pytest.approx([s["energy_j"]["total"] for s in ran])
    text = CliRunner().invoke(command, [str(grid), "--dry-run"]).stdout
    assert "2 points, 1 to run, 1 done before" in text and text.endswith("nothing was run\n")


def test_a_home_that_cannot_be_used_is_one_line(grid: Path) -> None:
    (grid.parent / "file").write_text("")
    done = CliRunner().invoke(command, [str(grid), "--home", str(grid.parent / "file" / "home")])
    assert done.exit_code == 2 and "set KDWATCH_HOME" in done.stderr and done.stderr.count("\n") == 1


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    process = kdwatch("sweep", tmp_path / "none.yaml")
    out, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "") and said.count("\n") == 1 and "no such file" in said
