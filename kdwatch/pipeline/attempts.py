"""Which runs worked on an output before it was whole: a stage that resumes stands on energy that others spent."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from kdwatch.ledger.load import load_ledger
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import runs_dir

NAME = ".attempts.jsonl"


@dataclass(frozen=True)
class Attempt:
    """One run that worked on an output and did not finish it."""

    run: str
    stage: str
    energy_j: float | None
    """Joules of its stage; None where the run is gone or knew no energy."""


def note(staging: Path, run: str, stage: str) -> None:
    """Write down that a run begins to work on an output. Raises OSError."""
    fd = os.open(staging / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, (json.dumps({"run": run, "stage": stage}) + "\n").encode())
    finally:
        os.close(fd)


def earlier(staging: Path, run: str) -> list[Attempt]:
    """Attempts of other runs, each once, with what they took by their own records."""
    try:
        lines = (staging / NAME).read_text(errors="replace").splitlines()
    except OSError:
        return []
    found: dict[tuple[str, str], Attempt] = {}
    for line in lines:
        try:
            value = json.loads(line)
            key = str(value["run"]), str(value["stage"])
        except (ValueError, KeyError, TypeError):
            continue
        if key[0] != run and key not in found:
            found[key] = Attempt(*key, _energy_j(*key))
    return list(found.values())


def _energy_j(run: str, stage: str) -> float | None:
    if Path(run).name != run:
        return None
    try:
        totals = load_ledger(runs_dir() / run).totals()
    except (UsageProblem, OSError, ValueError):
        return None
    known = [s.energy_j.get("total") for s in totals.stages if s.name == stage]
    return known[0] if known else None
