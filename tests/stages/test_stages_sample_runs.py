"""The recorded runs that ship: whole, by the contract, and without a trace of who made them where."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from kdwatch.ledger.report import build_report

SAMPLES = Path(__file__).parents[2] / "sample_runs"
DEMO = ["demo-sft", "demo-kd", "demo-synthetic"]
RUNS = sorted(p.parent for p in SAMPLES.rglob("manifest.json"))
TRACE = re.compile(
    rb"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b|/(?:home|root|Users|tmp|opt|work|mnt|srv)/|GPU-[0-9a-f]"
)


@pytest.mark.parametrize("run", RUNS, ids=lambda p: p.name)
def test_no_host_user_path_or_uuid(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["recorder"]["host_hash"] == manifest["recorder"]["boot_id"] == ""
    for path in (p for p in run.rglob("*") if p.is_file()):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert not TRACE.search(content), path


@pytest.mark.parametrize("run", RUNS, ids=lambda p: p.name)
def test_report_obeys_the_contract(run: Path) -> None:
    """Every executed stage has energy > 0; teacher, student and evaluate have tokens and J/token; stages and
    unattributed are the total; Q lies between 0 and 1.2; the teacher scores at least 0.95 on every task."""
    report = build_report(run)
    assert report["status"] == "completed"
    for stage in report["stages"]:
        if stage["status"] == "reused":
            assert stage["reused_from"]["energy_j"] > 0 and stage["energy_j"]["total"] == 0
            continue
        assert stage["status"] == "completed" and stage["energy_j"]["total"] > 0
        if stage["kind"] in ("teacher", "student", "evaluate"):
            assert stage["tokens"] > 0
            assert stage["j_per_token"] == pytest.approx(stage["energy_j"]["total"] / stage["tokens"], rel=1e-6)
            assert stage["phases_s"]["import"] > 0
    parts = sum(s["energy_j"]["total"] for s in report["stages"]) + report["unattributed_j"]
    assert parts == pytest.approx(report["total_j"], rel=1e-9)
    benchmarks = report["quality"]["benchmarks"]
    ratios = [b["student"] / b["teacher"] for b in benchmarks.values()]
    assert report["quality"]["q"] == pytest.approx(sum(ratios) / len(ratios))
    assert 0 < report["quality"]["q"] < 1.2
    assert len(benchmarks) == 5 and min(b["teacher"] for b in benchmarks.values()) >= 0.95


def test_the_three_demo_runs_have_the_stages_of_their_regimes() -> None:
    kinds = {name: [s["kind"] for s in build_report(SAMPLES / name)["stages"]] for name in DEMO}
    assert "teacher" not in kinds["demo-sft"]
    assert "teacher" in kinds["demo-kd"] and "teacher" in kinds["demo-synthetic"]
    kd = build_report(SAMPLES / "demo-kd")
    assert next(s for s in kd["stages"] if s["name"] == "preprocess")["status"] == "reused"
