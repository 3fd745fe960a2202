"""Where runs live, and which run an argument names."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kdwatch.rundir.errors import NotARun, RunNotFound
from kdwatch.rundir.text import clean

MANIFEST = "manifest.json"


def home() -> Path:
    """`$KDWATCH_HOME`, else `$XDG_STATE_HOME/kdwatch`, else `~/.local/state/kdwatch`."""
    own = os.environ.get("KDWATCH_HOME")
    if own:
        return Path(own).expanduser()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state).expanduser() if state else Path.home() / ".local" / "state") / "kdwatch"


def runs_dir() -> Path:
    """Directory of runs; it may not exist yet."""
    return home() / "runs"


def artifacts_dir() -> Path:
    """Directory of stored stage outputs; it may not exist yet."""
    return home() / "artifacts"


def is_run(path: Path) -> bool:
    """Whether a directory holds a manifest."""
    return (path / MANIFEST).is_file()


def list_runs() -> list[Path]:
    """Run directories under `runs_dir()`, newest first by the manifest's `created_at`."""
    root = runs_dir()
    try:
        found = [p for p in root.iterdir() if not p.name.startswith(".") and is_run(p)]
    except OSError:
        return []
    return sorted(found, key=lambda p: (_created(p), p.name), reverse=True)


def _created(run: Path) -> str:
    try:
        with (run / MANIFEST).open("rb") as f:
            return str(json.loads(f.read()).get("created_at") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def resolve_run(arg: str | Path) -> Path:
    """The run directory that `arg` names: a path, a run id, a unique prefix of one, or `last`.

    Raises RunNotFound (nothing or several match) or NotARun (the path is no run directory).
    """
    text = str(arg)
    if isinstance(arg, str) and text == "last":
        runs = list_runs()
        if not runs:
            raise RunNotFound(f"no runs in {runs_dir()}: start one with `kdwatch demo` or `kdwatch run RECIPE`")
        return runs[0]
    path = Path(text).expanduser()
    if isinstance(arg, Path) or os.sep in text or text in {".", ".."} or is_run(path):
        return _checked(path)
    return _by_id(text, path)


def _by_id(text: str, path: Path) -> Path:
    exact = runs_dir() / text
    if text and is_run(exact):
        return exact
    matches = [run for run in list_runs() if text and run.name.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    shown = clean(text, 80)
    if matches:
        names = ", ".join(clean(run.name, 60) for run in matches[:4]) + (", ..." if len(matches) > 4 else "")
        raise RunNotFound(f"{len(matches)} runs begin with '{shown}' ({names}): give more of the id")
    if text and path.exists():
        return _checked(path)
    raise RunNotFound(f"no run '{shown}' in {runs_dir()}: see `kdwatch ls`, or give a path")


def _checked(path: Path) -> Path:
    if is_run(path):
        return path
    shown = clean(path, 200)
    if not path.exists():
        raise RunNotFound(f"{shown}: no such directory: give a run directory, an id (`kdwatch ls`) or `last`")
    if not path.is_dir():
        raise NotARun(f"{shown}: not a directory: a run is a directory that holds {MANIFEST}")
    raise NotARun(f"{shown}: not a run directory, it holds no {MANIFEST}: give a run from `kdwatch ls`")
