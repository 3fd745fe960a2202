"""Whatever is unknown in a table, a plan is an answer: plain JSON, every candidate accounted for, no number made up."""

from __future__ import annotations

import json
import warnings
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kdwatch.rundir.errors import UsageProblem
from planners import PlanRequest, plan
from planners.observations import Observations
from planners.rowcheck import check_row, fill_total
from planners.schema import make_table

energy = st.one_of(st.none(), st.floats(0.001, 50).map(lambda e: round(e, 3)))
rows = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b", "c", "d"]),
        "regime": st.sampled_from(["sft", "kd", "synthetic_sft", "custom"]),
        "student_params_b": st.sampled_from([None, 1.0, 3.0, 7.0, 13.0]),
        "teacher_params_b": st.sampled_from([None, 32.0]),
        "total_kwh": energy,
        "preprocess_kwh": energy,
        "teacher_kwh": st.one_of(st.just(0.0), energy),
        "student_kwh": energy,
        "eval_kwh": energy,
        "quality": st.one_of(st.none(), st.sampled_from([0.0, 0.5, 0.5, 0.9, 1.3])),
        "tokens": st.sampled_from([None, 1e6, 3e7]),
        "alpha": st.sampled_from([None, 0.3, 0.5]),
        "hardware": st.sampled_from([None, "1x NVIDIA H100", "laptop"]),
        "scope": st.sampled_from([None, "gpu", "gpu+cpu", "cpu_estimated"]),
        "source": st.sampled_from(["paper", "mine.csv"]),
        "total_sd_kwh": st.sampled_from([None, 0.5]),
        "repeats": st.sampled_from([None, 1, 3]),
        "basis": st.just("measured"),
    }
)
requests = st.fixed_dictionaries(
    {
        "budget_kwh": st.sampled_from([None, 0.0, 5.0, 30.0]),
        "min_quality": st.sampled_from([None, 0.5, 0.95]),
        "co2e_kg": st.sampled_from([None, 1.0]),
        "intensity": st.just(100.0),
        "teacher_intensity": st.sampled_from([None, 50.0]),
        "gpu_hours": st.sampled_from([None, 20.0]),
        "mean_gpu_w": st.sampled_from([None, 400.0]),
        "reuse_n": st.sampled_from([None, 1, 7]),
        "serve_tokens": st.sampled_from([None, 1e8]),
        "confidence": st.sampled_from([None, 0.9]),
        "quality_tolerance": st.sampled_from([0.0, 0.1]),
        "teacher_outputs": st.sampled_from(["compute", "cached"]),
        "teacher_batch": st.sampled_from([None, 16.0]),
        "predict": st.booleans(),
        "scope": st.sampled_from([None, "any"]),
        "objective": st.sampled_from([None, "max_quality", "min_energy"]),
    }
)


@settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.lists(rows, min_size=1, max_size=8), requests)
def test_any_table_gives_a_plan(table: list[dict[str, Any]], request_: dict[str, Any]) -> None:
    usable = [row for row in map(fill_total, table) if check_row(row).accepted]
    if not usable:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = plan(PlanRequest(**request_), Observations(make_table(usable)))
        except UsageProblem as problem:
            assert "gpu-hours" in str(problem) or "teacher-region" in str(problem)
            return
    json.dumps(result.to_json(), allow_nan=False)
    names = [c["id"] for c in result.candidates]
    assert len(names) == len(set(names)), "no two candidates share a name"
    chosen = result.recommendation.id if result.recommendation else None
    told = {entry["id"] for entry in result.rejected} | ({chosen} if chosen else set())
    assert told >= set(names), "every candidate is chosen or told why not"
    assert chosen not in result.unrated
    if request_["teacher_batch"] is None and not request_["predict"]:
        measured = {row["quality"] for row in usable}
        assert all(p["quality"] is not None for p in result.frontier)
        assert result.recommendation is None or not measured <= {None}
    for entry in result.break_even:
        if entry.n_star_low is not None and entry.n_star is not None and entry.n_verdict == "finite":
            assert entry.n_star_low <= entry.n_star * (1 + 1e-9)
