"""A run as CodeCarbon's emissions.csv: one row a stage, the columns of version 3.2 and later."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kdwatch.interop.export.cells import csv_text
from kdwatch.ledger.totals import known_sum
from kdwatch.ledger.units import KWH_J

COLUMNS = (
    "timestamp", "project_name", "run_id", "experiment_id", "duration", "emissions", "emissions_rate", "cpu_power",
    "gpu_power", "ram_power", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "water_consumed",
    "country_name", "country_iso_code", "region", "cloud_provider", "cloud_region", "os", "python_version",
    "codecarbon_version", "cpu_count", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude", "ram_total_size",
    "tracking_mode", "cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "ram_used_gb",
    "on_cloud", "pue", "wue",
)  # fmt: skip
NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
VERSION = "3.3.0"
"""Version whose columns these are; the column says which columns to expect, not who wrote the file."""


def emissions_csv(report: Mapping[str, Any], manifest: Mapping[str, Any], redacted: bool = False) -> str:
    """The document. Energies in kWh, power in W, emissions in kg, times in UTC without a zone. Unknown is empty.

    `emissions` includes the PUE of the run, as CodeCarbon's does; energies do not.
    """
    rows = [_row(report, manifest, stage, redacted) for stage in report["stages"] if stage["duration_s"] is not None]
    return csv_text(COLUMNS, rows)


def _row(report: Mapping[str, Any], manifest: Mapping[str, Any], stage: Mapping[str, Any], redacted: bool) -> list[Any]:
    energy, seconds = stage["energy_j"], stage["duration_s"]
    ram = "ram_estimated" if energy["dram"] is None else "dram"
    kwh = _kwh(energy["total"])
    kg = _kg(report, kwh)
    versions = manifest.get("versions") or {}
    hardware = manifest.get("hardware") or {}
    gpus = [d for d in stage["devices"] if d["kind"] == "gpu"]
    values: dict[str, Any] = {
        "timestamp": _end(report, stage),
        "project_name": f"{report['name']}/{stage['name']}",
        "run_id": str(uuid.uuid5(NAMESPACE, f"kdwatch:{report['run_id']}:{stage['name']}")),
        "experiment_id": str(uuid.uuid5(NAMESPACE, f"kdwatch:{report['run_id']}")),
        "duration": seconds,
        "emissions": kg,
        "emissions_rate": kg / seconds if kg is not None and seconds else None,
        "energy_consumed": kwh,
        "country_iso_code": report.get("region") if report.get("region") != "custom" else None,
        "os": None if redacted else versions.get("system"),
        "python_version": versions.get("python"),
        "codecarbon_version": VERSION,
        "cpu_count": hardware.get("cores"),
        "cpu_model": hardware.get("cpu"),
        "gpu_count": len(gpus) if gpus else None,
        "gpu_model": _models([str(d["name"]) for d in gpus]),
        "ram_total_size": hardware["memory_b"] / 2**30 if hardware.get("memory_b") else None,
        "tracking_mode": "machine",
        "on_cloud": "N",
        "pue": report.get("pue"),
    }
    for part, kind in (("cpu", "cpu"), ("gpu", "gpu"), ("ram", ram)):
        values[f"{part}_energy"] = _kwh(energy[kind])
        values[f"{part}_power"] = _mean_w(stage, kind)
    return [values.get(column) for column in COLUMNS]


def _mean_w(stage: Mapping[str, Any], kind: str) -> float | None:
    """Sum over the devices of a kind that the stage's energy counts: of a stage with others inside, the mean while no
    other ran, as in the report."""
    return known_sum(d["mean_w"] for d in stage["devices"] if d["kind"] == kind and d["counted"])


def _kwh(joules: float | None) -> float | None:
    return None if joules is None else joules / KWH_J


def _kg(report: Mapping[str, Any], kwh: float | None) -> float | None:
    factor = report.get("grid_g_per_kwh")
    return None if kwh is None or factor is None else kwh * (report.get("pue") or 1.0) * factor / 1000


def _end(report: Mapping[str, Any], stage: Mapping[str, Any]) -> str | None:
    if not report.get("started_at") or stage["end_s"] is None:
        return None
    start = datetime.fromisoformat(report["started_at"].replace("Z", "+00:00"))
    return (
        (start.astimezone(UTC) + timedelta(seconds=stage["end_s"])).replace(tzinfo=None).isoformat(timespec="seconds")
    )


def _models(names: list[str]) -> str | None:
    """`4 x NVIDIA L40S`, as CodeCarbon writes it; several models one after the other."""
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or None
