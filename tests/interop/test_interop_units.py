"""Faults that other trackers' output had, by number.

44: NVML's millijoules given out as joules. 250 W for 4 s are 1000 J in every export.
63: columns that moved or vanished with the hardware. Every run of a format has the same header.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import naive
import polars as pl
import pytest
from huggingface_hub import ModelCard
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from kdwatch.interop.export.textfile import follow
from kdwatch.interop.export.trackers import TRACKERS
from kdwatch.interop.exporting import BINARY_FORMATS, TEXT_FORMATS, Exporter, ExportOptions
from kdwatch.rundir.paths import runs_dir
from kdwatch.rundir.writer import RunWriter

JOULES = 1000.0
KWH = JOULES / 3.6e6
G_PER_KWH = 360.0
GRAMS = 0.1
"""1000 J are 1/3600 kWh; at 360 g/kWh that is 0.1 g."""
TOKENS = 500


BOARD: dict[str, Any] = {
    "key": "g0", "id": "GPU-0", "name": "NVIDIA A100", "kind": "gpu", "scope": "gpu", "source": "counter",
    "index": 0, "wrap_j": None, "limit_w": 400.0, "average_window_s": 0.0, "systematic": 0.05, "details": {},
    "stream": "all",
}  # fmt: skip
PACKAGE = {**BOARD, "key": "cpu0", "id": "rapl:package-0", "name": "package-0", "kind": "cpu", "scope": "package"}


def record(number: int, device: dict[str, Any], unit: float = 1.0) -> Path:
    """A device at 250 W; one stage from 0 to 4 s, the whole of the run. `unit`: joules in what is taken for one."""
    manifest = {
        "name": "units",
        "regime": "kd",
        "clock": {"monotonic_origin": 0.0, "wall_origin": 1_767_760_000.0, "boottime_origin": 0.0},
        "created_at": "2026-01-07T04:26:40Z",
        "stages": [{"name": "teacher", "kind": "teacher"}],
        "devices": [device],
    }
    writer = RunWriter.create(runs_dir() / f"20260107-042640-units-000{number}", manifest)
    writer.event("run_started", 0.0)
    writer.open_stream("all", [f"{device['key']}_j", f"{device['key']}_w"])
    writer.event("stage_started", 0.0, stage="teacher")
    for step in range(41):
        writer.sample("all", step / 10, [250.0 * step / 10 * unit, 250.0 * unit])
    writer.event("progress", 4.0, stage="teacher", tokens=TOKENS)
    writer.event("stage_ended", 4.0, stage="teacher", status="completed", exit_code=0)
    writer.event("run_ended", 4.0, status="completed", exit_code=0)
    writer.close()
    return writer.path


@pytest.fixture
def run() -> Path:
    """One board."""
    return record(1, BOARD)


@pytest.fixture
def export(run: Path) -> Exporter:
    return Exporter(run, ExportOptions(g_per_kwh=G_PER_KWH))


def row(text: str) -> dict[str, str]:
    """The first row of a CSV text."""
    return next(csv.DictReader(io.StringIO(text)))


def test_fault_44_codecarbon_has_kwh_kilograms_and_watts(export: Exporter) -> None:
    found = row(export.text("codecarbon"))
    assert float(found["gpu_energy"]) == float(found["energy_consumed"]) == pytest.approx(KWH)
    assert float(found["emissions"]) == pytest.approx(GRAMS / 1000)
    assert float(found["gpu_power"]) == pytest.approx(250.0) and float(found["duration"]) == pytest.approx(4.0)


@pytest.mark.parametrize(("form", "parse"), [("openmetrics", openmetrics), ("prometheus", prometheus)])
def test_fault_44_metrics_are_in_base_units(export: Exporter, form: str, parse: Any) -> None:
    found = {family.name: family.samples[0].value for family in parse(export.text(form))}
    assert found["kdwatch_stage_energy_joules"] == found["kdwatch_run_energy_joules"] == pytest.approx(JOULES)
    assert found["kdwatch_run_co2e_grams"] == pytest.approx(GRAMS)


def test_fault_44_the_model_card_has_grams(export: Exporter) -> None:
    block = ModelCard(export.text("modelcard")).data.to_dict()["co2_eq_emissions"]
    assert block["emissions"] == pytest.approx(GRAMS, abs=1e-3)


def test_fault_44_sci_has_kwh_and_grams_for_each_token(export: Exporter) -> None:
    found = row(export.text("sci"))
    assert float(found["e_kwh"]) == pytest.approx(KWH)
    assert float(found["sci_g_per_r"]) == pytest.approx(GRAMS / TOKENS)


def test_fault_44_tables_have_joules_and_watts(export: Exporter, tmp_path: Path) -> None:
    stage = row(export.text("stages-csv"))
    assert float(stage["gpu_j"]) == float(stage["energy_j"]) == pytest.approx(JOULES)
    samples = list(csv.DictReader(io.StringIO(export.text("samples-csv"))))
    assert float(samples[-1]["counter_j"]) - float(samples[0]["counter_j"]) == pytest.approx(JOULES)
    assert {float(s["power_w"]) for s in samples} == {250.0}
    for form in BINARY_FORMATS:
        export.binary(form, tmp_path / form)
    assert pl.read_parquet(tmp_path / "stages-parquet")["gpu_j"].to_list() == pytest.approx([JOULES])
    counter = pl.read_parquet(tmp_path / "samples-parquet").sort("t_s")["counter_j"]
    assert counter[-1] - counter[0] == pytest.approx(JOULES)


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_fault_44_what_people_read_has_the_unit_beside_it(export: Exporter, form: str) -> None:
    text = re.sub(r"<[^>]+>|\s+", " ", export.text(form))
    assert re.search(r"\b1(\.00?)? kJ\b|\b1000(\.0)? J\b", text), text


def test_fault_44_a_textfile_has_joules(run: Path, tmp_path: Path) -> None:
    follow(run, tmp_path / "k.prom", 0.1, lambda value: value, pytest.fail, lambda seconds: None)
    found = {f.name: f.samples[0].value for f in prometheus((tmp_path / "k.prom").read_text())}
    assert found["kdwatch_stage_energy_joules"] == pytest.approx(JOULES)


def fakes(seen: dict[str, float]) -> dict[str, Any]:
    """The modules of four trackers, each with the functions that we call; all they are told goes into `seen`."""
    session = SimpleNamespace(log=lambda values, step: seen.update(values), finish=lambda: None)
    board = SimpleNamespace(add_scalar=lambda key, value, step: seen.update({key: value}), close=lambda: None)
    return {
        "wandb": SimpleNamespace(init=lambda **_: session),
        "trackio": SimpleNamespace(init=lambda **_: session),
        "mlflow": SimpleNamespace(
            start_run=lambda run_name: nullcontext(),
            set_tags=lambda tags: None,
            log_metrics=lambda values, step: seen.update(values),
        ),
        "tensorboard": SimpleNamespace(summary=SimpleNamespace(Writer=lambda folder: board)),
    }


@pytest.mark.parametrize("name", list(TRACKERS))
def test_fault_44_trackers_get_joules(export: Exporter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, float] = {}
    fake = fakes(seen)[name]
    monkeypatch.setitem(sys.modules, name, fake)
    if name == "tensorboard":
        monkeypatch.setitem(sys.modules, "tensorboard.summary", fake.summary)
    TRACKERS[name](export.report, None)
    energies = [value for key, value in seen.items() if key.endswith(("teacher/gpu_j", "teacher/energy_j", "/total_j"))]
    assert energies == pytest.approx([JOULES] * 3)


@pytest.mark.fault(44)
def test_fault_44_each_check_refuses_millijoules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run with NVML's millijoules taken for joules: none of the checks above passes."""
    wrong = record(9, {**BOARD, "limit_w": None}, unit=naive.millijoules_as_joules(1.0))
    export = Exporter(wrong, ExportOptions(g_per_kwh=G_PER_KWH))
    for check in (
        lambda: test_fault_44_codecarbon_has_kwh_kilograms_and_watts(export),
        lambda: test_fault_44_metrics_are_in_base_units(export, "openmetrics", openmetrics),
        lambda: test_fault_44_metrics_are_in_base_units(export, "prometheus", prometheus),
        lambda: test_fault_44_the_model_card_has_grams(export),
        lambda: test_fault_44_sci_has_kwh_and_grams_for_each_token(export),
        lambda: test_fault_44_tables_have_joules_and_watts(export, tmp_path),
        lambda: test_fault_44_what_people_read_has_the_unit_beside_it(export, "markdown"),
        lambda: test_fault_44_what_people_read_has_the_unit_beside_it(export, "html"),
        lambda: test_fault_44_a_textfile_has_joules(wrong, tmp_path),
        *(lambda name=name: test_fault_44_trackers_get_joules(export, name, monkeypatch) for name in TRACKERS),
    ):
        with pytest.raises((AssertionError, ValueError, LookupError)):  # a wrong number, or none at all
            check()


