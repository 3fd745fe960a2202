"""The files of schema 1 as the first release wrote them (tests/data/schema1) open for ever, with the same numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdwatch.ledger.load import load_ledger, resume
from kdwatch.ledger.report import build_report
from kdwatch.rundir.reader import RunReader

RUN = Path(__file__).parents[1] / "data" / "schema1" / "run"


def test_the_first_release_opens() -> None:
    reader = RunReader(RUN)
    assert (reader.manifest["schema"], reader.status()) == (1, "completed")
    assert len(list(reader.iter_samples("nvml"))) == 201 and len(list(reader.iter_samples("estimate"))) == 21
    assert reader.info() == {"t_s": 20.0, "g0_memory_b": "8589934592", "g0_throttle": "power_cap"}
    assert set(reader.power_history(10)) == {"g0", "cpu0"}
    assert resume(reader)[1] == 0  # its checkpoint was made by older rules: everything is read again


@pytest.mark.parametrize("without", [(), ("checkpoints",), ("rollups.jsonl",), ("checkpoints", "rollups.jsonl")])
def test_its_numbers_stay(tmp_path: Path, without: tuple[str, ...]) -> None:
    """300 W and an estimated 40 W for 20 s, the student's 10 s; also from all samples instead of the checkpoint."""
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    for name in without:
        target = run / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    report = build_report(run)
    student = next(s for s in report["stages"] if s["name"] == "student")
    assert report["total_j"] == pytest.approx(6800.0, rel=0.001)
    assert student["energy_j"]["gpu"] == pytest.approx(3000.0, rel=0.002)
    assert student["cpu_process_j"] == pytest.approx(400.0 * 20 / 80)
    assert report["teacher_reuse"]["teacher_j_share"] == 425.0
    assert build_report(run, "paper")["total_j"] == pytest.approx(1500.0 + 3000.0 + 250.0)
    assert load_ledger(run, until=12.0).totals().status == "running"
