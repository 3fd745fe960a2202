"""Run directories from imports: report and replay give what the import said, with where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from kdwatch.interop.importing import check_options
from kdwatch.ledger.report import build_report
from kdwatch.pipeline.recipe_model import Kind
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import runs_dir

LOGS = Path(__file__).parents[1] / "data" / "logs"
INDEX = json.loads((LOGS / "index.json").read_text(encoding="utf-8"))
WITHOUT_RUN = {
    "06": "error", "07": "no time", "18": "no time", "20": "error", "21": "error", "51": "one scrape", "52": "no time",
}  # fmt: skip


@pytest.mark.parametrize("name", [entry["file"] for entry in INDEX])
def test_report_of_the_run_is_what_the_import_said(name: str, bring) -> None:
    result = bring(LOGS / name)
    entry = result.files[0]
    if name[:2] in WITHOUT_RUN:
        assert result.run is None and (entry["error"] or entry["duration_s"] is None)
        assert not list(runs_dir().iterdir()) if runs_dir().exists() else True
        return
    report = build_report(result.run)
    assert report["status"] == "imported"
    assert {device["source"] for device in report["devices"]} <= {"imported"}
    assert {stage["kind"] for stage in report["stages"]} <= set(get_args(Kind))  # those of docs/recipes.md
    manifest = json.loads((result.run / "manifest.json").read_text())
    assert all(device["details"]["file"] == str(LOGS / name) for device in manifest["devices"])
    if entry["total_energy_j"] is None:
        assert report["total_j"] is None
        return
    assert report["total_j"] == pytest.approx(entry["total_energy_j"], rel=1e-5)
    stages = [stage["energy_j"]["total"] for stage in report["stages"] if stage["energy_j"]["total"] is not None]
    assert sum(stages) + report["unattributed_j"] == pytest.approx(entry["total_energy_j"], rel=1e-5)
    if entry["n_samples"] and entry["gap_seconds"] is not None:
        peaks = {d["id"].rpartition(":")[2]: d["peak_w"] for s in report["stages"] for d in s["devices"]}
        assert peaks == {key: pytest.approx(value, abs=1e-3) for key, value in entry["peak_w"].items()}
    if len(report["stages"]) > 1:
        real_times = "laid_end_to_end" not in {w["code"] for w in report["warnings"]}
        theirs_in_order = sorted(entry["stages"], key=lambda s: (s["start"] or 0) if real_times else 0)
        for ours, theirs in zip(report["stages"], theirs_in_order, strict=True):
            assert ours["energy_j"]["total"] == pytest.approx(theirs["total_j"], rel=1e-3, abs=0.05)


def test_start_is_utc_where_the_file_has_a_zone_and_unknown_where_not(bring, logs: Path) -> None:
    with_zone = build_report(bring(logs / "10_nvsmi_wrapper_iso_tz_day_rollover_crlf.csv").run)
    assert with_zone["started_at"] == "2025-10-13T23:56:29Z"
    without = build_report(bring(logs / "05_nvsmi_two_loggers_interleaved_mixed_gpus.csv").run)
    assert without["started_at"] is None
    assert "no_zone" in {w["code"] for w in without["warnings"]}
    told = build_report(bring(logs / "05_nvsmi_two_loggers_interleaved_mixed_gpus.csv", tz="America/New_York").run)
    assert told["started_at"] == "2026-03-28T11:18:47Z"  # 07:18:47 in summer time, UTC-4


def test_zoned_and_unzoned_files_in_one_run_need_a_zone(bring, logs: Path) -> None:
    both = [logs / "34_harness_power_log_many_gaps.csv", logs / "12_jetson_milliwatt_labelled_as_w.csv"]
    with pytest.raises(UsageProblem, match="--tz"):
        bring(*both)
    assert bring(*both, tz="UTC").run is not None


def test_trainer_log_gives_its_tokens_to_the_power_log_beside_it(bring, logs: Path, tmp_path: Path) -> None:
    steps = [
        {"step": n, "loss": 2.0 - n / 100, "num_tokens": 1000 * n, "elapsed_time": f"0:00:{n:02d}"}
        for n in range(1, 31)
    ]
    log = tmp_path / "trainer_log.jsonl"
    log.write_text("".join(json.dumps(step) + "\n" for step in steps))
    result = bring(logs / "35_harness_power_log_clean_start.csv", log)
    report = build_report(result.run)
    (stage,) = report["stages"]
    assert (stage["tokens"], stage["step"], stage["kind"]) == (30_000, 30, "student")
    assert stage["j_per_token"] == pytest.approx(51086.3576 / 30_000, rel=1e-3)


def test_backups_of_codecarbon_count_each_run_once(bring, logs: Path, tmp_path: Path) -> None:
    """The .bak holds one run of its own and, with fewer digits, one that the newer file holds too."""
    lines = (logs / "24_codecarbon_2_7_1_many_projects.csv").read_text().splitlines()
    shared = lines[2].split(",")
    shared[4] = f"{float(shared[4]):.8f}"
    (tmp_path / "emissions.csv.bak").write_text("\n".join([lines[0], lines[1], ",".join(shared)]) + "\n")
    (tmp_path / "emissions.csv").write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    report = build_report(bring(tmp_path / "emissions.csv", tmp_path / "emissions.csv.bak").run)
    assert len(report["stages"]) == 9
    assert report["total_kwh"] == pytest.approx(0.358649477353904, rel=1e-6)  # the index's sum over runs
    assert "repeated_runs" in {w["code"] for w in report["warnings"]}


def test_modelled_energy_is_not_shown_as_measured(bring, logs: Path) -> None:
    report = build_report(bring(logs / "26_codecarbon_3_2_1_fresh_header.csv").run)
    energy = report["stages"][0]["energy_j"]
    assert energy["measured"] == pytest.approx(0.054554322254546 * 3.6e6, rel=1e-6)  # gpu_kWh of the index
    assert energy["estimated"] == pytest.approx((0.002159120874594 + 0.004913345122604) * 3.6e6, rel=1e-6)


def test_import_that_fails_leaves_no_run(bring, logs: Path, monkeypatch) -> None:
    import kdwatch.interop.to_run as to_run

    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(to_run, "windows", broken)
    with pytest.raises(UsageProblem, match="No space left"):
        bring(logs / "35_harness_power_log_clean_start.csv")
    assert list(runs_dir().iterdir()) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((None, 0.0, None), "--interval"),
        ((None, float("nan"), None), "--interval"),
        ((None, None, "Europe/Pari"), "Europe/Paris"),
        (("nvidia", None, None), "unknown; one of"),
    ],
)
def test_bad_options_are_one_clear_line(options, text: str) -> None:
    with pytest.raises(UsageProblem, match=text) as caught:
        check_options(*options)
    assert "\n" not in str(caught.value)


def test_one_gpu_in_two_files_at_once_is_said(bring, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        rows = "".join(f"2026-01-03T15:36:0{n}Z,GPU-1,100\n" for n in range(3))
        (tmp_path / name).write_text("timestamp,uuid,power_w\n" + rows)
    report = build_report(bring(tmp_path / "a.csv", tmp_path / "b.csv").run)
    assert "same_device_twice" in {w["code"] for w in report["warnings"]}
    assert report["total_j"] == pytest.approx(400.0)


def test_power_log_beside_a_harness_stage_is_drawn_and_not_counted_twice(bring, tmp_path: Path) -> None:
    """35 is the power log of the stage whose snapshots 39 holds: energy from the snapshot, watts from the log."""
    for path in (LOGS / "39_harness_snapshots_alpha08").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "power_log.csv").write_bytes((LOGS / "35_harness_power_log_clean_start.csv").read_bytes())
    report = build_report(bring(tmp_path).run)
    (stage,) = report["stages"]
    assert report["total_j"] == pytest.approx(145048.09370359924, rel=1e-6)  # step 400 of the index
    assert stage["devices"][0]["peak_w"] == pytest.approx(367.343)  # max_W of 35


def test_what_another_file_measures_is_unknown_in_a_stage_and_not_zero(bring, logs: Path) -> None:
    """CodeCarbon's CPU says nothing about the time of the GPU log, nor either about that of a trainer's log."""
    names = ("05_nvsmi_two_loggers_interleaved_mixed_gpus.csv", "26_codecarbon_3_2_1_fresh_header.csv",
             "65_llamafactory_trainer_log_duplicate_ranks.jsonl")  # fmt: skip
    gpus, tool, trainer = build_report(bring(*(logs / name for name in names)).run)["stages"]
    assert gpus["energy_j"]["gpu"] == pytest.approx(81587.77, rel=1e-4)
    assert gpus["energy_j"]["cpu"] is None and gpus["energy_j"]["ram_estimated"] is None
    assert tool["energy_j"]["cpu"] == pytest.approx(7772.8, rel=1e-4)
    assert len(tool["devices"]) == 3
    assert trainer["energy_j"]["total"] is None and trainer["devices"] == []


def test_more_stages_than_a_run_can_hold_make_no_run(bring, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdwatch.interop import importing

    monkeypatch.setattr(importing, "MOST_STAGES", 1)
    made = bring(logs / "24_codecarbon_2_7_1_many_projects.csv")
    assert made.run is None and made.files[0]["total_energy_j"] > 0
    assert any("no run made: " in note and "stages are too many" in note for note in made.notes)
