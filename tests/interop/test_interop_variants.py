"""Variants of the kinds in tests/data/logs: 100 W for 9 s is 900 J, whatever the file looks like."""

from __future__ import annotations

import json

import pytest
from interop_helpers import codes

from kdwatch.interop.values import NotANumber, parse_number

HEADER = "timestamp, index, power.draw [W]"
WATT = 100.0


def stamp(second: int) -> str:
    return f"2026/01/03 15:36:{second:02d}.000"


def rows(*seconds: int) -> list[str]:
    return [f"{stamp(s)}, 0, {WATT:.2f} W" for s in seconds]


@pytest.mark.parametrize(
    "later",
    [
        ["power.draw [W], index, timestamp", *(f"100.00 W, 0, {stamp(s)}" for s in range(5, 10))],
        ["timestamp, name, index, power.draw [W]", *(f"{stamp(s)}, A100, 0, 100.00 W" for s in range(5, 10))],
        [HEADER, *rows(*range(5, 10))],
    ],
    ids=["other order", "one column more", "the same"],
)
def test_a_header_again_with_other_columns_is_read_by_name(read, later: list[str]) -> None:
    entry = read("\n".join([HEADER, *rows(*range(5)), *later]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(9 * WATT)
    assert "repeated_header" in codes(entry)
    assert ("header_changed" in codes(entry)) == (later[0] != HEADER)


def test_columns_that_change_places_do_not_become_the_limit(read) -> None:
    """Draw and limit swap places in the second header: the limit of 400 W is never the draw."""
    text = ["timestamp, power.draw [W], power.limit [W]", *(f"{stamp(s)}, 100 W, 400 W" for s in range(5))]
    text += ["timestamp, power.limit [W], power.draw [W]", *(f"{stamp(s)}, 400 W, 100 W" for s in range(5, 10))]
    assert read("\n".join(text) + "\n")["total_energy_j"] == pytest.approx(9 * WATT)


@pytest.mark.parametrize("total", ["total", "ALL", "sum"])
def test_rows_of_a_total_are_no_device(read, total: str) -> None:
    parts = (("cpu", 50), ("gpu", 100), (total, 150))
    text = [f"{stamp(s)},{key},{watts}" for s in range(10) for key, watts in parts]
    entry = read("\n".join(["timestamp,component,power_w", *text]) + "\n")
    assert entry["energy_j"] == pytest.approx({"cpu": 450.0, "gpu": 900.0})
    assert entry["total_energy_j"] == pytest.approx(1350.0)
    assert "total_rows" in codes(entry)


def test_rows_of_nothing_but_totals_stay(read) -> None:
    entry = read("\n".join(["timestamp,component,power_w", *(f"{stamp(s)},total,100" for s in range(10))]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(900.0)


def test_rows_of_cores_lie_inside_their_package(read) -> None:
    text = [f"{stamp(s)},{key},{w}" for s in range(10) for key, w in (("package-0", 50), ("core", 30), ("dram", 10))]
    entry = read("\n".join(["timestamp,domain,power_w", *text]) + "\n")
    assert entry["energy_j"] == pytest.approx({"package-0": 450.0, "dram": 90.0})


def test_rails_of_a_jetson_lie_behind_its_input(read) -> None:
    text = [f"{stamp(s)},5000,1000" for s in range(10)]
    entry = read("\n".join(["timestamp,VDD_IN (mW),VDD_CPU_GPU_CV (mW)", *text]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(45.0)


@pytest.mark.parametrize(
    "cell",
    ["20260103T1536{:02d}", "20260103_1536{:02d}", "2026-01-03_15-36-{:02d}", "03/01/2026 03:36:{:02d} p. m."],
)
def test_more_ways_to_write_a_time(read, cell: str) -> None:
    entry = read("\n".join(["timestamp,power_w", *(f"{cell.format(s)},100" for s in range(10))]) + "\n")
    assert (entry["duration_s"], entry["total_energy_j"]) == (pytest.approx(9.0), pytest.approx(900.0))


@pytest.mark.parametrize("header", ["Zeit;GPU;Leistung (W)", "logged_at;GPU;power_w"])
def test_a_time_column_is_known_by_its_dates(read, header: str) -> None:
    text = [f"13.01.2026 15:36:{s:02d};{gpu};100,5" for s in range(10) for gpu in (0, 1)]
    assert read("\n".join([header, *text]) + "\n")["energy_j"] == pytest.approx({"0": 904.5, "1": 904.5})


def test_a_header_behind_a_hash(read) -> None:
    entry = read("\n".join(["# timestamp, power_w", *(f"{stamp(s)}, 100" for s in range(10))]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(900.0)


def test_kilowatts_are_not_taken_for_milliwatts(read) -> None:
    entry = read("\n".join(["timestamp,power_kw", *(f"{stamp(s)},30" for s in range(10))]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(30_000.0 * 9)
    assert "milliwatts" not in codes(entry)


def test_dmon_with_commas(read) -> None:
    body = "".join(f"{gpu}, 100, 33\n" for _ in range(3) for gpu in (0, 1))
    entry = read("#gpu, pwr, gtemp\n#Idx, W, C\n" + body, interval_s=1.0)
    assert (entry["format"], entry["energy_j"]) == ("nvidia-smi-dmon", pytest.approx({"0": 200.0, "1": 200.0}))


def test_sacct_requeued_job_counts_each_of_its_runs(read) -> None:
    text = "JobID|Start|ElapsedRaw|ConsumedEnergyRaw\n"
    text += "1|2024-06-24T12:33:26|600|60000\n1.batch|2024-06-24T12:33:26|600|60000\n"
    text += "1|2024-06-25T12:33:26|600|70000\n1.batch|2024-06-25T12:33:26|600|70000\n"
    assert read(text)["total_energy_j"] == pytest.approx(130_000.0)


@pytest.mark.parametrize("value", ["4294967294", "4294967295", "18446744073709551614", ""])
def test_sacct_no_value_is_no_energy(read, value: str) -> None:
    entry = read(f"JobID|ElapsedRaw|ConsumedEnergyRaw\n1|600|{value}\n2|600|60000\n")
    assert entry["total_energy_j"] == pytest.approx(60_000.0)


def test_sacct_with_commas_and_a_list_in_a_cell(read) -> None:
    text = "JobID,AllocTRES,ElapsedRaw,ConsumedEnergyRaw\n1,cpu=2,energy=60000,node=1,600,60000\n2,cpu=2,node=1,600,9\n"
    assert read(text)["total_energy_j"] == pytest.approx(60_009.0)


def test_sacct_rows_of_another_width_are_said(read) -> None:
    entry = read("JobID|ElapsedRaw|ConsumedEnergyRaw\n1|600|60000\n2|600\n")
    assert "malformed_rows" in codes(entry)


@pytest.mark.parametrize(("other", "code"), [("mean_power_w", "mean_left_out"), ("node_w", "total_differs")])
def test_columns_that_repeat_others_are_no_devices(read, other: str, code: str) -> None:
    """The mean of two GPUs, and a node that holds them, are said and not added."""
    text = [f"{stamp(s)},100,200,{150 if other.startswith('mean') else 500}" for s in range(10)]
    entry = read("\n".join([f"timestamp,gpu0_power_w,gpu1_power_w,{other}", *text]) + "\n")
    assert entry["energy_j"] == pytest.approx({"0": 900.0, "1": 1800.0})
    assert codes(entry) & {"mean_left_out", "total_differs"} == {code}


def test_rows_of_a_total_counter_are_no_device(read) -> None:
    text = [f"{stamp(s)},{key},{n * 100 * s}" for s in range(10) for key, n in (("0", 1), ("1", 1), ("total", 2))]
    entry = read("\n".join(["timestamp,gpu,energy_j", *text]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(1800.0)


def test_counter_rows_out_of_order_are_sorted(read) -> None:
    text = [f"{stamp(s)},{100 * s}" for s in (5, 6, 7, 8, 9, 0, 1, 2, 3, 4)]
    assert read("\n".join(["timestamp,energy_j", *text]) + "\n")["total_energy_j"] == pytest.approx(900.0)


@pytest.mark.parametrize(
    ("text", "joules"),
    [
        ("start_time;window_name;elapsed_time;gpu0_energy\n100,5;a;10,125;1234,567\n", 1234.567),
        ("network;time_per_epoch;average_power;power_limit\nx;10,125;100,5;125\n", 10.125 * 100.5),
        ("stage_id;start_time;duration_seconds;gpu_energy_joules\na;1,5;10,125;1234,567\n", 1234.567),
        (
            "project_name;run_id;duration;emissions;cpu_energy;gpu_energy;ram_energy;energy_consumed\n"
            "p;r;10,125;0,001;0,001;0,123;0,001;0,125\n",
            0.125 * 3.6e6,
        ),
    ],
    ids=["zeus", "zeus trace", "harness table", "codecarbon"],
)
def test_semicolons_and_decimal_commas(read, text: str, joules: float) -> None:
    entry = read(text)
    assert entry["total_energy_j"] == pytest.approx(joules)
    assert entry["duration_s"] == pytest.approx(10.125)


def test_a_long_header_of_dmon_without_power_is_one_short_line(read) -> None:
    error = read("# gpu pwr{ " + " ".join(f"c{i}" for i in range(3000)) + "\n")["error"]
    assert "no power column" in error
    assert len(error) < 1000


def test_rows_above_a_late_header_are_read_too(read) -> None:
    entry = read("\n".join([*rows(*range(5)), HEADER, *rows(*range(5, 10))]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(9 * WATT)
    assert "rows_above_header" in codes(entry)


def test_a_total_among_hosts_is_no_host(read) -> None:
    text = [f"{stamp(s)},{host},{w}" for s in range(10) for host, w in (("a", 100), ("b", 100), ("total", 200))]
    entry = read("\n".join(["timestamp,node,power_w", *text]) + "\n")
    assert entry["energy_j"] == pytest.approx({"a": 900.0, "b": 900.0})


@pytest.mark.parametrize("other", ["power_pct", "idle_power_w", "net_power_w", "power_w_smoothed", "predicted_power_w"])
def test_columns_worked_out_from_the_draw_are_not_added(read, other: str) -> None:
    text = [f"{stamp(s)},0,100,20" for s in range(10)]
    entry = read("\n".join([f"timestamp,gpu,power_w,{other}", *text]) + "\n")
    assert entry["total_energy_j"] == pytest.approx(900.0)


def test_a_node_beside_its_gpu_on_two_hosts_is_said(read) -> None:
    text = [f"{stamp(s)},{host},100,300" for s in range(10) for host in "ab"]
    entry = read("\n".join(["timestamp,host,gpu0_w,node_w", *text]) + "\n")
    assert entry["energy_j"] == pytest.approx({"a": 900.0, "b": 900.0})
    assert "total_left_out" in codes(entry)


def test_times_that_are_not_known_are_named(read) -> None:
    entry = read("\n".join(["timestamp,power_w", *(f"tick {s} of 20,100" for s in range(10, 20))]) + "\n")
    assert entry["total_energy_j"] is None
    assert any("'timestamp'" in warning["text"] for warning in entry["warnings"] if warning["code"] == "no_time")


def test_rapl_domains_of_an_exporter(read) -> None:
    """Metrics stand in order of the alphabet: the cores come first and lie inside the package, DRAM does not."""
    text = ""
    for s in range(10):
        for domain, watts in (("core", 50), ("dram", 10), ("package", 100)):
            text += f'node_rapl_{domain}_joules_total{{index="0"}} {watts * s} {1700000000000 + 1000 * s}\n'
    entry = read(text)
    assert entry["energy_j"] == pytest.approx({"0": 900.0, "0/dram": 90.0})
    assert "parts_left_out" in codes(entry)


def test_counter_of_scrapes_out_of_order(read) -> None:
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    seconds = (5, 6, 7, 8, 9, 0, 1, 2, 3, 4)
    text = "".join(f'{name}{{UUID="a"}} {10**6 + s * 10**5} {1700000000000 + 1000 * s}\n' for s in seconds)
    assert read(f"# TYPE {name} counter\n" + text)["total_energy_j"] == pytest.approx(900.0)


@pytest.mark.parametrize("end", ["", "|"])
def test_sacct_job_with_a_blank_last_cell_is_a_job_without_energy(read, end: str) -> None:
    text = f"JobID|ElapsedRaw|ConsumedEnergyRaw{end}\n1|600|{end}\n2|600|60000{end}\n"
    entry = read(text)
    assert (entry["rows"], entry["details"]["blank"], entry["total_energy_j"]) == (2, 1, 60_000.0)
    assert "malformed_rows" not in codes(entry)


@pytest.mark.parametrize("cell", ["1.020.51", "1,0,2", "1.2.3"])
def test_two_numbers_run_together_are_no_number(cell: str) -> None:
    with pytest.raises(NotANumber):
        parse_number(cell)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1,234,567.5", 1234567.5),
        ("1.234.567,5", 1234567.5),
        ("1.234.567", 1234567.0),
        ("0,123", 0.123),
        ("1,234", 1234.0),
    ],
)
def test_marks_of_thousands(cell: str, value: float) -> None:
    assert parse_number(cell)[0] == pytest.approx(value)


def test_perf_interval_without_its_time_is_left_out_and_said(read) -> None:
    lines = [f"{s}.001,20.00,Joules,power/energy-pkg/,1,100.00,," for s in range(1, 5)]
    lines[1] = lines[1][1:]
    entry = read("\n".join(lines) + "\n")
    assert entry["total_energy_j"] == pytest.approx(60.0)
    assert "malformed_rows" in codes(entry)


@pytest.mark.parametrize(
    "text",
    [
        "time power_w\n0.0 100\n1.0 100\n2.0 100\n",
        "  time(s)    power(W)   temp\n" + "".join(f"   {s}.0        100.0     50\n" for s in range(3)),
        "timestamp index power.draw [W]\n" + "".join(f"2026/01/03 15:36:{s:02d}.000 0 100.00 W\n" for s in range(3)),
        "timestamp name gpu power.draw\n" + "".join(f"2026-01-03 15:36:{s:02d} A100 0 100\n" for s in range(3)),
    ],
    ids=["plain", "aligned", "units", "names"],
)
def test_tables_of_blanks(read, text: str) -> None:
    if "A100" in text:  # a name is no value: it cannot be told from a header
        assert read(text)["error"]
        return
    entry = read(text)
    assert (entry["total_energy_j"], entry["n_gpus"], entry["duration_s"]) == (pytest.approx(200.0), 1, 2.0)


def test_text_that_is_no_table_gives_no_power(read) -> None:
    """A report with decimal commas: `8,3 W` is no row of two columns."""
    lines = ["report of the laptop", "  energy:  47,1 Wh", "  rate:  8,3 W", "  voltage:  12 V", "done"]
    entry = read("\n".join(lines) + "\n")
    assert "no table" in entry["error"] and entry["n_samples"] == 0


def battery(clock: str, watts: str, state: str = "discharging") -> str:
    return (
        "Device: /org/freedesktop/UPower/devices/battery_BAT0\n  native-path:          BAT0\n"
        f"  updated:              mar. 05 sept. 2023 {clock} (12 seconds ago)\n  battery\n"
        f"    state:               {state}\n"
        f"    energy:              47,1 Wh\n    energy-rate:         {watts}\n\n"
    )


def test_a_battery_that_discharges(read) -> None:
    """French dates and decimal commas; 8.5 W over a minute are 510 J; a rate while charging is no draw."""
    text = battery("10:26:24", "8,5 W") + battery("10:26:54", "8,5 W") + battery("10:27:24", "8,5 W")
    entry = read(text + battery("10:30:00", "40 W", "charging"))
    assert (entry["format"], entry["time"], entry["n_gpus"]) == ("upower-text", "local", 0)
    assert entry["energy_j"] == {"BAT0": pytest.approx(510.0)}
    assert codes(entry) == {"charging", "machine_power"}
    assert "discharges" in read(battery("10:30:00", "40 W", "charging"))["error"]


def test_kepler_modes_add_up(read) -> None:
    """`dynamic` rises by 100 J and `idle` by 40 J: two counters of one package, not one that falls."""
    name = "kepler_node_package_joules_total"
    text = "".join(
        f'{name}{{package="0",instance="n",mode="{mode}"}} {joules}\n'
        for mode, joules in (("dynamic", 1000), ("idle", 500), ("dynamic", 1100), ("idle", 540))
    )
    entry = read(text)
    assert entry["total_energy_j"] == pytest.approx(140.0)
    assert codes(entry) == {"modes_added"}


def test_one_scrape_of_a_gpu_with_several_pods_or_slices_is_one_reading(read) -> None:
    text = "".join(f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-a",pod="{pod}"}} 100\n' for pod in "xyz")
    entry = read(text)
    assert entry["n_samples"] == 1 and codes(entry) == {"one_scrape"}
    twice = read(text * 3, interval_s=10.0)
    assert (twice["n_samples"], twice["total_energy_j"]) == (3, pytest.approx(2000.0))


def test_scrapes_without_times_ask_for_the_interval(read) -> None:
    entry = read('nvidia_smi_power_draw_watts{uuid="a"} 100\nnvidia_smi_power_draw_average_watts{uuid="a"} 90\n' * 2)
    assert (entry["n_gpus"], entry["max_w"], entry["total_energy_j"]) == (1, 100.0, None)
    assert "no_time" in codes(entry) and "one_scrape" not in codes(entry)


def test_a_scrape_may_begin_with_nan(read) -> None:
    entry = read('DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} NaN\nDCGM_FI_DEV_POWER_USAGE{UUID="GPU-b"} 1.0e+02\n')
    assert entry["format"] == "prometheus-text" and entry["peak_w"] == {"GPU-b": 100.0}


def test_zeus_file_appended_to_itself_counts_once(read) -> None:
    text = "start_time,window_name,elapsed_time,gpu0_energy\n1.0,a,10.0,1000.0\n20.0,b,10.0,500\n"
    entry = read(text + text)
    assert entry["total_energy_j"] == pytest.approx(1500.0)
    assert "repeated_windows" in codes(entry) and "nested_windows" not in codes(entry)


def test_sacct_steps_without_their_job_say_so(read) -> None:
    entry = read("JobID|ElapsedRaw|ConsumedEnergyRaw\n10.batch|100|5000\n10.0|100|4900\n")
    assert entry["total_energy_j"] == pytest.approx(5000.0)
    assert "steps_only" in codes(entry) and "steps_repeat" not in codes(entry)


def test_codecarbon_without_any_part_has_nothing_that_differs(read) -> None:
    entry = read(
        "timestamp,project_name,duration,emissions,energy_consumed\n2021-03-01T10:00:00,proj,60.0,0.001,0.01\n"
    )
    assert entry["total_energy_j"] == pytest.approx(36000.0) and "parts_differ" not in codes(entry)
    assert "parts_unknown" in codes(entry)


def test_readings_that_are_missing_are_counted_and_said(read) -> None:
    """GPU 0 is lost half way, GPU 1 has no sensor: neither is silent, and no reading is 0."""
    text = [HEADER]
    for s in range(10):
        text.append(f"{stamp(s)}, 0, {'100.00 W' if s < 5 else '[GPU requires reset]'}")
        text.append(f"{stamp(s)}, 1, [Not Supported]")
    entry = read("\n".join(text) + "\n")
    assert entry["energy_j"] == pytest.approx({"0": 400.0})
    texts = {warning["code"]: warning["text"] for warning in entry["warnings"]}
    assert texts["missing"].startswith("device 0: 5 of 10") and texts["no_reading"].endswith("device 1")


def test_perf_stat_as_json(read) -> None:
    def line(event: str, value: str, **more: float) -> str:
        return json.dumps({**more, "counter-value": value, "unit": "Joules", "event": f"power/energy-{event}/"})

    lines = [line("pkg", f"{20 + s}.0", interval=1.0 + s) for s in range(3)]
    entry = read("\n".join([*lines, line("ram", "<not counted>", interval=3.0)]) + "\n")
    assert (entry["format"], entry["duration_s"]) == ("perf-stat-csv", 3.0)
    assert entry["energy_j"] == {"energy-pkg": pytest.approx(63.0), "energy-ram": None}
    once = read(line("pkg", "3352.31") + "\n" + line("ram", "12.5")[:40])
    assert once["energy_j"] == {"energy-pkg": pytest.approx(3352.31)} and "malformed_rows" in codes(once)
