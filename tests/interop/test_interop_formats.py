"""Formats beyond power CSVs, in variants that the published samples do not show."""

from __future__ import annotations

import json

import pytest
from interop_helpers import codes

EMISSIONS = (
    "timestamp,project_name,run_id,duration,emissions,emissions_rate,cpu_power,gpu_power,ram_power,cpu_energy,gpu_energy,"
    "ram_energy,energy_consumed,gpu_count,tracking_mode,codecarbon_version"
)


def test_dmon_with_times_takes_positions_from_the_last_header(read) -> None:
    """`-o DT`; the header comes again with another column before pwr (another driver after a reboot)."""
    text = (
        "#Date       Time        gpu    pwr  gtemp\n#YYYYMMDD   HH:MM:SS    Idx      W      C\n"
        " 20260103   15:36:00      0    100     40\n 20260103   15:36:00      1      -     41\n\n"
        " 20260103   15:36:01      0    200     40\n 20260103   15:36:01      1     50     41\n"
        "#Date       Time        gpu  gtemp    pwr\n#YYYYMMDD   HH:MM:SS    Idx      C      W\n"
        " 20260103   15:36:02      0     40    100\n 20260103   15:36:02      1     41     50\n"
    )
    out = read(text)
    assert out["format"] == "nvidia-smi-dmon"
    assert out["energy_j"] == {"0": pytest.approx(300.0), "1": pytest.approx(50.0)}


def test_codecarbon_rows_in_any_order_of_columns_and_a_torn_one(read) -> None:
    columns = list(reversed(EMISSIONS.split(",")))
    row = dict.fromkeys(columns, "") | {
        "run_id": "r1", "duration": "10", "emissions": "0.001", "cpu_energy": "0.01", "gpu_energy": "0.02",
        "ram_energy": "0.003", "energy_consumed": "0.033", "gpu_count": "1", "project_name": "p",
    }  # fmt: skip
    text = ",".join(columns) + "\n" + ",".join(row[c] for c in columns) + "\n" + "0.01,0.0"
    out = read(text)
    assert out["format"] == "codecarbon-emissions-csv"
    assert (out["kwh"], out["kg_co2e"]) == (pytest.approx(0.033), pytest.approx(0.001))
    assert out["energy_j"] == {"cpu": pytest.approx(36e3), "gpu": pytest.approx(72e3), "ram": pytest.approx(10.8e3)}
    assert "malformed_rows" in codes(out) and out["rows"] == 2


def test_codecarbon_modes_that_cannot_be_compared_are_said(read) -> None:
    rows = [
        f"2026-01-03T15:36:0{n},p,r{n},1,0,0,1,1,1,1e-6,1e-6,1e-6,3e-6,1,{mode},3.2.1"
        for n, mode in enumerate(("process", "machine"))
    ]
    assert "mixed_scopes" in codes(read("\n".join([EMISSIONS, *rows])))


def test_zeus_windows_inside_windows_count_once(read) -> None:
    """The outer window holds both inner ones; another follows it. CPU and DRAM columns are devices of their own."""
    text = (
        "start_time,window_name,elapsed_time,gpu0_energy,cpu0_energy,dram0_energy\n"
        "100.0,epoch,10,1000,100,10\n100.0,step,4,400,40,4\n105.0,step,4,400,40,4\n110.5,eval,2,50,5,\n"
    )
    out = read(text)
    assert out["energy_j"] == {"0": 1050, "cpu0": 105, "dram0": 10}
    assert out["duration_s"] == 12 and out["n_gpus"] == 1 and "nested_windows" in codes(out)
    assert len(out["details"]["nested"]) == 2


def test_zeus_windows_that_overlap_in_part_have_no_total(read) -> None:
    text = "start_time,window_name,elapsed_time,gpu0_energy\n100.0,a,10,1000\n105.0,b,10,1000\n"
    out = read(text)
    assert out["total_energy_j"] is None and "overlapping_windows" in codes(out)


