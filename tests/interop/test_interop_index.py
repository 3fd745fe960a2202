"""Every entry of tests/data/logs/index.json: its values or its error, within 1e-3 relative.

The values were computed apart from kdwatch from the raw files; `how_computed` in the index says by which rule.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from index_mapping import SKIPPED, STAGE, STATS, TOP, device, only

from kdwatch.interop.load import load_log
from kdwatch.interop.model import ImportOptions, LogProblem
from kdwatch.interop.summary import log_json, problem_json

LOGS = Path(__file__).parents[1] / "data" / "logs"
INDEX: list[dict[str, Any]] = json.loads((LOGS / "index.json").read_text(encoding="utf-8"))


def read(name: str, interval: float | None = None) -> dict[str, Any]:
    try:
        return log_json(load_log(LOGS / name, ImportOptions(interval_s=interval)))
    except LogProblem as problem:
        return problem_json(name, problem)


def same(ours: Any, theirs: Any, where: str) -> None:
    """Equal, numbers within 1e-3 (and 1e-9 absolute: differences of nearly equal kWh are rounding)."""
    if isinstance(theirs, dict):
        assert set(map(str, ours)) == set(theirs), where
        for key, value in theirs.items():
            same({str(k): v for k, v in ours.items()}[key], value, f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            same(a, b, f"{where}[{number}]")
    elif isinstance(theirs, int | float) and not isinstance(theirs, bool):
        assert ours is not None, where
        assert math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=1e-9), (where, ours, theirs)
    else:
        assert ours == theirs, (where, ours, theirs)


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])
def test_index_entry(entry: dict[str, Any]) -> None:
    out, expected = read(entry["file"]), entry["expected"]
    assert out["format"] == entry["format"]
    if "error" in expected:
        assert expected["error"] in out["error"]
        assert entry["file"] in out["error"] and "\n" not in out["error"]
        assert out["rows"] == expected["n_rows"]
        for column in expected.get("columns", ()):
            assert column in out["error"]
        assert out.get("encoding") == expected.get("encoding", "utf-8")
        return
    assert out["error"] is None
    for key, value in expected.items():
        check(entry, out, key, value)


def check(entry: dict[str, Any], out: dict[str, Any], key: str, value: Any) -> None:
    where = f"{entry['file']}: {key}"
    if out["format"] == "harness-stage-json":
        if STAGE[key] is not None:
            same(out["stages"][0][STAGE[key]], value, where)
        return
    if key in SKIPPED and key != "n_rows":
        return
    if key == "n_rows":
        same(out["rows"], value, where)
    elif key in ("per_gpu", "detail"):
        for name, stats in value.items() if key == "per_gpu" else [(None, value)]:
            of_device = device(out, name)
            for stat, number in stats.items():
                if stat not in SKIPPED:
                    same(of_device[STATS[stat]], number, f"{where}.{name}.{stat}")
    elif key == "by_column":
        for header, stats in value.items():
            ours = next(v for k, v in out["details"]["by_column"].items() if k.split(" ")[0] == header)["0"]
            for stat, number in stats.items():
                if stat not in SKIPPED:
                    same(ours[STATS[stat]], number, f"{where}.{header}.{stat}")
    elif key == "energy_J_trapezoid_per_gpu":
        same(out["energy_j"] if value is not None else only({"": out["total_energy_j"]}), value, where)
    elif key.startswith(("energy_J_if_interval_s", "energy_J_per_gpu_if_interval_2s")):
        with_interval(entry["file"], key, value)
    elif key == "mean_W":
        ours = out["mean_w"]
        same(ours if isinstance(value, dict) else device_mean(out), value, where)
    elif key == "energy_J":
        energies = out["details"].get("energy_j_by_event") if isinstance(value, dict) else out["total_energy_j"]
        same(energies, value, where)
    elif key in ("stage", "step_200", "step_400"):
        stage = out["stages"][0] if key == "stage" else snapshot(out, int(key.split("_")[1]))
        for name, number in value.items():
            if STAGE[name] is not None:
                same(stage[STAGE[name]], number, f"{where}.{name}")
    elif key == "interval_200_400":
        found = out["details"]["intervals"][0]
        same({"energy_J": found["energy_j"], "tokens": found["tokens"], "seconds": found["seconds"]}, value, where)
    elif key == "codecarbon":
        for name, number in value.items():
            same(out["details"]["codecarbon"][name], number, f"{where}.{name}")
    elif key == "predicted":
        found = out["details"]["predicted"]
        same([found["epochs"], found["duration_s"], found["kwh"], found["g_co2e"]], list(value.values()), where)
    elif key == "energy_J_trapezoid" and out["format"] == "intel-power-gadget-csv":
        same(out["details"]["energy_j_trapezoid"]["package-0"], value, where)
    else:
        same(TOP[key](out), value, where)


def device_mean(out: dict[str, Any]) -> float:
    known = [d for d in out["devices"] if d["mean_w"] is not None]
    assert len(known) == 1
    return known[0]["mean_w"]


def snapshot(out: dict[str, Any], step: int) -> dict[str, Any]:
    found = next(s for s in out["details"]["snapshots"] if s["step"] == step)
    return found | {"name": found["stage_id"]}


def with_interval(name: str, key: str, value: dict[str, float]) -> None:
    if key == "energy_J_per_gpu_if_interval_2s":
        same(read(name, 2.0)["energy_j"], value, key)
        return
    for seconds, joules in value.items():
        same(read(name, float(seconds))["total_energy_j"], joules, f"{key}.{seconds}")


def test_summary_of_the_source_within_a_percent() -> None:
    """15 ships its tool's own summary, by its own rule (left hold): the energies agree within 1 %."""
    entry = next(e for e in INDEX if e["file"].startswith("15_"))
    ours, theirs = read(entry["file"]), entry["expected"]["own_summary_of_the_source"]
    for key in ("0", "1"):
        assert ours["energy_j"][key] == pytest.approx(theirs[f"ENERGY/{key}"], rel=0.01)
    assert ours["duration_s"] == pytest.approx(theirs["TIME/ALL"], rel=1e-3)
