"""Logs in which a thing looks like another: sums without a name, one index for two models, wrapped counters."""

from __future__ import annotations

import pytest
from interop_helpers import codes

from kdwatch.interop.formats.energy_columns import counter_range

NVIDIA_SMI = "timestamp, index, name, power.draw [W]"
RAPL_J = 262_143.328850
"""RAPL's `max_energy_range_uj` of many machines, in joules."""


def stamp(second: int) -> str:
    return f"2026/01/03 15:{36 + second // 60}:{second % 60:02d}.000"


def table(header: str, *rows: str) -> str:
    return "\n".join([header, *rows]) + "\n"


def test_two_models_with_one_index_are_two_devices(read) -> None:
    """Two jobs, each with its GPU 0, in one file with NUL bytes between them."""
    first = [f"{stamp(s)}, 0, NVIDIA L40S, 200.00 W" for s in range(11)]
    second = [f"{stamp(s)}, 0, NVIDIA A40, 100.00 W" for s in range(5, 16)]
    content = table(NVIDIA_SMI, *first).encode() + b"\0" * 300 + table(NVIDIA_SMI, *second).encode()
    entry = read(content)
    assert entry["energy_j"] == pytest.approx({"0 NVIDIA L40S": 2000.0, "0 NVIDIA A40": 1000.0})
    assert {d["key"]: d["name"] for d in entry["devices"]}["0 NVIDIA A40"] == "NVIDIA A40"
    assert {"keyed_by_name", "nul_bytes"} <= codes(entry) and "two_loggers" not in codes(entry)


def test_a_long_log_of_two_models_is_read_alike_in_blocks(read) -> None:
    """More rows than are looked at one by one."""
    rows = [f"{1.7e9 + n // 2:.0f},0,{'A40' if n % 2 else 'L40S'},{100 if n % 2 else 200}" for n in range(50_002)]
    entry = read(table("timestamp,index,name,power.draw [W]", *rows))
    assert entry["energy_j"] == pytest.approx({"0 L40S": 200.0 * 25_000, "0 A40": 100.0 * 25_000})


def test_a_uuid_stays_one_device_whatever_its_name(read) -> None:
    rows = [f"{stamp(s)}, GPU-1, {'Tesla V100' if s < 5 else 'Tesla V100-SXM2-16GB'}, 100.00 W" for s in range(10)]
    entry = read(table("timestamp, uuid, name, power.draw [W]", *rows))
    assert entry["energy_j"] == pytest.approx({"GPU-1": 900.0}) and "keyed_by_name" not in codes(entry)


@pytest.mark.parametrize("header", ["box_w", "Summe (W)", "Gesamtleistung (W)", "cluster_total_w"])
def test_a_sum_by_any_name_is_no_device(read, header: str) -> None:
    rows = [f"{stamp(s)},{90 + s},{200 + 3 * s},{290 + 4 * s}" for s in range(11)]
    entry = read(table(f"timestamp,cpu_w,gpu_w,{header}", *rows))
    assert entry["total_energy_j"] == pytest.approx(10 * (95 + 215)) and entry["n_gpus"] == 2
    assert entry["details"]["total_equals_sum"] is True and "total_differs" not in codes(entry)


def test_constants_that_happen_to_add_up_are_devices(read) -> None:
    rows = [f"{stamp(s)},40,60,100" for s in range(11)]
    assert read(table("timestamp,a_w,b_w,c_w", *rows))["total_energy_j"] == pytest.approx(2000.0)


def test_totals_of_nodes_beside_their_gpus(read) -> None:
    names = [f"node{n}_{what}_w" for n in (1, 2) for what in ("gpu0", "gpu1", "total")]
    rows = [f"{stamp(s)},100,200,300,100,200,300,600" for s in range(11)]
    entry = read(table(",".join(["timestamp", *names, "cluster_total_w"]), *rows))
    assert entry["total_energy_j"] == pytest.approx(6000.0) and entry["n_gpus"] == 4
    assert "total_differs" not in codes(entry)


@pytest.mark.parametrize("cpu", ["cpu_w", "total_cpu_power_w"])
def test_a_total_of_the_gpus_is_the_gpus_where_nothing_else_is(read, cpu: str) -> None:
    """Beside a CPU it repeats nothing: 300 W and 100 W are 400 W."""
    entry = read(table(f"timestamp,gpu_total_w,{cpu}", *(f"{stamp(s)},300,100" for s in range(11))))
    assert entry["total_energy_j"] == pytest.approx(4000.0) and "total_only" in codes(entry)
    rows = [f"{stamp(s)},100,200,300,50" for s in range(11)]
    entry = read(table(f"timestamp,gpu0_w,gpu1_w,gpu_total_w,{cpu}", *rows))
    assert entry["total_energy_j"] == pytest.approx(3500.0) and "total_differs" not in codes(entry)


def test_the_power_of_a_module_is_not_its_gpus(read) -> None:
    """On a GH200 the module holds GPU, CPU and memory; the GPU's own column counts, whatever it is called."""
    fields = "power.draw.average [W], module.power.draw.average [W], module.power.draw.instant [W]"
    rows = [f"{stamp(s)}, 0, 100.00 W, 300.00 W, 310.00 W" for s in range(11)]
    entry = read(table(f"timestamp, index, {fields}", *rows))
    assert entry["energy_j"] == pytest.approx({"0": 1000.0}) and codes(entry) == {"more_power_columns"}
    only = read(table("timestamp, module.power.draw.instant [W]", *(f"{stamp(s)}, 300.00 W" for s in range(11))))
    assert only["total_energy_j"] == pytest.approx(3000.0)