def test_carbontracker_several_devices_none_and_long_times(read) -> None:
    text = (
        "2026-01-01 10:00:00 - carbontracker version 1.2.5\n"
        "2026-01-01 10:00:00 - Epoch 1:\n2026-01-01 10:00:00 - Duration: 25:00:00.00\n"
        "2026-01-01 10:00:00 - Average power usage (W) for gpu: [100.0 50.0]\n"
        "2026-01-01 10:00:00 - Average power usage (W) for cpu: None\n"
        "2026-01-01 10:00:00 - Epoch 2:\n2026-01-01 10:00:00 - Duration: 0:00:10.00\n"
        "2026-01-01 10:00:00 - Average power usage (W) for gpu: [100.0 50.0]\n"
        "2026-01-01 10:00:00 - Average power usage (W) for cpu: None\n"
    )
    out = read(text, "run_carbontracker.log")
    assert out["format"] == "carbontracker-log" and out["details"]["epochs"] == 2
    assert out["energy_j"] == {"gpu": pytest.approx(150 * 90010), "cpu": None}
    assert out["total_energy_j"] == pytest.approx(150 * 90010)


def test_carbontracker_forecast_alone_is_no_energy(read) -> None:
    text = "CarbonTracker: \nPredicted consumption for 4 epoch(s):\n\tTime:\t0:03:33\n\tEnergy:\t0.014018 kWh\n"
    assert "no actual consumption" in read(text)["error"]


def prometheus(gpu: str, watts: float, millijoules: int, stamp: str = "") -> str:
    labels = f'{{gpu="0",UUID="{gpu}",Hostname="h",modelName="A100"}}'
    return (
        f"# TYPE DCGM_FI_DEV_POWER_USAGE gauge\nDCGM_FI_DEV_POWER_USAGE{labels} {watts} {stamp}\n"
        f"# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {millijoules} {stamp}\n"
        f"DCGM_FI_DEV_POWER_MGMT_LIMIT{labels} 400\n"
    )


def test_two_scrapes_give_energy_by_the_counter(read) -> None:
    """Two GPUs numbered 0 on two hosts stay apart by UUID; both counters rise by 300 000 mJ."""
    text = "".join(
        prometheus(f"GPU-{u}", 100, base + rise) for rise in (0, 300_000) for u, base in (("a", 5), ("b", 9))
    )
    out = read(text, "m.prom")
    assert out["energy_j"] == {"GPU-a": pytest.approx(300.0), "GPU-b": pytest.approx(300.0)}
    assert out["total_energy_j"] == pytest.approx(600.0) and out["duration_s"] is None


def test_scrapes_with_time_stamps_have_a_duration(read) -> None:
    text = prometheus("GPU-a", 100, 0, "1767760000000") + prometheus("GPU-a", 120, 1_100_000, "1767760010000")
    out = read(text, "m.prom")
    assert out["duration_s"] == 10 and out["total_energy_j"] == pytest.approx(1100.0)


def test_counter_that_fell_between_scrapes_is_unknown(read) -> None:
    out = read(prometheus("GPU-a", 100, 900_000) + prometheus("GPU-a", 100, 5_000), "m.prom")
    assert out["total_energy_j"] is None and "counter_reset" in codes(out)


SACCT = [("JobID", "ConsumedEnergyRaw", "ConsumedEnergy", "ElapsedRaw", "State", "NNodes"),
         ("7", "1000000", "1M", "100", "COMPLETED", "2"), ("7.batch", "500000", "500K", "100", "COMPLETED", "1"),
         ("7.0", "990000", "990K", "99", "COMPLETED", "2"), ("8", "", "", "50", "TIMEOUT", "1"),
         ("9", "0", "0", "0", "CANCELLED by 5", "1")]  # fmt: skip


@pytest.mark.parametrize("layout", ["-P", "-p", "markdown", "fixed"])
def test_sacct_layouts(read, layout: str) -> None:
    if layout == "fixed":
        lines = ["".join(f"{c:>20} " for c in row) for row in SACCT]
        lines.insert(1, ("-" * 20 + " ") * 6)
    else:
        left, right = {"-P": ("", ""), "-p": ("", "|"), "markdown": ("|", "|")}[layout]
        lines = [left + "|".join(row) + right for row in SACCT]
        if layout == "markdown":
            lines.insert(1, "|---|---|---|---|---|---|")
    out = read("\n".join(lines) + "\n", "sacct.txt")
    assert out["format"] == "slurm-sacct"
    assert out["total_energy_j"] == 1_000_000 and out["details"]["jobs"] == 3
    assert out["details"]["states"] == {"COMPLETED": 3, "TIMEOUT": 1, "CANCELLED": 1}
    assert {"energy_blank", "energy_zero", "steps_repeat"} <= codes(out)


