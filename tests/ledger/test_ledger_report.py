"""The report object: the contract of schema 1, key by key, and its numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from ledger_inputs import gpu, model
from run_files import STAGES, stage, whole_story, write_run

from kdwatch.ledger.report import build_report
from kdwatch.rundir.errors import UsageProblem

TOP = {
    "schema", "run_id", "name", "regime", "status", "started_at", "duration_s", "stages", "devices", "unattributed_j",
    "total_j", "total_kwh", "sources", "budget_j", "pue", "grid_g_per_kwh", "grid_source", "facility_kwh", "co2e_kg",
    "quality", "teacher_reuse", "warnings",
}  # fmt: skip
STAGE = {
    "name", "kind", "status", "exit_code", "start_s", "end_s", "duration_s", "phases_s", "reused_from", "tokens",
    "input_tokens", "tokens_per_s", "j_per_token", "energy_j", "net_energy_j", "bound_j", "devices",
}  # fmt: skip
ENERGY = {"gpu", "cpu", "dram", "ram_estimated", "other", "total", "measured", "estimated", "missing"}
STAGE_DEVICE = {"id", "name", "kind", "energy_j", "mean_w", "peak_w", "source", "coverage", "scope", "flags"}
DEVICE = {"id", "name", "kind", "total_j", "unattributed_j", "source", "coverage", "scope"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(
        tmp_path / "r", whole_story(), until=20.0, stages=STAGES, region="FRA", pue=1.25, budget_j=1e6, run_id="r-1"
    )


def of(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(s for s in report["stages"] if s["name"] == name)


def test_every_key_of_the_contract_is_there(run: Path) -> None:
    report = build_report(run)
    assert report.keys() >= TOP
    for found in report["stages"]:
        assert found.keys() >= STAGE and found["energy_j"].keys() == ENERGY
        assert all(d.keys() >= STAGE_DEVICE for d in found["devices"])
    assert all(d.keys() >= DEVICE for d in report["devices"])
    json.dumps(report, allow_nan=False)


def test_the_numbers(run: Path) -> None:
    """300 W measured + 40 W estimated for 5 s and 10 s; 5 s and the rest belong to nobody."""
    report = build_report(run)
    assert (report["schema"], report["status"], report["started_at"]) == (1, "completed", "2026-01-01T00:00:00Z")
    assert report["duration_s"] == 20.0
    student = of(report, "student")
    assert student["energy_j"]["gpu"] == pytest.approx(3000.0, rel=0.002)
    assert student["energy_j"]["cpu"] == pytest.approx(400.0)
    assert student["energy_j"]["total"] == pytest.approx(3400.0, rel=0.002)
    assert student["energy_j"]["measured"] == student["energy_j"]["gpu"]
    assert student["energy_j"]["estimated"] == student["energy_j"]["cpu"]
    assert student["energy_j"]["missing"] == ["dram"]
    assert (student["tokens"], student["tokens_per_s"]) == (5000, 500.0)
    assert student["j_per_token"] == pytest.approx(0.68, rel=0.002)
    assert student["phases_s"] == {"import": 2.0, "work": 8.0}
    assert student["mean_w"] == pytest.approx(340.0, rel=0.002)
    assert student["net_energy_j"] is None  # the model has no idle baseline
    assert student["devices"][0]["net_energy_j"] == pytest.approx(2400.0, rel=0.002)
    terms = student["devices"][0]["bound_terms_j"]
    assert terms["systematic"] == pytest.approx(150.0, rel=0.002) and terms["gap"] == 0.0
    assert 0.0 < terms["edge"] <= 30.0  # polls 0.1 s apart at 300 W, both edges
    assert student["devices"][0]["bound_j"] == pytest.approx(sum(terms.values()))
    assert report["total_j"] == pytest.approx(6800.0, rel=0.002)
    assert report["total_kwh"] == pytest.approx(report["total_j"] / 3.6e6)
    assert report["sources"] == {
        "gpu": "counter", "cpu": "estimated", "dram": None, "ram_estimated": None, "other": None
    }  # fmt: skip
    assert report["quality"] == {"q": 0.9, "benchmarks": {"tasks": {"student": 0.81, "teacher": 0.9}}}
    assert "estimated" in {w["code"] for w in report["warnings"]}


def test_stages_and_unattributed_are_the_total(run: Path) -> None:
    report = build_report(run)
    parts = [s["energy_j"]["total"] for s in report["stages"] if s["energy_j"]["total"] is not None]
    assert math.isclose(math.fsum([*parts, report["unattributed_j"]]), report["total_j"], rel_tol=1e-9)
    for device in report["devices"]:
        own = [d["energy_j"] for s in report["stages"] for d in s["devices"] if d["id"] == device["id"]]
        assert math.isclose(math.fsum([*own, device["unattributed_j"]]), device["total_j"], rel_tol=1e-9)


def test_a_reused_stage_has_energy_0_and_says_of_what(run: Path) -> None:
    data = of(build_report(run), "data")
    assert data["status"] == "reused" and data["energy_j"]["total"] == 0.0
    assert data["reused_from"] == {"run": "r0", "artifact": "cd" * 32, "energy_j": 55.0, "estimated": None}
    assert data["start_s"] is None and data["tokens_per_s"] is None


def test_a_stage_that_never_ran_is_pending_and_unknown(run: Path) -> None:
    extra = of(build_report(run), "extra")
    assert extra["status"] == "pending" and extra["energy_j"]["total"] is None and extra["devices"] == []


def test_teacher_reuse_gives_the_amortised_share(run: Path) -> None:
    """E_teacher / N: 1700 J over 4 uses."""
    assert build_report(run)["teacher_reuse"] == {
        "artifact": "ab" * 32, "reuse_count": 4, "teacher_j": 1700.0, "teacher_j_share": 425.0,
        "estimated": None,
    }  # fmt: skip


def test_facility_and_co2_are_beside_the_energy(run: Path) -> None:
    report = build_report(run)
    assert report["facility_kwh"] == pytest.approx(1.25 * report["total_kwh"])
    assert report["co2e_kg"] == pytest.approx(report["facility_kwh"] * 0.056039)
    other = build_report(run, region="POL", pue=1.0)
    assert other["total_j"] == report["total_j"]
    assert other["co2e_kg"] == pytest.approx(other["total_kwh"] * 0.661926)
    assert build_report(run, g_per_kwh=0.0)["co2e_kg"] == 0.0


@pytest.mark.parametrize(
    "options", [{"region": "Frnace"}, {"pue": 0.5}, {"pue": math.nan}, {"g_per_kwh": -1.0}, {"protocol": "mine"}]
)
def test_bad_options_are_usage_problems(run: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        build_report(run, **options)


def test_a_bad_region_in_a_manifest_costs_the_co2_number_only(tmp_path: Path) -> None:
    report = build_report(write_run(tmp_path / "r", whole_story(), stages=STAGES, region="Atlantis", pue=0.3))
    assert report["co2e_kg"] is None and report["total_j"] > 0 and report["pue"] is None
    assert {"region", "pue"} <= {w["code"] for w in report["warnings"]}


def test_an_unfinished_run_of_a_dead_recorder_is_interrupted(tmp_path: Path) -> None:
    events = [e for e in whole_story() if e[0] != "run_ended" and e[1] < 17.0]
    report = build_report(write_run(tmp_path / "r", events, until=16.0, stages=STAGES))
    assert report["status"] == "interrupted" and report["duration_s"] == pytest.approx(16.6)
    assert of(report, "student")["status"] == "interrupted"
    assert of(report, "student")["energy_j"]["gpu"] == pytest.approx(2700.0, rel=0.08)


def test_a_run_without_any_sensor_has_null_energies(tmp_path: Path) -> None:
    report = build_report(write_run(tmp_path / "r", whole_story(), stages=STAGES, devices=[]))
    assert report["total_j"] is None and report["co2e_kg"] is None and report["unattributed_j"] is None
    student = of(report, "student")
    assert student["energy_j"]["total"] is None and student["j_per_token"] is None
    assert student["duration_s"] == 10.0 and "cpu" in student["energy_j"]["missing"]


def test_extending_the_budget_moves_it_up_only(tmp_path: Path) -> None:
    events = [
        ("control", 1.0, {"action": "extend_budget", "value": 500.0}),
        ("control", 2.0, {"action": "extend_budget", "value": 2000.0}),
        ("control", 3.0, {"action": "extend_budget", "value": 100.0}),
        *stage("s", 1.0, 5.0),
    ]
    assert build_report(write_run(tmp_path / "r", events, budget_j=1000.0))["budget_j"] == 2000.0


def test_paper_protocol_from_recorded_data(tmp_path: Path) -> None:
    """GPU: 300 W x 10 s from the legacy field; CPU: TDP 100 W x 20 CPU seconds / 8 CPUs = 250 J, cpu_s recorded for
    the student alone."""
    devices = [gpu(), model(details={"tdp_w": 100.0, "cpus": 8})]
    run = write_run(tmp_path / "r", whole_story(), stages=STAGES, devices=devices, region="FRA")
    report = build_report(run, "paper", pue=2.0)
    student = of(report, "student")
    assert report["protocol"] == "paper" and report.keys() >= TOP
    assert student["energy_j"]["gpu"] == pytest.approx(3000.0)
    assert student["energy_j"]["cpu"] == pytest.approx(250.0)
    assert student["energy_j"]["total"] == pytest.approx(3250.0)
    assert student["j_per_token"] == pytest.approx(0.65)
    teacher = of(report, "teacher")
    assert teacher["energy_j"]["cpu"] is None and teacher["energy_j"]["missing"] == ["cpu"]
    assert report["unattributed_j"] is None and of(report, "data")["energy_j"]["total"] == 0.0
    assert report["total_j"] == pytest.approx(3250.0 + 1500.0)
    assert report["co2e_kg"] == pytest.approx(report["total_kwh"] * 2.0 * 0.056039)
    assert "paper_protocol" in {w["code"] for w in report["warnings"]}
    assert [w["text"] for w in report["warnings"] if w["code"] == "estimated"] == [
        "cpu: energy from a model, not measured"
    ]


def test_paper_protocol_is_null_where_nothing_was_recorded(tmp_path: Path) -> None:
    report = build_report(write_run(tmp_path / "r", whole_story(), stages=STAGES, devices=[model()]), "paper")
    student = of(report, "student")
    assert student["energy_j"]["total"] is None and report["total_j"] is None
    assert student["energy_j"]["missing"] == ["cpu"]
    assert "estimated" not in {w["code"] for w in report["warnings"]}, "there is no number that was estimated"


def test_paper_resampling_is_a_poll_each_half_second() -> None:
    """A value between two points of the grid is not seen; edges hold; the trapezoid rule joins the points."""
    from kdwatch.ledger.paper import resampled_joules

    times, watts = [0.0, 0.6, 0.7, 1.0, 2.0], [100.0, 900.0, 100.0, 200.0, 300.0]
    # points 0.2, 0.7, 1.2, 1.7, 1.9 see 100, 100, 200, 200, 200
    expected = 0.5 * 100 + 0.5 * 150 + 0.5 * 200 + 0.2 * 200
    assert resampled_joules(times, watts, 0.2, 1.9) == pytest.approx(expected)
    assert resampled_joules(times, watts, 1.0, 1.0) == 0.0
    assert resampled_joules([], [], 0.0, 1.0) is None
    assert resampled_joules(times, watts, 0.0, 20.0) is None
