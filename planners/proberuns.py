"""Finished probing runs of this home, newest first, with what they measured and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import list_runs
from kdwatch.rundir.reader import RunReader
from planners.probed import Probes
from planners.proberead import USES, read_probes
from planners.runinfo import hardware_name, recipe_stages

MOST_RUNS = 200
"""Newest runs that are looked at."""


def probe_runs() -> Iterator[Probes]:
    """All of this home that are over and hold a probe; what cannot be read is left out."""
    for run in list_runs()[:MOST_RUNS]:
        try:
            found = read_probe_run(run)
        except UsageProblem:
            continue
        if found is not None:
            yield found


def read_probe_run(run: Path) -> Probes | None:
    """One run's probes; None where it is none, or goes on. Raises UsageProblem where it cannot be read."""
    manifest = RunReader(run).manifest
    if not any(stage.get("uses") == USES for stage in recipe_stages(manifest)):
        return None
    from kdwatch.ledger.report import build_report
    from planners.runs import scope_of

    report = build_report(run)
    probes = tuple(read_probes(run)) if report["status"] != "running" else ()
    return Probes(probes, hardware_name(manifest), scope_of(report)) if probes else None
