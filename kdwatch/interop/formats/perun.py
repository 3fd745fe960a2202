"""perun's JSON results: energy metrics in a tree of runs, hosts and devices; values are raw x mag."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kdwatch.interop.formats.harness import parse_json
from kdwatch.interop.model import ImportedLog, ImportOptions, LoggedDevice, LoggedStage, LogProblem
from kdwatch.interop.source import TextSource
from kdwatch.interop.values import number_or_none

MAX_NODES = 100_000
GROUPS = {"gpu": ("gpu", "gpu"), "cpu": ("cpu", "package"), "ram": ("dram", "dram"), "dram": ("dram", "dram")}
Node = dict[str, Any]


def read(source: TextSource, options: ImportOptions) -> ImportedLog:
    """Read runs and devices. Raises LogProblem where no node has an energy (no sensor was there)."""
    root = parse_json(source)
    nodes = list(walk(root))
    runs = [node for node in nodes if str(node.get("type", "")).lower() == "run"] or [root]
    log = ImportedLog(source.path, "perun-json", source.encoding, rows=len(nodes))
    for number, run in enumerate(runs, 1):
        energy, seconds = metric(run, "energy"), metric(run, "runtime")
        parts = device_energies(run) or {"all": energy}
        stage = LoggedStage(str(run.get("id") or f"run {number}"), "other", None, seconds, parts)
        stage.details = {"energy_j_reported": energy}
        if stage.total_j is not None:
            log.stages.append(stage)
    if not log.stages:
        raise LogProblem("no energy metric: perun found no sensor", rows=len(nodes))
    _totals(log)
    return log


def walk(root: Node) -> Iterator[Node]:
    """The nodes of the tree, `nodes` being a list or an object."""
    stack, count = [root], 0
    while stack and count < MAX_NODES:
        node = stack.pop()
        count += 1
        yield node
        children = node.get("nodes")
        values = children.values() if isinstance(children, dict) else children if isinstance(children, list) else ()
        stack.extend(child for child in reversed(list(values)) if isinstance(child, dict))


def metric(node: Node, name: str) -> float | None:
    """A metric in SI units: `value`, `sum` or `mean`, times `metric_md.mag`; None where it is not there."""
    metrics = node.get("metrics")
    found = (
        next((v for k, v in metrics.items() if str(k).lower().endswith(name)), None)
        if isinstance(metrics, dict)
        else None
    )
    if not isinstance(found, dict):
        return None
    about = found.get("metric_md")
    mag = number_or_none(about.get("mag")) if isinstance(about, dict) else None
    value = next((v for key in ("value", "sum", "mean") if (v := number_or_none(found.get(key))) is not None), None)
    return None if value is None or value < 0 else value * (mag if mag else 1.0)


def device_energies(run: Node) -> dict[str, float | None]:
    """Joules of each device group below a run, hosts added."""
    out: dict[str, float | None] = {}
    for node in walk(run):
        if str(node.get("type", "")).lower() != "device_group":
            continue
        energy = metric(node, "energy")
        name = str(node.get("id", "device")).lower()
        if energy is not None:
            out[name] = (out.get(name) or 0.0) + energy
    return out


def _totals(log: ImportedLog) -> None:
    spans = [stage.duration_s for stage in log.stages]
    seconds = math.fsum(s for s in spans if s is not None) if all(s is not None for s in spans) else None
    for key in dict.fromkeys(key for stage in log.stages for key in stage.energy_j):
        energy = math.fsum(v for stage in log.stages if (v := stage.energy_j.get(key)) is not None)
        kind, scope = GROUPS.get(key.split("_")[0], ("other", "machine"))
        mean = energy / seconds if seconds else None
        log.devices.append(LoggedDevice(key, kind, scope, energy_j=energy, duration_s=seconds, mean_w=mean))
    log.total_j = math.fsum(device.energy_j or 0.0 for device in log.devices)
    log.duration_s = seconds
    log.n_gpus = None