def test_fault_44_no_export_is_left_out() -> None:
    """A new format needs its check above."""
    assert set(TEXT_FORMATS) == {
        "codecarbon", "openmetrics", "prometheus", "modelcard", "sci", "samples-csv", "stages-csv", "markdown", "html",
    }  # fmt: skip
    assert set(BINARY_FORMATS) == {"samples-parquet", "stages-parquet"}


@pytest.mark.parametrize("form", ["codecarbon", "stages-csv", "samples-csv", "sci"])
def test_fault_63_runs_with_and_without_a_gpu_make_one_table(form: str) -> None:
    """Three runs appended to one file, the second without a GPU: one header, and each value in its column."""
    made = [record(number, device) for number, device in enumerate((BOARD, PACKAGE, BOARD))]
    assert {json.loads((run / "manifest.json").read_text())["schema"] for run in made} == {1}
    texts = [Exporter(run, ExportOptions(g_per_kwh=G_PER_KWH)).text(form) for run in made]
    headers = {text.splitlines()[0] for text in texts}
    assert len(headers) == 1 and all(text.endswith("\n") for text in texts)
    joined = texts[0] + "".join(text.partition("\n")[2] for text in texts[1:])
    rows = list(csv.DictReader(io.StringIO(joined), strict=True))
    assert len(rows) == sum(text.count("\n") - 1 for text in texts)
    assert all(None not in row and None not in row.values() for row in rows)
    if form == "stages-csv":
        assert [(row["gpu_j"] or None, row["cpu_j"] or None) for row in rows][0::2] == [(rows[0]["gpu_j"], None)] * 2
        assert rows[1]["gpu_j"] == "" and float(rows[1]["cpu_j"]) == pytest.approx(JOULES)