@pytest.mark.parametrize("mark", ["4294967.29 W", "4294967.30 W", "2147483.65 W"])
def test_an_all_ones_reading_with_two_digits_is_no_reading(read, mark: str) -> None:
    rows = [f"{stamp(s)}, 0, {mark if s == 5 else '100.00 W'}" for s in range(11)]
    entry = read(table("timestamp, index, power.draw [W]", *rows))
    assert entry["total_energy_j"] == pytest.approx(1000.0) and "sentinels" in codes(entry)


def test_one_wild_reading_does_not_make_a_log_milliwatts(read) -> None:
    rows = [f"{stamp(s)}, 0, {'900000.50' if s == 5 else '100.00'} W" for s in range(11)]
    entry = read(table("timestamp, index, power.draw [W]", *rows))
    assert "milliwatts" not in codes(entry) and "implausible_power" in codes(entry)
    assert entry["total_energy_j"] == pytest.approx(800 + 900_100.5)


def test_the_command_before_its_table_is_no_header(read) -> None:
    command = "user@host:~$ nvidia-smi --query-gpu=timestamp,index,power.draw --format=csv -l 1"
    rows = [f"{stamp(s)}, 0, 100.00 W" for s in range(11)]
    entry = read(f"{command}\n" + table("timestamp, index, power.draw [W]", *rows) + "^C\n")
    assert entry["energy_j"] == pytest.approx({"0": 1000.0})


@pytest.mark.parametrize(("start_j", "wraps"), [(0.0, 0), (150_000.0, 1), (150_000.0, 2)])
def test_an_energy_counter_that_wraps_counts_on(read, start_j: float, wraps: int) -> None:
    """50 W, a reading every 10 minutes: 30 kJ each; RAPL's range is 262 kJ."""
    steps = 8 if wraps < 2 else 14
    rows = [f"{1.7e9 + n * 600:.0f},{round((start_j + 30_000 * n) % RAPL_J * 1e6)}" for n in range(steps + 1)]
    entry = read(table("timestamp,package_0_energy_uj", *rows))
    assert entry["total_energy_j"] == pytest.approx(30_000 * steps)
    texts = [warning["text"] for warning in entry["warnings"] if warning["code"] == "counter_wrapped"]
    assert len(texts) == bool(wraps) and all(f"wrapped {wraps} times" in text for text in texts)


def test_a_counter_that_was_reset_is_refused(read) -> None:
    rows = [f"{1.7e9 + n:.0f},{n * 50 + (100_000 if n < 5 else 0)}000000" for n in range(11)]
    assert "falls" in read(table("timestamp,energy_uj", *rows))["error"]


def test_a_counter_that_may_have_wrapped_twice_has_no_range() -> None:
    """At 100 W a range of 65.5 kJ lasts 11 minutes: over an hour nobody knows how often it began again."""
    assert counter_range([(60.0, 60_000.0, 1000.0)], 60_000.0, 100.0) == pytest.approx(65_532.610987)
    assert counter_range([(3600.0, 60_000.0, 1000.0)], 60_000.0, 5.0) is not None
    assert counter_range([(3600.0, 60_000.0, 1000.0)], 60_000.0, 100.0) is None


def test_upower_without_the_line_of_its_device(read) -> None:
    """`upower -i` again and again: each report begins with its path."""
    report = "  native-path:  BAT0\n  updated:  Thu 18 May 2023 10:00:{:02d} AM UTC (2 seconds ago)\n"
    report += "  battery\n    state:  discharging\n    energy-rate:  12.5 W\n"
    entry = read("".join(report.format(s) for s in (0, 10, 20)))
    assert entry["format"] == "upower-text" and entry["total_energy_j"] == pytest.approx(250.0)


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("JobID|JobName|Elapsed|State\n1|a|00:10:00|COMPLETED\n", "slurm-sacct", "it has JobID, JobName, Elapsed"),
        (
            " Performance counter stats for 'ls':\n\n 1,234 cycles\n 3 msec task-clock\n\n 1 seconds time elapsed\n",
            "perf-stat-text",
            "it has cycles, task-clock;",
        ),
        (
            "CarbonTracker: \nPredicted consumption for 9 epoch(s):\n\tTime:\t1:00:00\n\tEnergy:\t1.0 kWh\n",
            "carbontracker-output-log",
            "a predicted consumption",
        ),
    ],
)
def test_a_file_without_energy_says_what_it_has(read, text: str, form: str, said: str) -> None:
    entry = read(text)
    assert entry["format"] == form and said in entry["error"]


@pytest.mark.parametrize("value", ["18446744073.71G", "17014118346046923173168730371588410.50M"])
def test_a_rounded_no_value_of_slurm_is_no_energy(read, value: str) -> None:
    entry = read(f"JobID|ElapsedRaw|ConsumedEnergy\n1|600|60K\n2|600|{value}\n")
    assert entry["total_energy_j"] == pytest.approx(60_000.0)


@pytest.mark.parametrize(
    "text",
    [
        "=====NVSMI LOG=====\n\nTimestamp   : Sat Jan  3 15:36:53 2026\nGPU 0:4A:00.0\n    Power Draw    : 36.22 W\n",
        "Sat Jan  3 15:36:50 2026\n+-----+\n| NVIDIA-SMI 570.1 |\n| N/A 34C P8  36W / 350W |\n+-----+\n",
    ],
    ids=["-q", "table"],
)
def test_what_nvidia_smi_prints_for_people_is_named(read, text: str) -> None:
    error = read(text)["error"]
    assert "for people to read" in error and "--query-gpu" in error and "\n" not in error
