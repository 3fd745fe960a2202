"""Comparing runs: same things side by side, different things refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdwatch.cli.compare import compare

LOGS = Path(__file__).parents[1] / "data" / "logs"


def invoke(*args: str):
    return CliRunner().invoke(compare, [str(arg) for arg in args])


def test_common_components_only(bring) -> None:
    """34 has a GPU (141851 J); 42 has a GPU (537716.6 J) and a CPU, which is left out and said."""
    a = bring(LOGS / "34_harness_power_log_many_gaps.csv").run
    b = bring(LOGS / "42_harness_stage_poll_drift.json").run
    found = json.loads(invoke(a, b, "--json").stdout)
    assert found["components"] == ["gpu"] and found["left_out"][b.name] == ["cpu"]
    assert found["total"]["energy_j"] == pytest.approx([141851.0665, 537716.605], rel=1e-5)
    assert found["total"]["ratio"][1] == pytest.approx(537716.605 / 141851.0665, rel=1e-5)
    assert found["total"]["difference_j"][1] == pytest.approx(537716.605 - 141851.0665, rel=1e-5)
    assert found["total"]["beyond_bounds"] == [False, True]
    assert "component_left_out" in {w["code"] for w in found["warnings"]}
    text = invoke(a, b)
    assert text.exit_code == 0 and "x3.79" in text.stdout and "cpu left out" in text.stdout


def test_text_marks_estimates_and_draws_bars() -> None:
    """The sample runs: everything estimated, so `~` on each energy; a stage that a run reused or does not have says so;
    bars of one scale, the largest stage's the longest."""
    runs = [Path(__file__).parents[2] / "sample_runs" / f"demo-{name}" for name in ("kd", "sft")]
    done = invoke(*runs)
    assert done.exit_code == 0 and max(len(line) for line in done.stdout.splitlines()) <= 80
    table, bars = done.stdout.split("within both error bounds\n")
    cells = {line.split()[0]: line.split()[1:] for line in table.splitlines() if not line.startswith(" ") and line}
    assert cells["preprocess"][0] == "reused" and cells["preprocess"][1].startswith("~")
    assert cells["cache"][0].startswith("~") and cells["cache"][2] == "-"
    assert cells["total"][0] == "~1.24" and cells["total"][-1] == "±"
    found = json.loads(invoke(*runs, "--json").stdout)
    joules = [e for stage in found["stages"] for e in stage["energy_j"] if e]
    lengths = [line.count("▇") for line in bars.splitlines() if "▇" in line]
    assert len(lengths) == len(joules) and lengths[joules.index(max(joules))] == max(lengths) == 46
    assert lengths == pytest.approx([46 * j / max(joules) for j in joules], abs=1.0)


def test_other_scopes_are_refused_unless_asked(bring) -> None:
    """Whole nodes against one CPU package; both are `other` or have nothing in common."""
    nodes = bring(LOGS / "54_sacct_job_and_steps_table.md").run
    wall = bring(LOGS / "56_mlperf_spl_single_channel_rpi.txt").run
    gpu = bring(LOGS / "34_harness_power_log_many_gaps.csv").run
    for other, reason in ((wall, "different scopes"), (gpu, "no component is in all runs")):
        refused = invoke(nodes, other)
        assert refused.exit_code == 2 and reason in refused.stderr and refused.stderr.count("\n") == 1
        assert refused.stdout == ""
        forced = invoke(nodes, other, "--any-scope", "--json")
        assert forced.exit_code == 0
        found = json.loads(forced.stdout)
        assert not found["comparable"] and reason in found["warnings"][0]["text"]


def test_energy_with_pue_is_not_compared_with_energy_without(bring) -> None:
    with_pue = bring(LOGS / "48_carbontracker_output_2022.log").run
    without = bring(LOGS / "54_sacct_job_and_steps_table.md").run
    assert "PUE" in json.loads(invoke(with_pue, without, "--any-scope", "--json").stdout)["warnings"][1]["text"]
    assert invoke(with_pue, without).exit_code == 2


def test_stages_of_one_kind_stand_side_by_side_whatever_their_names(bring, tmp_path: Path) -> None:
    stage = json.loads((LOGS / "42_harness_stage_poll_drift.json").read_text())
    for name, joules in (("kd_a", 1000.0), ("kd_b", 2000.0)):
        stage |= {
            "stage_id": name,
            "gpu_energy_joules": joules,
            "cpu_energy_joules": 0.0,
            "total_energy_joules": joules,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(stage))
    runs = [bring(tmp_path / f"{name}.json").run for name in ("kd_a", "kd_b")]
    (row,) = json.loads(invoke(*runs, "--json").stdout)["stages"]
    assert row["kind"] == "student" and row["names"] == ["kd_a", "kd_b"]
    assert row["energy_j"] == pytest.approx([1000.0, 2000.0]) and row["ratio"][1] == pytest.approx(2.0)


@pytest.mark.parametrize("runs", [["nope", "nope2"], ["last"]])
def test_bad_use_is_one_line(runs: list[str]) -> None:
    done = invoke(*runs)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
