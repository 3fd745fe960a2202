"""Finished probing runs of this home, with what they measured and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import list_runs
from kdwatch.rundir.reader import RunReader
from planners.probed import Probes
from planners.proberead import read_probes
from planners.runinfo import hardware_name, probing_stages

MOST_RUNS = 200
"""Newest runs that are looked at."""


def probe_runs() -> Iterator[Probes]:
    """The newest of each hardware in this home that are over and hold a probe; what cannot be read is left out."""
    seen: set[str | None] = set()
    for run in list_runs()[:MOST_RUNS]:
        try:
            manifest = RunReader(run).manifest
            found = None if hardware_name(manifest) in seen else read_probe_run(run, manifest)
        except UsageProblem:
            continue
        if found is not None:
            seen.add(found.hardware)
            yield found


def read_probe_run(run: Path, manifest: Mapping[str, Any] | None = None) -> Probes | None:
    """One run's probes; None where it is none, or goes on. Raises UsageProblem where it cannot be read."""
    manifest = manifest or RunReader(run).manifest
    if not probing_stages(manifest):
        return None
    from kdwatch.ledger.report import build_report
    from planners.runs import scope_of

    report = build_report(run)
    probes = tuple(read_probes(run)) if report["status"] != "running" else ()
    return Probes(probes, hardware_name(manifest), scope_of(report)) if probes else None
