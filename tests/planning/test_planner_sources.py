"""Observations from CSV files and units: what is read, what is left out with a reason, what is refused in one line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kdwatch.rundir.errors import UsageProblem
from planners import PlanRequest, load, plan
from planners.paper import reuse_range, table, token_denominator_millions
from planners.quantities import UnitRequired, carbon_kg, energy_kwh, from_kwh, g_per_kwh_from_lb_per_mwh
from planners.rowcheck import check_energy_and_quality
from planners.schema import COLUMNS, candidate_id, regime_of, size_label

STUDY_CSV = Path(__file__).parents[1] / "data" / "paper" / "paper_frontier.csv"


def csv(tmp_path: Path, text: str, name: str = "mine.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_table_is_the_study_s_cell_by_cell() -> None:
    """tests/data/paper holds the published cells; an empty one must be null, a known one equal."""
    import polars as pl

    cells = pl.read_csv(STUDY_CSV)
    ours = table()
    for column in cells.columns:
        for given, found in zip(cells[column].to_list(), ours[column].to_list(), strict=True):
            if column == "total_kwh" and given is None:
                assert found == pytest.approx(16.65), "a sum of four stages, marked derived"
            else:
                assert given == found
    assert token_denominator_millions() == pytest.approx(30.0, abs=0.03)
    assert reuse_range("kd", 7) == (5, 6) and reuse_range("sft", 7) is None


def test_the_study_s_csv_read_as_a_file_gives_the_same_plan() -> None:
    from_file = plan(PlanRequest(budget_kwh=20), load([STUDY_CSV]))
    assert from_file.recommendation is not None and from_file.recommendation.id == "SFT-7B"
    assert from_file.slack_kwh == pytest.approx(0.5)


def test_bad_rows_are_left_out_with_their_reason_and_line(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "regime,student_params_b,total_kwh,quality\nsft,1,nan,0.7\nsft,1,-1,0.7\nsft,1,0,0.7\nkd,1,7,1.4\nsft,2,5,-0.1\nsft,3,,0.5\n",
    )
    found = load([path])
    assert found.table["total_kwh"].to_list() == [7.0]
    rejected = [note.text for note in found.notes if note.code == "row_rejected"]
    assert [text.split(":")[1] for text in rejected] == ["2", "3", "4", "6", "7"]
    assert [note.text for note in found.notes if note.code == "row_note"] == [
        "mine.csv:5: q above 1 is legal (student beats teacher)"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("time,power\n1,2\n", "is no frontier table"),
        ("regime,quality\nsft,0.5\n", "needs regime and total_kwh"),
        ("regime,total_kwh\nrl,5\n", "mine.csv:2: regime 'rl' is unknown"),
        ("regime,total_kwh\nsft,7kWh\n", "mine.csv:2: total_kwh: '7kWh' is not a number"),
        ("regime,total_kwh,scope\nsft,7,all\n", "scope 'all' is unknown"),
        ("regime,total_kwh,repeats\nsft,7,1.5\n", "whole number"),
        ("regime,total_kwh\n", "no usable row"),
        ("regime,total_kwh\nsft,nan\n", "no usable row: mine.csv:2: energy is not a finite number"),
        ("regime,total_kwh,preprocess_kwh\nsft,1,5\n", "more than the total"),
        ("regime,total_kwh\nsft,1e308\n", "more than any run can take"),
        ("regime,total_kwh,basis\nsft,1,guess\n", "basis 'guess' is unknown"),
        ("regime,total_kwh,gpu_hours\nsft,1,-2\n", "gpu_hours is -2; give a number of at least 0"),
        ("regime,total_kwh,total_sd_kwh\nsft,1,nan\n", "total_sd_kwh is nan"),
        ("regime,total_kwh,j_per_served_token\nsft,1,inf\n", "j_per_served_token is inf"),
        ("regime,total_kwh,teacher_batch\nkd,1,0\n", "teacher_batch is 0; give a number above 0"),
        ("# regime,total_kwh\n", "mine.csv"),
        ("regime;total_kwh\nsft;7,5\n", "mine.csv:2: total_kwh: '7,5' is not a number"),
        ("regime,total_kwh,hyperparameters\nsft,1,{bad\n", "is no JSON object"),
        ('regime,total_kwh,hyperparameters\nsft,1,"{""a"": [1]}"\n', "is no JSON object"),
    ],
)
def test_foreign_and_broken_files_are_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        load([csv(tmp_path, text)])
    assert words in str(problem.value) and "\n" not in str(problem.value)


@pytest.mark.parametrize("mark", [",", ";", "\t", ", "])
def test_cells_are_separated_as_the_header_is(tmp_path: Path, mark: str) -> None:
    lines = ("regime", "student_params_b", "total_kwh", "quality"), ("kd", "1", "16.9", "0.7")
    path = csv(tmp_path, "\ufeff" + "\r\n".join(mark.join(line) for line in lines) + "\r\n")
    row = load([path]).table.row(0, named=True)
    assert (row["id"], row["total_kwh"], row["quality"]) == ("KD-1B", 16.9, 0.7)


def test_plain_sft_has_no_teacher_whatever_the_table_says_of_one(tmp_path: Path) -> None:
    """Its energy per student is the same at every N; a distilled one's is unknown without the teacher's share."""
    path = csv(tmp_path, "regime,student_params_b,total_kwh,quality\nsft,1,7,0.69\nkd,1,16.9,0.7\n")
    result = plan(PlanRequest(reuse_n=20), load([path]))
    assert result.recommendation is not None
    assert (result.recommendation.id, result.recommendation.predicted.per_student_kwh) == ("SFT-1B", 7.0)
    assert result.rejected[0]["id"] == "KD-1B" and "unknown" in result.rejected[0]["why"]


def test_missing_files_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"nowhere\.csv"):
        load([tmp_path / "nowhere.csv"])
    binary = tmp_path / "x.csv"
    binary.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(UsageProblem):
        load([binary])


def test_escape_codes_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = csv(tmp_path, "id,regime,total_kwh,quality\n\x1b[31mred\x1b[0m,sft,5,0.5\n")
    name = load([path]).table["id"][0]
    assert "\x1b" not in name


def test_stage_columns_alone_give_a_derived_total(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "regime,student_params_b,preprocess_kwh,teacher_kwh,student_kwh,eval_kwh,quality\nKD,1,0.37,11,5.2,0.33,0.7\n",
    )
    row = load([path]).table.row(0, named=True)
    assert row["total_kwh"] == pytest.approx(16.9) and row["derived"] and row["id"] == "KD-1B"


def test_a_file_cannot_pass_for_the_study(tmp_path: Path) -> None:
    path = csv(tmp_path, "regime,student_params_b,total_kwh,quality,source\nsft,1,3,0.9,paper\nkd,1,4,0.8,team B\n")
    assert load([path]).table["source"].to_list() == ["mine.csv", "team B"]


def test_own_rows_named_like_the_study_s_are_kept_apart(tmp_path: Path) -> None:
    path = csv(tmp_path, "regime,student_params_b,total_kwh,quality,scope\nsft,7,3,0.95,gpu+cpu_estimated\n")
    result = plan(PlanRequest(budget_kwh=20), load([path, "paper"]))
    assert result.recommendation is not None
    assert (result.recommendation.id, result.recommendation.source) == ("SFT-7B-2", "mine.csv")
    assert {c["id"]: c["per_student_kwh"] for c in result.candidates}["SFT-7B"] == 19.5


@pytest.mark.parametrize(
    ("text", "kwh"),
    [
        ("7 kWh", 7.0),
        ("7000Wh", 7.0),
        ("25.2 MJ", 7.0),
        ("2.52e7 J", 7.0),
        ("0kWh", 0.0),
        ("0.0 MJ", 0.0),
        ("72MJ", 20.0),
    ],
)
def test_energies_with_their_unit(text: str, kwh: float) -> None:
    assert energy_kwh(text) == pytest.approx(kwh)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("7", "no unit"),
        ("20kW", "is a power"),
        ("500 W", "500Wh"),
        ("-3kWh", "negative"),
        ("nan", "no energy"),
        ("kWh", "no energy"),
        ("7 miles", "no energy"),
        ("inf kWh", "no energy"),
    ],
)
def test_energies_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        energy_kwh(text)


def test_a_bare_number_asks_for_its_unit() -> None:
    with pytest.raises(UnitRequired) as problem:
        energy_kwh("20", "--budget")
    assert problem.value.code == "unit_required" and str(problem.value).startswith("--budget: '20'")


def test_masses_and_conversions() -> None:
    assert [carbon_kg(text) for text in ("5kg", "500 g", "1t", "2 kgCO2e")] == pytest.approx([5, 0.5, 1000, 2])
    for bad in ("5", "5 kWh", "-5kg", "nan kg"):
        with pytest.raises(UsageProblem):
            carbon_kg(bad)
    assert g_per_kwh_from_lb_per_mwh(713.976) == pytest.approx(323.854, abs=1e-3)
    assert from_kwh(7.0, 30e6)["j_per_token"] == pytest.approx(0.84)


def test_names_of_regimes_and_sizes() -> None:
    assert [regime_of(name) for name in ("SFT", "KD", "SynSFT", "synthetic-sft", "nothing")] == [
        "sft",
        "kd",
        "synthetic_sft",
        "synthetic_sft",
        None,
    ]
    assert [size_label(size) for size in (13, 1.485, 0.135, 0.000101)] == ["13B", "1.49B", "135M", "101k"]
    assert candidate_id("synthetic_sft", 13) == "Syn-13B"


def test_row_verdicts() -> None:
    assert not check_energy_and_quality(math.nan, 0.7).accepted
    assert not check_energy_and_quality(None, 0.7).accepted
    assert check_energy_and_quality(7, None) == check_energy_and_quality(8, 0.5)
    assert check_energy_and_quality(7, 1.4).note


def test_every_column_is_described_with_its_unit() -> None:
    for name, (_, text) in COLUMNS.items():
        assert text
        if name.endswith("_kwh"):
            assert "kWh" in text