def test_sacct_rounded_energy_where_there_is_no_raw(read) -> None:
    out = read("JobID|ConsumedEnergy|Elapsed\n7|20.54M|1-02:03:04\n", "s.txt")
    assert out["total_energy_j"] == pytest.approx(20.54e6) and out["duration_s"] == 93784


def test_perf_text_of_a_package_with_parts_and_of_repeats(read) -> None:
    text = (
        " Performance counter stats for './train' (5 runs):\n\n"
        "          1,000.50 Joules power/energy-pkg/      ( +-  0.10% )\n"
        "            600.00 Joules power/energy-cores/    ( +-  0.10% )\n"
        "            100.00 Joules power/energy-ram/      ( +-  0.10% )\n"
        "     <not counted> Joules power/energy-psys/\n\n"
        "           10.0000 +- 0.0100 seconds time elapsed  ( +-  0.10% )\n"
    )
    out = read(text, "perf.txt")
    assert out["energy_j"] == {"energy-pkg": 1000.5, "energy-ram": 100.0}
    assert out["total_energy_j"] == pytest.approx(1100.5) and out["duration_s"] == 10
    assert {"parts_left_out", "mean_of_repeats"} <= codes(out)


def test_perf_text_with_nothing_counted_is_an_error(read) -> None:
    text = (
        "Performance counter stats for 'x':\n\n <not supported> Joules power/energy-pkg/\n\n 1.5 seconds time elapsed\n"
    )
    assert "not counted" in read(text, "perf.txt")["error"]


def test_perf_csv_without_intervals_has_energy_and_no_duration(read) -> None:
    out = read(
        "S0;1;1234,5;Joules;power/energy-pkg/;1000;100,00;;\nS1;1;<not counted>;Joules;power/energy-ram/;0;0;;\n"
    )
    assert out["total_energy_j"] == pytest.approx(1234.5) and out["duration_s"] is None
    assert {"no_time", "not_counted"} <= codes(out)


def test_power_gadget_cut_off_before_its_footer(read, logs) -> None:
    lines = (logs / "63_intel_power_gadget_colon_ms_footer.csv").read_text().splitlines()[:101]
    out = read("\n".join(lines))
    assert "no_footer" in codes(out) and out["total_energy_j"] == pytest.approx(float(lines[-1].split(",")[6]))


def test_trainer_state(read) -> None:
    state = {
        "best_metric": None, "global_step": 20, "max_steps": 40, "num_input_tokens_seen": 5000,
        "log_history": [{"step": 10, "loss": 2.0, "epoch": 0.5}, {"step": 20, "loss": 1.5},
                        {"step": 20, "eval_loss": 1.6}, {"step": 20, "train_runtime": 12.5}],
    }  # fmt: skip
    out = read(json.dumps(state, indent=2), "trainer_state.json")
    assert out["format"] == "trainer-state-json" and out["total_energy_j"] is None
    (stage,) = out["stages"]
    assert (stage["step"], stage["total_steps"], stage["tokens"], stage["loss"]) == (20, 40, 5000, 1.5)
    assert out["duration_s"] == 12.5


def test_perun_energy_is_raw_times_mag_and_no_sensor_is_no_zero(read) -> None:
    def node(kind: str, name: str, joules: float | None, children=()):  # raw in kJ, mag 1000
        energy = (
            {"energy": {"type": "energy", "value": joules, "metric_md": {"unit": "J", "mag": 1000}}} if joules else {}
        )
        runtime = {"runtime": {"type": "runtime", "value": 20.0, "metric_md": {"unit": "s", "mag": 1}}}
        return {"id": name, "type": kind, "metadata": {}, "metrics": energy | runtime, "nodes": list(children)}

    devices = [node("device_group", "gpu", 8), node("device_group", "cpu", 2), node("device_group", "ram", None)]
    app = node("app", "train", 10, [node("run", "0", 10, [node("node", "host", 10, devices)])])
    out = read(json.dumps(app), "perun.json")
    assert out["energy_j"] == {"gpu": 8000.0, "cpu": 2000.0} and out["duration_s"] == 20
    empty = node("app", "train", None, [node("run", "0", None)])
    assert "no sensor" in read(json.dumps(empty), "perun.json")["error"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"stage_id": "x", "gpu_energy_joules": 5, "start_time"', "JSON"),
        ('{"a": [1, 2', "JSON of no known kind"),
        ("[" * 100_000, "power"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "JSON"),
        ('{"stage_id": "x", "duration_seconds": 5}', "no energy"),
    ],
)
def test_damaged_json_is_one_line(read, text: str, says: str) -> None:
    error = read(text, "x.json")["error"]
    assert says in error and "\n" not in error


