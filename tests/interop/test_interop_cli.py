"""`kdwatch import` as a person or a script calls it: stdout carries data, stderr the rest, exit codes tell."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from kdwatch.cli.import_ import import_
from kdwatch.rundir.paths import list_runs

LOGS = Path(__file__).parents[1] / "data" / "logs"
GOOD, BAD, NO_TIME = (
    str(LOGS / name)
    for name in (
        "35_harness_power_log_clean_start.csv",
        "06_nvsmi_utf16le_crlf_no_power.csv",
        "07_nvsmi_single_column_noheader_nounits.csv",
    )
)


def run(*args: str):
    return CliRunner().invoke(import_, list(args))


def test_json_names_the_run_and_each_file() -> None:
    done = run(GOOD, "--json", "--name", "mine")
    out = json.loads(done.stdout)
    assert done.exit_code == 0 and out["schema"] == 1
    assert out["run"] == str(list_runs()[0]) and out["run_id"] == list_runs()[0].name
    (entry,) = out["files"]
    keys = (
        "format n_samples n_gpus duration_s energy_j total_energy_j mean_w peak_w gap_seconds rows kwh kg_co2e warnings"
    )
    for key in keys.split():
        assert key in entry
    assert json.loads((list_runs()[0] / "manifest.json").read_text())["name"] == "mine"


def test_one_bad_file_among_good_ones() -> None:
    """The good one is imported, the bad one is one line and exit code 2; its object says what it contains."""
    done = run(GOOD, BAD, "--json")
    out = json.loads(done.stdout)
    assert done.exit_code == 2 and out["run_id"] and len(list_runs()) == 1
    assert [bool(entry["error"]) for entry in out["files"]] == [False, True]
    assert out["files"][1]["rows"] == 59 and "memory.used [MiB]" in out["files"][1]["columns"]
    (line,) = [line for line in done.stderr.splitlines() if "06_nvsmi" in line]
    assert "no power column" in line


def test_file_without_times_gives_values_and_no_run() -> None:
    done = run(NO_TIME)
    assert done.exit_code == 0 and "run " not in done.stdout and "--interval" in done.stderr
    assert "energy    n/a" in done.stdout and list_runs() == []
    with_interval = run(NO_TIME, "--interval", "0.1")
    assert with_interval.exit_code == 0 and "1.10 kJ" in with_interval.stdout and len(list_runs()) == 1


def test_directory_of_logs_is_its_files_in_one_run(tmp_path: Path) -> None:
    for day in (3, 4):
        rows = "".join(f"2026-01-0{day}T15:36:0{n}Z,100\n" for n in range(3))
        (tmp_path / f"day{day}.csv").write_text("timestamp,power_w\n" + rows)
    done = run(str(tmp_path), "--json")
    assert done.exit_code == 0 and len(json.loads(done.stdout)["files"]) == 2
    manifest = json.loads((list_runs()[0] / "manifest.json").read_text())
    assert [stage["name"] for stage in manifest["stages"]] == ["day3", "day4"]


def test_directory_with_other_files_beside_the_logs(tmp_path: Path) -> None:
    """What is no log is passed over and named; a log without power is still an error."""
    rows = "".join(f"2026-01-03T15:36:0{n}Z,100\n" for n in range(3))
    (tmp_path / "power.csv").write_text("timestamp,power_w\n" + rows)
    (tmp_path / "README.md").write_text("how these were made\n")
    (tmp_path / "config.json").write_text('{"lr": 1}\n')
    (tmp_path / "empty.log").write_text("")
    done = run(str(tmp_path), "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and len(found["files"]) == 1
    assert "README.md" in found["notes"][0] and "empty.log" in done.stderr
    named = run(str(tmp_path / "power.csv"), str(tmp_path / "README.md"))
    assert named.exit_code == 2 and "no known format" in named.stderr
    (tmp_path / "memory.csv").write_text("timestamp,memory.used [MiB]\n2026-01-03T15:36:00Z,5\n")
    assert run(str(tmp_path)).exit_code == 2
    (tmp_path / "power.csv").unlink()
    (tmp_path / "memory.csv").unlink()
    nothing = run(str(tmp_path))
    assert nothing.exit_code == 2 and nothing.stderr.count("\n") == 3


def test_bad_use_is_one_line_and_no_run(tmp_path: Path) -> None:
    for args in (
        [str(tmp_path / "nothing.csv")],
        [str(tmp_path)],
        [GOOD, "--tz", "Mars/Base"],
        [GOOD, "--interval", "-1"],
    ):
        done = run(*args)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, args
    assert list_runs() == []
