"""`kdwatch import` without the command line: paths in, one run and one object a file out."""

from __future__ import annotations

import difflib
import secrets
import shutil
import time
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdwatch.interop.formats.harness_dir import files_below, is_harness
from kdwatch.interop.load import READERS, load_log
from kdwatch.interop.model import ImportedLog, ImportOptions, LogProblem
from kdwatch.interop.source import Watch
from kdwatch.interop.summary import log_json, problem_json
from kdwatch.interop.timeline import pieces_of
from kdwatch.interop.to_run import write_run
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import runs_dir

MAX_INTERVAL_S = 86_400.0
MOST_STAGES = 20_000


@dataclass(slots=True)
class Imported:
    """What an import gave."""

    run: Path | None = None
    """The run directory; None where no file has energy over time."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """One object a file (docs/import-export.md)."""
    notes: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """The errors of the files that could not be read, each one line."""
        return [entry["error"] for entry in self.files if entry["error"]]

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "schema": 1,
            "run_id": self.run.name if self.run else None,
            "run": str(self.run) if self.run else None,
            "files": self.files,
            "notes": self.notes,
        }


def check_options(format: str | None, interval_s: float | None, zone: str | None) -> ImportOptions:
    """Options that make sense. Raises UsageProblem."""
    if format is not None and format not in READERS:
        raise UsageProblem(f"--format {format}: unknown; one of {', '.join(READERS)}")
    if interval_s is not None and not 1e-6 <= interval_s <= MAX_INTERVAL_S:
        raise UsageProblem(f"--interval {interval_s:g}: seconds between samples, above 0 and at most a day")
    if zone is not None:
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            near = difflib.get_close_matches(zone, sorted(zoneinfo.available_timezones()), 3, 0.4)
            hint = f"; did you mean {', '.join(near)}?" if near else "; use an IANA name such as Europe/Paris"
            raise UsageProblem(f"--tz {zone}: no such time zone{hint}") from None
    return ImportOptions(format, interval_s, zone)


def expand(paths: list[Path]) -> dict[Path, bool]:
    """Files, and directories of the harness as one; of other directories their files. True: named by the user."""
    found: dict[Path, bool] = {}
    for path in paths:
        if path.is_dir() and not is_harness(path):
            inside = list(files_below(path))
            if not inside:
                raise UsageProblem(f"{path}: no files in it; give log files")
            for file in inside:
                found.setdefault(file, False)
        else:
            found[path] = True
    return found


def import_paths(
    paths: list[Path],
    options: ImportOptions,
    name: str | None = None,
    watch: Callable[[Path], Watch | None] | None = None,
    rows: Callable[[int], None] | None = None,
) -> Imported:
    """Read every path and write one run of those that could be read.

    Raises UsageProblem where the files cannot be put on one time line or the run cannot be written.
    """
    result = Imported()
    logs: list[ImportedLog] = []
    other: dict[Path, UsageProblem] = {}
    for path, named in expand(paths).items():
        try:
            log = load_log(path, options, watch(path) if watch else None)
        except UsageProblem as problem:
            if isinstance(problem, LogProblem) and problem.no_log and not named:
                other[path] = problem
            else:
                result.files.append(problem_json(str(path), problem))
            continue
        logs.append(log)
        result.files.append(log_json(log))
    if not result.files:  # a directory without a single log: say of each file why
        result.files += [problem_json(str(path), problem) for path, problem in other.items()]
    elif other:
        names = ", ".join(path.name for path in other)
        result.notes.append(f"{len(other)} files are no logs and were passed over: {names}")
    usable = [log for log in logs if pieces_of(log)]
    if not usable:
        if logs:
            result.notes.append("no run made: no file has a duration; give --interval SECONDS if you know it")
        return result
    stages = sum(len(pieces_of(log)) for log in usable)
    if stages > MOST_STAGES:
        result.notes.append(f"no run made: {stages} stages are too many for one run; import fewer rows")
        return result
    result.notes += [f"{log.path.name}: not in the run, it has no time" for log in logs if log not in usable]
    title = name or (usable[0].path.stem if len(usable) == 1 else f"{usable[0].path.stem}+{len(usable) - 1}")
    _write_aside(result, usable, title, options, rows)
    return result


def _write_aside(
    result: Imported, logs: list[ImportedLog], title: str, options: ImportOptions, rows: Callable[[int], None] | None
) -> None:
    """Write under a hidden name, then rename: an import that is stopped leaves no half run."""
    run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(title)}-{secrets.token_hex(2)}"
    aside, final = runs_dir() / f".{run_id}", runs_dir() / run_id
    try:
        result.notes += write_run(aside, logs, run_id=run_id, name=title, zone=options.zone, watch=rows)
        aside.rename(final)
    except OSError as error:
        raise UsageProblem(f"{final}: cannot be written ({error.strerror}); free space or set KDWATCH_HOME") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    result.run = final


def slug(text: str) -> str:
    """A name that is safe in a path: letters, digits and dashes."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in text).strip("-")
    return kept[:40].strip("-") or "import"
