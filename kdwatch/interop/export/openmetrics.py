"""A run as metrics: OpenMetrics for a file, the Prometheus text format for node_exporter's textfile collector."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples."""

    name: str
    """Without the `_total` of counters and the `_info` of info metrics."""
    kind: str
    """`counter`, `gauge` or `info`."""
    unit: str
    help: str
    samples: tuple[tuple[Labels, float], ...]


def families(report: Mapping[str, Any], power_w: Mapping[str, float | None] | None = None) -> list[Family]:
    """All metrics of a report; what is unknown has no sample. `power_w`: newest watts by device id."""
    run = {"run": str(report["run_id"])}
    about = {"name": report["name"], "regime": report["regime"], "status": report["status"]}
    found = [
        Family("kdwatch_run", "info", "", "What the run is.", ((run | _texts(about), 1.0),)),
        _single("kdwatch_run_duration_seconds", "gauge", "seconds", "Time since the start.", run, report["duration_s"]),
        _single("kdwatch_run_energy_joules", "counter", "joules", "Energy of the run.", run, report["total_j"]),
        _single(
            "kdwatch_run_unattributed_energy_joules",
            "counter",
            "joules",
            "Energy outside stages.",
            run,
            report["unattributed_j"],
        ),
        _single(
            "kdwatch_run_co2e_grams", "gauge", "grams", "CO2 equivalents, PUE included.", run, _grams(report["co2e_kg"])
        ),
        _devices(report, run),
        *_stages(report, run),
    ]
    if power_w is not None:
        samples = tuple((run | {"device": k}, w) for k, w in power_w.items() if w is not None)
        found.append(Family("kdwatch_device_power_watts", "gauge", "watts", "Newest power reading.", samples))
    return [family for family in found if family.samples]


def _texts(values: Mapping[str, Any]) -> Labels:
    return {key: str(value) for key, value in values.items() if value is not None}


def _grams(kilograms: float | None) -> float | None:
    return None if kilograms is None else 1000 * kilograms


def _single(name: str, kind: str, unit: str, help: str, labels: Labels, value: float | None) -> Family:
    return Family(name, kind, unit, help, () if value is None else ((labels, value),))


def _devices(report: Mapping[str, Any], run: Labels) -> Family:
    """Those in the total: whoever reads metrics adds them up."""
    samples = tuple(
        (
            run | {"device": str(d["id"]), "model": str(d["name"]), "kind": d["kind"], "source": d["source"]},
            d["total_j"],
        )
        for d in report["devices"]
        if d["total_j"] is not None and d["counted"]
    )
    return Family("kdwatch_device_energy_joules", "counter", "joules", "Energy of a device in the run.", samples)


def _stages(report: Mapping[str, Any], run: Labels) -> list[Family]:
    energy, tokens, seconds = [], [], []
    for stage in report["stages"]:
        labels = run | {"stage": str(stage["name"]), "stage_kind": str(stage["kind"])}
        for device in stage["devices"]:
            if device["energy_j"] is not None and device["counted"]:
                own = {"device": str(device["id"]), "kind": device["kind"], "source": device["source"]}
                energy.append((labels | own, device["energy_j"]))
        if stage["tokens"] is not None:
            tokens.append((labels, float(stage["tokens"])))
        if stage["duration_s"] is not None:
            seconds.append((labels, stage["duration_s"]))
    return [
        Family("kdwatch_stage_energy_joules", "counter", "joules", "Energy of a device in a stage.", tuple(energy)),
        Family("kdwatch_stage_tokens", "counter", "", "Tokens of a stage.", tuple(tokens)),
        Family("kdwatch_stage_duration_seconds", "gauge", "seconds", "Time of a stage.", tuple(seconds)),
    ]


def openmetrics(found: list[Family]) -> str:
    """OpenMetrics 1.0 text, with `# EOF`."""
    lines = []
    for family in found:
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_escape(family.help)}")
        lines += _samples(family)
    return "\n".join([*lines, "# EOF", ""])


def prometheus(found: list[Family]) -> str:
    """Prometheus text format 0.0.4: types name the samples as they are written; info metrics are gauges."""
    lines = []
    for family in found:
        name = _sample_name(family)
        lines.append(f"# HELP {name} {_escape(family.help)}")
        lines.append(f"# TYPE {name} {'gauge' if family.kind == 'info' else family.kind}")
        lines += _samples(family)
    return "\n".join([*lines, ""])


def _sample_name(family: Family) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.kind, "")


def _samples(family: Family) -> Iterator[str]:
    name = _sample_name(family)
    for labels, value in family.samples:
        if math.isfinite(value):
            text = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
            yield f"{name}{{{text}}} {value:.10g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
