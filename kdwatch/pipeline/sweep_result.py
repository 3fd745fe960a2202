"""What a sweep measured: its points, what each cost and scored, and which of them are on the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kdwatch.ledger.report import build_report
from kdwatch.pipeline.sweep import Sweep
from kdwatch.pipeline.sweep_run import Outcome
from kdwatch.rundir.errors import UsageProblem

SCHEMA = 1


def sweep_result(sweep: Sweep, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The object of `kdwatch sweep --json`. `spent_j` is what the runs of this call used; null if one is unknown."""
    points = [point_result(outcome) for outcome in outcomes]
    frontier, candidates, left_out = measured_frontier([outcome.run for outcome in outcomes])
    chosen = {point["id"] for point in frontier}
    for point in points:
        own = next((c for c in candidates if point["run_id"] in c["source"].split(", ")), None)
        point["candidate"] = own["id"] if own else None
        point["per_student_kwh"] = own["per_student_kwh"] if own else None
        point["on_frontier"] = own["id"] in chosen if own else None
    spent = [point["total_j"] for point in points if not point["skipped"]]
    return {
        "schema": SCHEMA,
        "name": sweep.name,
        "points": points,
        "spent_j": None if None in spent else sum(spent),
        "frontier": frontier,
        "left_out": left_out,
    }


def point_result(outcome: Outcome) -> dict[str, Any]:
    """One point: its run, status, energy and quality."""
    report = build_report(outcome.run)
    return {
        "name": outcome.point.name,
        "settings": outcome.point.settings,
        "run": str(outcome.run),
        "run_id": outcome.run.name,
        "status": outcome.status,
        "skipped": outcome.skipped,
        "regime": report["regime"],
        "duration_s": report["duration_s"],
        "total_j": report["total_j"],
        "estimated": any(stage["energy_j"]["estimated"] for stage in report["stages"]),
        "reused": [stage["name"] for stage in report["stages"] if stage["status"] == "reused"],
        "quality": (report["quality"] or {}).get("q"),
        "failed": [stage["name"] for stage in report["stages"] if stage["status"] == "failed"],
    }


def measured_frontier(
    runs: Sequence[Path],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """(frontier, candidates, left_out) of runs as `kdwatch plan` sees them at reuse 1; runs that cannot serve are
    named in `left_out` with the reason."""
    import polars as pl

    from planners.observations import Observations
    from planners.recommend import plan
    from planners.request import PlanRequest
    from planners.runs import read_one

    tables, left_out = [], []
    for run in dict.fromkeys(runs):
        try:
            tables.append(read_one(run)[0])
        except UsageProblem as problem:
            left_out.append({"run": str(run), "why": str(problem)})
    if not tables:
        return [], [], left_out
    result = plan(PlanRequest(), Observations(pl.concat(tables)))
    plain = result.to_json()
    return plain["frontier"], plain["candidates"], left_out
