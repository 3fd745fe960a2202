"""Samples and stages as CSV or Parquet."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from kdwatch.interop.export.cells import csv_text, safe_cell
from kdwatch.rundir.reader import RunReader

SAMPLE_COLUMNS = ("t_s", "device", "counter_j", "power_w", "average_w")
"""Run time in seconds, device key of the manifest, raw counter in joules, watts."""
STAGE_COLUMNS = (
    "run", "stage", "kind", "status", "start_s", "end_s", "duration_s", "tokens", "input_tokens", "step", "total_steps",
    "loss", "energy_j", "gpu_j", "cpu_j", "dram_j", "ram_estimated_j", "other_j", "measured_j", "estimated_j",
    "net_energy_j", "bound_j", "mean_w", "j_per_token",
)  # fmt: skip
ENERGIES = {
    "energy_j": "total", "gpu_j": "gpu", "cpu_j": "cpu", "dram_j": "dram", "ram_estimated_j": "ram_estimated",
    "other_j": "other", "measured_j": "measured", "estimated_j": "estimated",
}  # fmt: skip


def sample_rows(run: Path) -> Iterator[tuple[Any, ...]]:
    """Every reading in order of time."""
    for sample in RunReader(run).iter_samples():
        yield (sample.t, sample.key, sample.counter_j, sample.power_w, sample.average_w)


def write_samples_csv(run: Path, out: IO[str]) -> None:
    """All samples as CSV, row by row."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SAMPLE_COLUMNS)
    for row in sample_rows(run):
        writer.writerow([safe_cell(value) for value in row])


def write_samples_parquet(run: Path, target: Path) -> None:
    """All samples as Parquet, streamed through a temporary CSV, so that memory stays bounded."""
    import polars as pl

    schema = {name: pl.String if name == "device" else pl.Float64 for name in SAMPLE_COLUMNS}
    with tempfile.TemporaryDirectory(prefix="kdwatch-export-") as folder:
        part = Path(folder, "samples.csv")
        with part.open("w", encoding="utf-8", newline="") as out:
            write_samples_csv(run, out)
        pl.scan_csv(part, schema=schema).sink_parquet(target, compression="zstd")


def stage_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Stages as flat rows, joules and seconds."""
    rows = []
    for stage in report["stages"]:
        row = {name: stage.get(name) for name in STAGE_COLUMNS if name in stage}
        row |= {"run": report["run_id"], "stage": stage["name"]}
        row |= {column: stage["energy_j"][part] for column, part in ENERGIES.items()}
        rows.append({name: row.get(name) for name in STAGE_COLUMNS})
    return rows


def stages_csv(report: Mapping[str, Any]) -> str:
    """Stages as CSV."""
    return csv_text(STAGE_COLUMNS, [list(row.values()) for row in stage_rows(report)])


def write_stages_parquet(report: Mapping[str, Any], target: Path) -> None:
    """Stages as Parquet."""
    import polars as pl

    texts = {"run", "stage", "kind", "status"}
    counts = {"tokens", "input_tokens", "step", "total_steps"}
    schema = {n: pl.String if n in texts else pl.Int64 if n in counts else pl.Float64 for n in STAGE_COLUMNS}
    pl.DataFrame(stage_rows(report), schema=schema).write_parquet(target, compression="zstd")
