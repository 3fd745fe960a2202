"""A metrics file for node_exporter's textfile collector, kept up to date while a run goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdwatch.interop.export.openmetrics import families, prometheus
from kdwatch.ledger.load import feed, open_live
from kdwatch.ledger.report import report_of
from kdwatch.rundir.errors import UsageProblem

Change = Callable[[Any], Any]


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that a scrape never sees half of it. Raises UsageProblem."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageProblem(f"{path}: cannot be written ({error.strerror}); check the directory") from None


def follow(
    run: Path,
    target: Path,
    every_s: float,
    change: Change,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    **grid: Any,
) -> int:
    """Write the file now and every `every_s` seconds until the run is over; returns how often it was written.

    `grid`: `region`, `g_per_kwh` and `pue` of `report_of`, over what the run recorded.

    The first and the last time a failure raises UsageProblem; between them it is said once and tried again.
    """
    reader, ledger = open_live(run)
    written, failing = 0, False
    while True:
        running = reader.status() == "running"
        feed(ledger, reader.poll())
        totals = ledger.totals()
        report = change(report_of(reader.manifest, totals, **grid))
        report["status"] = reader.status()
        power = {str(change(d.id)): d.power_w if running else None for d in totals.devices if d.counted}
        try:
            write_atomically(target, prometheus(families(report, power)))
            written, failing = written + 1, False
        except UsageProblem as problem:
            if not written or not running:
                raise
            if not failing:
                say(f"{problem}; trying again every {every_s:g} s")
            failing = True
        if not running:
            return written
        sleep(every_s)