def test_perf_text_quoted_in_a_mail_and_split_by_core(read) -> None:
    """Two runs, one line a core; the cores that do not count are missing, not zero."""
    quote = "> >   S0-D0-C0              1               {:.2f} Joules power/energy-pkg/\n"
    text = "".join(
        "> >    Performance counter stats for 'system wide':\n> >\n"
        + quote.format(joules)
        + "> >   S0-D0-C1              0      <not counted> Joules power/energy-pkg/\n> >\n"
        "> >          1.001404046 seconds time elapsed\n> >\n"
        for joules in (3.73, 2.09)
    )
    out = read(text, "mail.txt")
    assert [stage["total_j"] for stage in out["stages"]] == [3.73, 2.09]
    assert out["duration_s"] == pytest.approx(2 * 1.001404046)


def test_sacct_by_raw_id_and_energy_of_usage(read) -> None:
    text = (
        "JobIDRaw|State|ElapsedRaw|ConsumedEnergyRaw|TRESUsageInTot|\n7_0|COMPLETED|10|100||\n7_0.batch|COMPLETED|10|90||\n"
        "8|COMPLETED|33||cpu=00:00:00,energy=2067,mem=1965K|\n"
    )
    out = read(text, "s.txt")
    assert {stage["name"]: stage["total_j"] for stage in out["stages"]} == {"7_0": 100.0, "8": 2067.0}


def test_amd_smi_watch_with_its_hint_and_a_header_each_time(read) -> None:
    text = "'CTRL' + 'C' to stop watching output:\n" + "".join(
        f"timestamp,gpu,socket_power,power_management\n{1767760000 + n},0,{238 + n},ENABLED\n" for n in range(3)
    )
    out = read(text)
    assert out["total_energy_j"] == pytest.approx(238.5 + 239.5) and "repeated_header" in {
        w["code"] for w in out["warnings"]
    }


def test_codecarbon_task_file_holds_tasks_and_not_running_totals(read) -> None:
    header = f"task_name,{EMISSIONS}"
    rows = [
        f"{task},2026-01-03T15:36:0{n},p,r1,{n + 1},0,0,1,1,1,0.01,0.02,0.003,0.033,1,machine,3.3.0"
        for n, task in enumerate("ab")
    ]
    out = read("\n".join([header, *rows]))
    assert out["kwh"] == pytest.approx(0.066) and [stage["name"] for stage in out["stages"]] == ["a", "b"]


def test_blanks_of_dcgm_and_indented_text(read) -> None:
    text = "".join(
        f'\t\tDCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}", UUID="GPU-{gpu}",pod=""}} {watts}\n'
        for gpu, watts in enumerate(("7.5", "9223372036854775794", "140737488355328", "2147483632"))
    )
    out = read(text, "m.prom")
    assert out["details"]["n_gpus_with_power"] == 1 and out["details"]["power_w"] == 7.5


def test_wandb_system_events(read) -> None:
    lines = [
        {"_timestamp": 1767760000 + n, "_runtime": n, "system.gpu.0.powerWatts": 100 + 100 * (n % 2), "system.cpu": 5}
        for n in range(3)
    ]
    out = read("\n".join(map(json.dumps, lines)), "events.jsonl")
    assert out["total_energy_j"] == pytest.approx(300.0) and out["time"] == "epoch"
    table = "_runtime,_timestamp,system.gpu.0.powerWatts,system.gpu.0.powerPercent\n" + "".join(
        f"{line['_runtime']},{line['_timestamp']},{line['system.gpu.0.powerWatts']},50\n" for line in lines
    )
    assert read(table)["energy_j"] == {"0": pytest.approx(300.0)}
