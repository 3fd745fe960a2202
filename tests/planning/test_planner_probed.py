"""`plan --predict` with probes: which are used, for what, and that nothing of it is called measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_probe_command import write_probe_run

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import runs_dir
from planners import PlanRequest, plan
from planners.observations import Observations, with_probes
from planners.probed import Probes
from planners.probes import Probe
from planners.schema import make_table

TOKENS = 2e9
KWH_J = 3.6e6


def observed(sizes: tuple[float, ...] = (1.0, 3.0), **more: Any) -> Observations:
    """Plain SFT at some sizes: 2 + 3 kWh for each billion of parameters."""
    rows = [
        {"id": f"SFT-{size:g}B", "regime": "sft", "student_params_b": size, "preprocess_kwh": 0.1, "teacher_kwh": 0.0,
         "student_kwh": 2 + 3 * size, "eval_kwh": 0.2, "total_kwh": 2.3 + 3 * size, "quality": 0.5 + 0.1 * size,
         "tokens": TOKENS, "hardware": "Board", "scope": "gpu", "source": "mine.csv",
         "hyperparameters": json.dumps({"batch_rows": 8})} | more
        for size in sizes
    ]  # fmt: skip
    return Observations(make_table(rows))


def probe(size: float, kwh: float, **settings: Any) -> Probe:
    """A student's probe whose full run of TOKENS takes so much."""
    rate = kwh * KWH_J / TOKENS
    points = tuple((1000.0 * n, 1000.0 * n * rate) for n in range(12))
    shape = {"batch_rows": 8, "student": "m"} | settings
    return Probe("student", points, 0.0, 1.0, params_b=size, uses="student.train", settings=shape)


def predicted(observations: Observations, size: float, *probes: Probe, **place: str) -> dict[str, Any]:
    where = {"hardware": "Board", "scope": "gpu"} | place
    request = PlanRequest(budget_kwh=1000, predict=True, sizes=(size,))
    result = plan(request, replace(observations, probes=(Probes(probes, **where),)))
    return next((c for c in result.candidates if c["student_params_b"] == size), {})


def test_a_probe_at_the_size_beats_a_line_that_is_carried_on() -> None:
    without, with_probe = predicted(observed(), 7.0), predicted(observed(), 7.0, probe(7.0, 30.0))
    assert without["source"] == "cost model" and with_probe["source"] == "cost model and probes"
    difference = with_probe["per_student_kwh"] - without["per_student_kwh"]
    assert difference == pytest.approx(30.0 - 23.0, rel=0.02)
    assert with_probe["basis"] == "extrapolated", "its evaluation is carried on; the probe itself is not measured"


def test_between_measured_sizes_the_surer_one_counts() -> None:
    exact = [{"repeats": 1}] * 4
    runs = Observations(
        make_table(row for _ in exact for row in observed((1.0, 2.0, 3.0, 4.0)).table.iter_rows(named=True))
    )
    line = predicted(runs, 2.5, probe(2.5, 30.0))
    assert line["source"] == "cost model" and line["per_student_kwh"] == pytest.approx(9.8, rel=0.02)


@pytest.mark.parametrize(
    ("change", "place"),
    [({}, {"hardware": "Other"}), ({}, {"scope": "cpu"}), ({"batch_rows": 64}, {}), ({"objective": "kd"}, {})],
)
def test_probes_of_another_machine_batch_or_objective_are_not_used(
    change: dict[str, Any], place: dict[str, str]
) -> None:
    assert predicted(observed(), 7.0, probe(7.0, 30.0, **change), **place)["source"] == "cost model"


def test_a_method_of_one_measured_size_is_carried_by_probes_of_two() -> None:
    found = predicted(observed((1.0,)), 2.0, probe(1.0, 5.0), probe(3.0, 11.0))
    assert found["per_student_kwh"] == pytest.approx(8.0 + 0.3, rel=0.1) and "probes" in found["source"]


def test_probed_sizes_are_candidates_and_never_measured() -> None:
    request = PlanRequest(budget_kwh=1000, predict=True)
    found = plan(request, replace(observed(), probes=(Probes((probe(2.0, 8.0),), "Board", "gpu"),)))
    (row,) = [c for c in found.candidates if c["student_params_b"] == 2.0]
    assert row["basis"] == "interpolated" and row["id"] == "SFT-2B"


def test_the_newest_probes_of_each_machine_are_found_or_those_that_are_named() -> None:
    old = write_probe_run(runs_dir() / "20260101-000000-probe-a", params=1_000_000)
    write_probe_run(runs_dir() / "20260102-000000-probe-b", params=2_000_000)
    (newest,) = with_probes(observed()).probes
    assert newest.hardware == "C" and [p.params_b for p in newest.probes] == [0.002]
    (named,) = with_probes(observed(), [old, "20260102-000000-probe-b"]).probes
    assert [p.params_b for p in named.probes] == [0.001, 0.002]


def test_a_run_that_holds_no_probe_is_one_line(tmp_path: Path) -> None:
    path = write_probe_run(tmp_path / "run")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["recipe"]["stages"][0]["uses"] = "student.train"
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageProblem, match=r"--probes .*: no finished run of kdwatch probe"):
        with_probes(observed(), [path])
