"""Variants of power CSVs that no published sample shows; each value follows from the rows by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from interop_helpers import codes

TICKS = [(0, 100.0), (1, 200.0), (2, 100.0)]
"""Trapezoid: 150 + 150 = 300 J in 2 s."""


def rows(template: str, ticks=TICKS) -> str:
    return "".join(template.format(s=s, w=w) + "\n" for s, w in ticks)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("units in cells", "timestamp, power.draw [W]\n" + rows("2026/01/03 15:36:{s:02d}.000, {w:.2f} W")),
        ("semicolons and decimal commas", "timestamp;power (W)\n" + rows("2026-01-03T15:36:{s:02d};{w:.0f},0")),
        ("quoted decimal commas", 'timestamp,power (W)\n' + rows('2026-01-03T15:36:{s:02d},"{w:.0f},0"')),
        ("tabs", "time\tgpu_power_w\n" + rows("2026-01-03 15:36:{s:02d}\t{w}")),
        ("pipes", "time|gpu_power_w\n" + rows("2026-01-03 15:36:{s:02d}|{w}")),
        ("AM and PM", "timestamp,power_w\n" + rows("1/3/2026 3:36:{s:02d} PM,{w}")),
        ("month names", "timestamp,power_w\n" + rows("Sat Jan  3 15:36:{s:02d} 2026,{w}")),
        ("day and month name", "timestamp,power_w\n" + rows("03 Jan 2026 15:36:{s:02d},{w}")),
        ("date and time columns", "date,time,power_w\n" + rows("2026-01-03,15:36:{s:02d},{w}")),
        ("times of day over midnight", "time,power_w\n23:59:59,100\n00:00:00,200\n00:00:01,100\n"),
        ("milliseconds", "timestamp_ms,power_w\n" + rows("{s}000,{w}")),
        ("epoch in milliseconds", "timestamp,power_w\n" + rows("176776000{s}000,{w}")),
        ("epoch in nanoseconds", "timestamp,power_w\n" + rows("176776000{s}000000000,{w}")),
        ("elapsed seconds", "elapsed_s,power_w\n" + rows("{s}.0,{w}")),
        ("milliwatts in the header", "timestamp,power_mw\n" + rows("2026-01-03T15:36:{s:02d}Z,{w:.0f}000")),
        ("kilowatts in the header", "timestamp,power (kW)\n" +
            rows("2026-01-03T15:36:{s:02d}Z,{w:.0e}").replace("e+02", "e-01")),
        ("CRLF", ("timestamp,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,{w}")).replace("\n", "\r\n")),
        ("byte order mark", "\ufefftimestamp,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,{w}")),
        ("out of order", "timestamp,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,{w}", [TICKS[2], TICKS[0], TICKS[1]])),
        ("blank lines", "timestamp,power_w\n\n" + rows("2026-01-03T15:36:{s:02d}Z,{w}\n")),
        ("header again", "timestamp,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,{w}").replace(
            "2026-01-03T15:36:01", "timestamp,power_w\n2026-01-03T15:36:01")),
        ("empty power.draw", "timestamp,power.draw,power.draw.instant\n" + rows("2026-01-03T15:36:{s:02d}Z,[N/A],{w}")),
        ("limit beside", "timestamp,power.limit [W],power.draw [W],enforced.power.limit [W]\n"
            + rows("2026-01-03T15:36:{s:02d}Z,700,{w},700")),
        ("no header, watts in the cell", rows("2026/01/03 15:36:{s:02d}.000, {w:.2f} W")),
        ("banner before", "Sat Jan  3 15:36:53 2026\n+-----+\n| NVIDIA-SMI 550.1   Driver Version: 550.1 |\n+-----+\n"
            "timestamp, power.draw [W]\n" + rows("2026/01/03 15:36:{s:02d}.000, {w:.2f} W")),
        ("NUL bytes", ("timestamp,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,{w}")).replace("200", "\0" * 3 + "200")),
    ],
)  # fmt: skip
def test_one_device(read, name: str, text: str) -> None:
    out = read(text)
    assert out["error"] is None, out
    assert out["total_energy_j"] == pytest.approx(300.0, rel=1e-9), name
    assert out["duration_s"] == pytest.approx(2.0) and out["max_w"] == 200.0 and out["n_devices"] == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "cp1252"])
def test_encodings(read, encoding: str) -> None:
    text = (
        "timestamp,power_w,note\n" + rows("2026-01-03T15:36:{s:02d}Z,{w},é")
        if encoding == "cp1252"
        else ("timestamp,power_w,note\n" + rows("2026-01-03T15:36:{s:02d}Z,{w},ok"))
    )
    assert read(text.encode(encoding))["total_energy_j"] == pytest.approx(300.0)


MISSING = ["", "N/A", "[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "[GPU requires reset]", "-",
           "nan",
           "-1", "4294967295", "4294967.295", "inf", "ERR!", "[Insufficient Permissions]"]  # fmt: skip


@pytest.mark.parametrize("cell", MISSING)
def test_missing_is_missing_and_never_zero(read, cell: str) -> None:
    """Without the middle row: 2 s at 100 W."""
    text = f"timestamp,power.draw\n2026-01-03T15:36:00Z,100\n2026-01-03T15:36:01Z,{cell}\n2026-01-03T15:36:02Z,100\n"
    out = read(text)
    assert out["n_samples"] == 2 and out["total_energy_j"] == pytest.approx(200.0)


def test_driver_errors_in_between_are_counted_as_rows_without_a_reading(read) -> None:
    text = (
        "timestamp, index, power.draw [W]\n2026/01/03 15:36:00.000, 0, 100.00 W\n"
        "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.\n"
        "2026/01/03 15:36:02.000, 0, 100.00 W\n"
    )
    out = read(text)
    assert out["total_energy_j"] == pytest.approx(200.0) and out["rows"] == 3
    assert "driver_errors" in codes(out)


@pytest.mark.parametrize(
    ("header", "cells", "keys"),
    [
        ("index,uuid", [("0", "GPU-a"), ("1", "GPU-b")], {"GPU-a", "GPU-b"}),
        ("index,pci.bus_id", [("0", "0000:01:00.0"), ("0", "0000:02:00.0")], {"0000:01:00.0", "0000:02:00.0"}),
        ("gpu,index", [("3", "0"), ("4", "0")], {"3", "4"}),
        ("gpu_id,name", [("0", "A"), ("1", "B")], {"0", "1"}),
        ("hostname,gpu", [("n1", "0"), ("n2", "0")], {"n1/0", "n2/0"}),
        ("name,driver", [("A100", "1"), ("H100", "1")], {"A100", "H100"}),
    ],
)  # fmt: skip
def test_the_key_is_the_candidate_with_most_values(read, header: str, cells, keys: set[str]) -> None:
    text = f"timestamp,{header},power_w\n"
    for second in range(3):
        for number, (a, b) in enumerate(cells):
            text += f"2026-01-03T15:36:{second:02d}Z,{a},{b},{100 * (number + 1)}\n"
    out = read(text)
    assert set(out["energy_j"]) == keys
    assert sorted(out["energy_j"].values()) == pytest.approx([200.0, 400.0])


def test_devices_that_cannot_be_told_apart_have_no_energy(read) -> None:
    """Four GPUs written one after the other every second and no index: which row is whose cannot be known."""
    text = "timestamp, power.draw [W]\n"
    for second in range(10):
        for gpu in range(4):
            text += f"2026/01/03 15:36:{second:02d}.00{gpu}, {100 + 150 * gpu}.00 W\n"
    out = read(text)
    assert out["total_energy_j"] is None and "devices_indistinct" in codes(out)


def test_wide_layout_leaves_the_total_out(read) -> None:
    text = "timestamp,gpu_0_power_w,gpu_1_power_w,cpu_power_w,total_power_w\n"
    text += rows("176776000{s}.0,{w},50,20,999")
    out = read(text)
    assert out["energy_j"] == {"0": pytest.approx(300.0), "1": pytest.approx(100.0), "cpu": pytest.approx(40.0)}
    assert out["total_energy_j"] == pytest.approx(440.0)
    assert "total_differs" in codes(out)


def test_decimal_commas_in_every_column(read) -> None:
    out = read("timestamp,GPU0_W,GPU1_W\n" + rows("2026-01-03 15:36:{s:02d},{w:.0f},5,50,5"))
    assert out["energy_j"] == {"0": pytest.approx(301.0), "1": pytest.approx(101.0)}
    assert "decimal_comma" in codes(out)


@pytest.mark.parametrize(("values", "scaled"), [([30000, 40000, 30000], True), ([5610.25, 5620.5, 5610.25], False)])
def test_milliwatts_under_a_watt_header(read, values: list[float], scaled: bool) -> None:
    """Whole numbers of tens of thousands are milliwatts; 5.6 kW with fractions may be eight GPUs in one column."""
    text = "timestamp,gpu_power_w\n" + "".join(f"2026-01-03T15:36:0{n}Z,{v}\n" for n, v in enumerate(values))
    out = read(text)
    labelled = sum((a + b) / 2 for a, b in pairwise(values))
    assert out["total_energy_j"] == pytest.approx(labelled / 1000 if scaled else labelled)
    assert ("milliwatts" if scaled else "implausible_power") in codes(out)


def test_counter_that_wrapped_is_recognised(read) -> None:
    """A 65536 J counter read every 5 s: 130 W become (650 - 65536) / 5 = -12977.2 W at a wrap."""
    text = "timestamp,power_w\n" + "".join(
        f"2026-01-03T15:36:{5 * n:02d}Z,{-12977.2 if n == 4 else 130}\n" for n in range(10)
    )
    out = read(text)
    assert out["details"]["counter_wrap_j"] == 65536 and "counter_wrapped" in codes(out)
    assert out["total_energy_j"] == pytest.approx(130 * 45)


def test_gap_rule_three_medians(read) -> None:
    """Steps of 1 s, one of 3 s (no gap) and one of 3.1 s (a gap), all bridged."""
    times = [0, 1, 2, 3, 6, 7, 8, 11.1, 12.1]
    out = read("t_s,power_w\n" + "".join(f"{t},100\n" for t in times))
    assert (out["n_gaps"], out["gap_seconds"]) == (1, pytest.approx(3.1))
    assert out["total_energy_j"] == pytest.approx(1210.0)
    assert out["devices"][0]["energy_j_excluding_gaps"] == pytest.approx(900.0)


def test_hour_that_clocks_repeat(read) -> None:
    """Berlin, 26 October 2025: 02:59 summer time is one minute before 02:00 winter time. 5 min at 60 W."""
    clock = ["02:58:00", "02:59:00", "02:00:00", "02:01:00", "02:02:00", "02:03:00"]
    text = "timestamp,power_w\n" + "".join(f"2025-10-26 {t},60\n" for t in clock)
    told = read(text, zone="Europe/Berlin")
    assert told["total_energy_j"] == pytest.approx(300 * 60) and told["duration_s"] == 300
    assert "clock_back" in codes(read(text)), "without a zone the import says that it needs one"


def test_day_and_month_that_cannot_be_told_apart_are_said(read) -> None:
    out = read("timestamp,power_w\n03-11-2026 15:13:16,100\n03-11-2026 15:13:17,100\n")
    assert out["total_energy_j"] == pytest.approx(100.0) and "ambiguous_date" in codes(out)
    clear = read("timestamp,power_w\n11/23/2026 15:13:16,100\n11/23/2026 15:13:17,100\n")
    assert "ambiguous_date" not in codes(clear) and clear["total_energy_j"] == pytest.approx(100.0)


def test_time_without_a_unit_that_may_be_milliseconds_is_not_guessed(read) -> None:
    text = "time,power_w\n0,100\n500,100\n1000,100\n"
    out = read(text)
    assert out["total_energy_j"] is None and "time_unit_unknown" in codes(out)
    assert read(text, interval_s=0.5)["total_energy_j"] == pytest.approx(100.0)


def test_columns_named_gpu0_may_be_utilisation(read) -> None:
    text = "timestamp,GPU0,GPU1\n176776000.0,90,80\n176776001.0,95,85\n"
    assert "no unit" in read(text, "log.csv")["error"]
    assert read(text, "power.csv")["error"] is None


def test_torn_last_line_is_left_out(read) -> None:
    out = read("timestamp,index,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,0,{w}") + "2026-01-03T15:36:03Z,0")
    assert out["total_energy_j"] == pytest.approx(300.0)
    assert "torn" in next(w["text"] for w in out["warnings"] if w["code"] == "malformed_rows")


def test_last_number_cut_in_the_middle_is_left_out(read) -> None:
    text = "timestamp,power_w\n" + rows("2026-01-03T15:36:{s:02d}Z,{w:.2f}") + "2026-01-03T15:36:03Z,10"
    out = read(text)
    assert out["total_energy_j"] == pytest.approx(300.0) and "torn_value" in codes(out)


def test_amd_smi(read) -> None:
    text = "timestamp,gpu,gfx_activity,socket_power,power_management,xgmi\n"
    for second in range(3):
        for gpu in range(2):
            text += f'{1767760000 + second},{gpu},N/A,{300 + 100 * gpu},ENABLED,"[1, 2, 3]"\n'
        text += "\n"
    out = read(text)
    assert out["format"] == "amd-smi-csv"
    assert out["energy_j"] == {"0": pytest.approx(600.0), "1": pytest.approx(800.0)}


def test_energy_counter_without_power(read) -> None:
    out = read("timestamp,gpu,energy_mj\n" + "".join(f"176776000{s}.0,0,{1000000 + 250000 * s}\n" for s in range(3)))
    assert out["total_energy_j"] == pytest.approx(500.0) and out["mean_w"] == {"0": pytest.approx(250.0)}


@pytest.mark.parametrize("text", ["", "\n\n\n", "\0" * 5000])
def test_files_without_content(read, text: str) -> None:
    error = read(text)["error"]
    assert "empty" in error if not text else error


def test_what_a_file_without_power_contains_is_said(read) -> None:
    out = read("timestamp,utilization.gpu [%],temperature.gpu\n2026-01-03T15:36:00Z,50,40\n")
    assert "no power column" in out["error"] and "temperature.gpu" in out["error"] and out["rows"] == 1


def test_old_zeus_trace_has_no_unit_and_whole_milliwatts(read) -> None:
    out = read("Time,Power\n2022-07-13 02:07:36.708783111,32402\n2022-07-13 02:07:37.708783111,32402\n")
    assert out["total_energy_j"] == pytest.approx(32.402) and {"milliwatts", "unit_assumed"} <= codes(out)


def test_cores_inside_a_package_are_not_added_to_it(read) -> None:
    text = "timestamp,package_j,core_j,dram_j,package_w,core_w,uncore_w,dram_w\n"
    text += "".join(f"2026-02-01T10:00:0{n}.000,{45 * n},{32 * n},{8 * n},45,32,5,8\n" for n in range(3))
    out = read(text)
    assert out["energy_j"] == {"package": pytest.approx(90.0), "dram": pytest.approx(16.0)}
