"""The budget guard, in a run and alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import naive
import pytest
from pipeline_helpers import begin, events, finish, python, record, stage_events, wait_for, warning_codes

from kdwatch.ledger.report import build_report
from kdwatch.pipeline.guard import BudgetGuard
from kdwatch.rundir import control


@pytest.mark.fault(71)
def test_a_run_over_its_budget_is_told_waits_and_ends(tmp_path: Path, mark: str, package_250w) -> None:
    """Fault 71: 1 kJ at 250 W is used up 4 s after the run's start; RAPL's period is 1 s, so the stage is told by then
    or a period later, may save its work, and the run ends as `over_budget` with exit code 3."""
    polite = python(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\ntime.sleep(600)"
    )
    run = record(
        tmp_path,
        f"budget: 1kJ\nstop_over_budget: true\nstages:\n- {{name: s, run: {polite}}}\n- {{name: after, run: 'true'}}\n",
    )
    told = next(e for e in events(run, "warning") if e["code"] == "over_budget")
    first, last_moment = 4.0 - 0.1, 4.0 + 1.0 + 1.0  # a period, and a second for a busy machine
    assert first <= told["t"] <= last_moment < naive.told_after_the_stage(0.0, 600.0)
    last = events(run, "run_ended")[0]
    assert (last["status"], last["exit_code"]) == ("over_budget", 3)
    assert last["t"] < 60.0, "the stage would have gone on for 600 s"
    assert (run / "logs" / "s.log").read_text() == "saved\n"
    report = build_report(run)
    assert report["status"] == "over_budget" and report["budget_j"] == 1000.0
    assert 1000.0 <= report["total_j"] <= 1600.0


def test_without_stop_over_budget_it_only_warns(tmp_path: Path, mark: str, package_250w) -> None:
    run = record(tmp_path, "budget: 200J\nstages:\n- {name: s, run: sleep 2.5}\n")
    assert "over_budget" in warning_codes(run)
    assert events(run, "run_ended")[0]["status"] == "completed"


def test_a_budget_can_be_extended_in_time(tmp_path: Path, mark: str, package_250w) -> None:
    run = begin(tmp_path, "budget: 700J\nstop_over_budget: true\nstages:\n- {name: s, run: sleep 4}\n")
    wait_for(lambda: "stage_started" in stage_events(run, "s"), "the stage")
    control.request(run, "extend_budget", value=100.0)  # less than now: refused
    control.request(run, "extend_budget", value=1e9)
    assert finish(run)["status"] == "completed"
    assert [e.get("budget_j") for e in events(run, "control")] == [None, 1e9]
    assert build_report(run)["budget_j"] == 1e9


def totals(t: float, total_j: float | None, step: int | None = None, stage_j: float | None = None) -> Any:
    stage = SimpleNamespace(name="s", status="running", step=step, total_steps=1000, energy_j={"total": stage_j})
    return SimpleNamespace(t=t, total_j=total_j, stages=(stage,), power_w=250.0)


def feed(guard: BudgetGuard, per_step_j: float, warm_up_j: float, steps: int) -> list[tuple[int, str, str]]:
    """Verdicts that are no `none`, while 1000 steps of `per_step_j` after a warm-up are on their way."""
    found = []
    for step in range(1, steps + 1, 10):
        joules = warm_up_j + per_step_j * step
        verdict = guard.check(totals(10.0 * step, joules, step, joules))
        if verdict.action != "none":
            found.append((step, verdict.action, verdict.code))
    return found


def test_a_run_that_will_surely_be_over_is_stopped_early_and_not_before_it_is_sure() -> None:
    """10 J a step x 1000 steps = 10 kJ against 5 kJ: certain, so it stops, but not in the first 3 % of the work."""
    first = feed(BudgetGuard(5000.0, stop=True), 10.0, 0.0, 400)
    stop = next(step for step, action, code in first if action == "stop")
    assert 30 <= stop <= 100
    assert all(code == "budget_forecast" for _, _, code in first[:3])


def test_a_heavy_warm_up_does_not_cry_wolf() -> None:
    """200 J of warm-up, then 1 J a step: naively 21 kJ at step 10, in truth 1.2 kJ of 2 kJ."""
    assert feed(BudgetGuard(2000.0, stop=True), 1.0, 200.0, 1000) == []


def test_stages_to_come_count_as_the_cost_model_expects_them() -> None:
    """1 kJ for this stage and 4.5 ± 0.1 kJ for the next, 5 kJ in all: over, though this stage alone is not."""
    known = BudgetGuard(5000.0, stop=True, expected={"next": (4500.0, 100.0)})
    later = SimpleNamespace(name="next", status="pending", step=None, total_steps=None, energy_j={"total": None})
    found = []
    for step in range(1, 400, 10):
        now = totals(10.0 * step, 1.0 * step, step, 1.0 * step)
        now.stages = (*now.stages, later)
        found.append((step, known.check(now).action))
    stop = next(step for step, action in found if action == "stop")
    assert 0.03 * 5500 <= stop <= 250
    assert feed(BudgetGuard(5000.0, stop=True), 1.0, 0.0, 400) == []


def test_unknown_energy_is_never_over() -> None:
    assert BudgetGuard(1.0, stop=True).check(totals(1.0, None)).action == "none"


@pytest.mark.parametrize(
    ("used", "action", "code"), [(89.0, "none", "budget"), (90.0, "warn", "budget"), (100.0, "stop", "over_budget")]
)
def test_limits(used: float, action: str, code: str) -> None:
    verdict = BudgetGuard(100.0, stop=True).check(totals(1.0, used))
    assert (verdict.action, verdict.code) == (action, code)
