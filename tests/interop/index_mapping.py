"""Where each key of tests/data/logs/index.json's `expected` is found in what `kdwatch import --json` prints.

docs/import-export.md shows the same table. A key that is not here makes the test fail: nothing of the index is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
Getter = Callable[[Json], Any]

STATS = {
    "n_samples": "n_samples",
    "duration_s": "duration_s",
    "energy_J_trapezoid": "energy_j",
    "mean_W_samples": "mean_w_samples",
    "mean_W_time_weighted": "mean_w",
    "min_W": "min_w",
    "max_W": "peak_w",
    "median_dt_s": "median_dt_s",
    "max_dt_s": "max_dt_s",
    "n_zero_dt": "n_zero_dt",
    "n_gaps": "n_gaps",
    "gap_seconds": "gap_seconds",
    "energy_J_excluding_gap_segments": "energy_j_excluding_gaps",
}
"""Of one device, or of one power column of a device."""

SKIPPED = {
    "energy_J_left_hold": "a rule that is not ours",
    "energy_J_n_times_median_dt": "a rule that is not ours",
    "wrong_if_keyed_by_index_column": "the wrong answer",
    "wrong_if_negatives_kept": "the wrong answer",
    "wrong_sum_of_rows_J": "the wrong answer; it is details.sum_of_rows_j",
    "own_summary_of_the_source": "compared within 1 % in a test of its own",
    "consecutive_repeats_of_power_draw": "a property of the sensor that no total needs",
    "sum_of_its_own_kwh_column": "the file's own column is 1000 times too high like its power",
    "columns": "checked with the error",
    "n_rows": "checked as rows",
}

STAGE = {
    "stage_id": "name",
    "n_samples": "n_samples",
    "n_gpus": None,
    "duration_s": "duration_s",
    "duration_seconds_field": "duration_seconds_field",
    "energy_J_reported": "energy_j_reported",
    "cpu_energy_J_reported": "cpu_energy_j_reported",
    "total_energy_J_reported": "total_energy_j_reported",
    "avg_W_reported": "avg_w_reported",
    "peak_W_reported": "peak_w_reported",
    "max_W_samples": "max_w_samples",
    "mean_W_samples": "mean_w_samples",
    "energy_J_mean_times_duration": "energy_j_mean_times_duration",
    "energy_J_samples_times_nominal_interval": "energy_j_samples_times_nominal_interval",
    "effective_interval_s": "effective_interval_s",
    "tokens": "tokens_reported",
    "joules_per_token_reported": "joules_per_token_reported",
    "joules_per_token_recomputed": "joules_per_token_recomputed",
    "codecarbon_kWh": "codecarbon_kwh",
    "codecarbon_kWh_field": "codecarbon_kwh_field",
    "total_equals_gpu_plus_cpu": "total_equals_gpu_plus_cpu",
    "cpu_equals_codecarbon_cpu": "cpu_equals_codecarbon_cpu",
}
"""Of one harness stage: an entry of `stages`."""

DETAILS = (
    "n_columns", "distinct_run_ids", "versions", "projects", "gpu_counts", "tracking_modes", "sum_over_runs",
    "naive_sum_over_rows", "max_abs_component_mismatch_kWh", "gpu_power_times_duration_over_gpu_energy",
    "cpu_power_times_duration_over_cpu_energy", "emissions_rate_times_duration_over_emissions",
    "distinct_stage_runs", "rows_by_source", "snapshot_rows", "zero_token_rows", "windows", "elapsed_s_sum",
    "span_s", "power_limits", "epochs", "pue", "n_gpus_with_power", "distinct_uuids", "blank", "zero",
    "with_energy", "states", "meters", "channels", "sentinel_rows", "channel_sum_differs", "crlf_lines",
    "n_intervals", "runs", "elapsed_s", "footer_j", "lines", "distinct_steps", "last_step", "total_steps",
    "last_elapsed_s", "max_remaining_s", "backward_steps", "has_tokens", "total_equals_sum", "nodes",
    "n_negative_dropped", "negative_values", "summary_tokens", "summary_duration_s",
    "later_starts_with_earlier",
)  # fmt: skip
"""Of the same name in `details`."""


def only(values: Mapping[str, Any]) -> Any:
    """The value of the only key."""
    assert len(values) == 1, values
    return next(iter(values.values()))


def detail(name: str) -> Getter:
    return lambda out: out["details"][name]


def device(out: Json, key: str | None = None) -> Json:
    found = [d for d in out["devices"] if key is None or d["key"] == key]
    assert len(found) == 1
    return found[0]


TOP: dict[str, Getter] = {
    "rows": lambda out: out["rows"],
    "n_samples": lambda out: out["n_samples"],
    "n_gpus": lambda out: out["n_gpus"],
    "duration_s": lambda out: out["duration_s"],
    "energy_J_trapezoid_total": lambda out: out["total_energy_j"],
    "energy_J_total": lambda out: out["total_energy_j"],
    "energy_J_trapezoid": lambda out: out["total_energy_j"],
    "max_W": lambda out: out["max_w"],
    "encoding": lambda out: out["encoding"],
    "kWh": lambda out: out["kwh"],
    "sum_J": lambda out: out["total_energy_j"],
    "total_J": lambda out: out["total_energy_j"],
    "run_energy_J": lambda out: out["total_energy_j"],
    "max_J": detail("max_j"),
    "energy_J_no_pue": detail("energy_j_no_pue"),
    "energy_J_with_pue": detail("energy_j_with_pue"),
    "carbon_intensity_g_per_kWh": detail("carbon_intensity_g_per_kwh"),
    "kgCO2_no_pue": lambda out: out["kg_co2e"],
    "gCO2": detail("g_co2e"),
    "power_W": detail("power_w"),
    "energy_counter_J": detail("energy_counter_j"),
    "job_energy_J": detail("job_energy_j"),
    "mean_W_all_nodes": detail("mean_w_all_nodes"),
    "mean_W_per_node": detail("mean_w_per_node"),
    "tres_energy_J": detail("tres_energy_j"),
    "rounded_field_J": detail("rounded_field_j"),
    "mean_W_samples": lambda out: device(out)["mean_w_samples"],
    "max_interval_W": detail("max_interval_w"),
    "wrong_trapezoid_of_J_as_W": lambda out: only(out["details"]["wrong_trapezoid_of_j_as_w"]),
    "pkg_J": lambda out: [stage["energy_j"]["energy-pkg"] for stage in out["stages"]],
    "ram_J": lambda out: [stage["energy_j"]["energy-ram"] for stage in out["stages"]],
    "mean_W_pkg": lambda out: out["mean_w"]["energy-pkg"],
    "mean_W_ram": lambda out: out["mean_w"]["energy-ram"],
    "energy_J_cumulative": lambda out: out["energy_j"]["package-0"],
    "footer_J": detail("footer_j"),
    "samples_per_gpu": lambda out: only({n: n for n in out["details"]["samples_per_gpu"].values()}),
    "footer_mean_W": detail("footer_mean_w"),
    "energy_J_per_epoch_first": detail("energy_j_per_epoch_first"),
    "sum_energy_J_one_epoch_each": detail("sum_energy_j_one_epoch_each"),
    "first_window_mean_W_per_gpu": detail("first_window_mean_w"),
    "energy_J_per_gpu": lambda out: out["energy_j"],
    "summary_total_energy_J": detail("summary_total_energy_j"),
    "summary_local_start_minus_stage_epoch_start_h": detail("summary_local_start_minus_stage_epoch_start_h"),
    "naive_sum_gpu_J": detail("naive_sum_gpu_j"),
    "sum_gpu_J_max_per_stage_run": detail("sum_gpu_j_max_per_stage_run"),
    "wrong_if_summed_J": detail("sum_of_snapshots_j"),
    "as_labelled": lambda out: device(out)["as_labelled_j"],
    "min_W": lambda out: device(out)["min_w"],
    "sum_W": lambda out: device(out)["mean_w_samples"] * out["n_samples"],
    "check_total_column": detail("total_equals_sum"),
    "device_names": lambda out: {d["key"]: d["name"] for d in out["devices"]},
    "zero_readings": lambda out: {d["key"]: d["zero_readings"] for d in out["devices"]},
    "zero_as_missing": lambda out: {d["key"]: d["energy_j_zero_as_missing"] for d in out["devices"]},
} | {name: detail(name) for name in DETAILS}  # fmt: skip
