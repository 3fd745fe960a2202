"""The store of stage outputs: addressed by what made them, whole or absent, verified when opened, counted when used.

$KDWATCH_HOME/artifacts/KIND/ID/            the output's files
                               artifact.json    what made it, with what energy; its files' sizes and hashes
                               uses.jsonl       one line for each run that used it
$KDWATCH_HOME/artifacts/.work/              outputs being made, and locks
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.pipeline.hashing import hash_file, hash_value, walk_files
from kdwatch.pipeline.locks import MakerLock
from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import artifacts_dir
from kdwatch.rundir.text import clean

META = "artifact.json"
USES = "uses.jsonl"
OWN = {META, USES}
SHORT = 16
"""Characters of an id that tables show."""


@dataclass(frozen=True)
class Artifact:
    """One stored output."""

    path: Path
    meta: dict[str, Any]

    @property
    def id(self) -> str:
        """SHA-256 over what made it."""
        return str(self.meta["id"])

    @property
    def kind(self) -> str:
        """`preprocess`, `teacher_logits`, ..."""
        return str(self.meta["kind"])

    @property
    def energy_j(self) -> float | None:
        """Energy that made it, in joules; None if unknown."""
        value = self.meta.get("energy_j")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def estimated(self) -> bool | None:
        """Whether a model told a part of that energy, not a sensor; None where that was not recorded."""
        value = self.meta.get("estimated")
        return value if isinstance(value, bool) else None

    @property
    def size_b(self) -> int:
        """Bytes of its files."""
        return sum(int(entry["size"]) for entry in self.meta["files"].values())

    @property
    def made_by(self) -> dict[str, Any]:
        """`{"run", "stage"}`."""
        return dict(self.meta.get("made_by") or {})

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """`{"run", "stage", "energy_j"}` of earlier runs that worked on it and did not finish."""
        found = self.meta.get("attempts")
        entries = found if isinstance(found, list) else []
        return [entry for entry in entries if isinstance(entry, dict) and {"run", "energy_j"} <= entry.keys()]

    def uses(self) -> list[dict[str, Any]]:
        """Runs that used it, the one that made it first; each run once."""
        found: dict[str, dict[str, Any]] = {}
        try:
            for line in (self.path / USES).read_text(errors="replace").splitlines():
                entry = _json_object(line)
                if entry and isinstance(entry.get("run"), str):
                    found.setdefault(entry["run"], entry)
        except OSError:
            pass
        return list(found.values())

    def add_use(self, run: str) -> int:
        """Record that a run uses it; returns how many runs have, this one included."""
        line = json.dumps({"run": run, "wall": round(time.time(), 3)}) + "\n"
        try:
            fd = os.open(self.path / USES, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)
        except OSError:
            pass
        known = {entry["run"] for entry in self.uses()} | {run}
        return len(known)

    def problems(self, full: bool = True) -> list[str]:
        """What is wrong with its files: missing, other size, other content (full: contents are read)."""
        found = []
        for name, entry in self.meta["files"].items():
            path = self.path / name
            try:
                if path.stat().st_size != entry["size"]:
                    found.append(f"{name}: size changed")
                elif full and hash_file(path) != entry["sha256"]:
                    found.append(f"{name}: content changed")
            except OSError as error:
                found.append(f"{name}: {error.strerror or 'cannot be read'}")
        return found


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _valid_meta(data: dict[str, Any] | None) -> bool:
    files = data.get("files") if data else None
    return (
        data is not None
        and isinstance(data.get("id"), str)
        and isinstance(data.get("kind"), str)
        and isinstance(files, dict)
        and all(_valid_file(name, entry) for name, entry in files.items())
    )


def _valid_file(name: str, entry: Any) -> bool:
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    return (
        inside
        and isinstance(entry, dict)
        and isinstance(entry.get("size"), int)
        and isinstance(entry.get("sha256"), str)
    )


def artifact_id(
    uses: str, settings: Mapping[str, Any], inputs: Mapping[str, str], files: Mapping[str, str], code_version: str
) -> str:
    """Address of an output: settings that matter, input artifacts, hashes of input files, code version."""
    return hash_value(
        {
            "uses": uses,
            "settings": dict(settings),
            "inputs": dict(inputs),
            "files": dict(files),
            "code_version": code_version,
        }
    )


class ArtifactStore:
    """All artifacts of a home."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or artifacts_dir()
        self.work = self.root / ".work"

    def path(self, kind: str, id: str) -> Path:
        """Where an artifact lies or would lie."""
        return self.root / kind / id

    def open(self, kind: str, id: str) -> Artifact | None:
        """The artifact if it is there and whole; one that is damaged is moved aside, so that it is made again."""
        artifact = self.peek(kind, id)
        if artifact is not None and artifact.problems():
            self._set_aside(artifact.path)
            return None
        return artifact

    def peek(self, kind: str, id: str) -> Artifact | None:
        """The artifact if it is there, unverified."""
        artifact = self._read(self.path(kind, id))
        return artifact if artifact is not None and artifact.id == id else None

    def _read(self, path: Path) -> Artifact | None:
        try:
            data = _json_object((path / META).read_text(errors="replace"))
        except OSError:
            return None
        return Artifact(path, data) if data is not None and _valid_meta(data) else None

    def _set_aside(self, path: Path) -> None:
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.rename(self.work / f"damaged-{path.name[:SHORT]}-{time.time_ns()}")
        except OSError:
            pass

    def __iter__(self) -> Iterator[Artifact]:
        """Artifacts, by kind, then oldest first."""
        kinds = (
            sorted(p for p in self.root.iterdir() if p.is_dir() and not p.name.startswith("."))
            if self.root.is_dir()
            else []
        )
        for kind in kinds:
            found = [a for p in kind.iterdir() if (a := self._read(p))]
            yield from sorted(found, key=lambda a: (str(a.meta.get("created_at")), a.id))

    def find(self, prefix: str) -> Artifact:
        """The one artifact whose id begins so. Raises UsageProblem if none or several do."""
        matches = [a for a in self if prefix and a.id.startswith(prefix)]
        if len(matches) == 1:
            return matches[0]
        shown = clean(prefix, 80)
        if matches:
            raise UsageProblem(f"{len(matches)} artifacts begin with '{shown}': give more of the id")
        raise UsageProblem(f"no artifact '{shown}' in {self.root}: see `kdwatch artifacts ls`")

    def lock(self, kind: str, id: str) -> MakerLock:
        """Lock of the maker of one artifact."""
        return MakerLock(self.work / f"lock-{kind}-{id[:32]}")

    def staging(self, kind: str, id: str, owner: str | None = None) -> Path:
        """Directory that a stage writes its output into. It stays after a crash, so that the stage can resume.
        `owner`: a run that makes it beside another one that makes the same."""
        path = self.work / (f"{kind}-{id[:32]}" + (f"-{owner}" if owner else ""))
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageProblem(f"{path}: cannot be made ({error.strerror}): free space or set KDWATCH_HOME") from None
        return path

    def commit(self, staging: Path, meta: dict[str, Any]) -> Artifact:
        """Make a finished output an artifact, in one rename. `meta`: kind, id, made_by, energy_j, inputs, settings, ...

        Raises OSError where the disk refuses, UsageProblem where the stage wrote nothing.
        """
        files = {}
        for path in walk_files(staging):
            name = str(path.relative_to(staging))
            if name not in OWN:
                files[name] = {"sha256": hash_file(path), "size": path.stat().st_size}
                sync(path)
        if not files:
            raise UsageProblem(f"{staging}: the stage ended without an output")
        whole = {**meta, "files": files}
        part = staging / f".{META}.part"
        part.write_text(json.dumps(whole, indent=1, allow_nan=False))
        sync(part)
        part.replace(staging / META)
        target = self.path(meta["kind"], meta["id"])
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = self._read(target)
        if old is not None:
            self.remove(old)
        elif target.exists():
            self._set_aside(target)
        staging.rename(target)
        return Artifact(target, whole)

    def remove(self, artifact: Artifact) -> None:
        """Delete an artifact: first out of sight, then its files."""
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        gone = self.work / f"removed-{artifact.id[:SHORT]}-{time.time_ns()}"
        artifact.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def unfinished(self) -> list[Path]:
        """What failed or killed stages left, and damaged outputs that were set aside; nothing that is locked now."""
        held = [p.name.removeprefix("lock-") for p in self.work.glob("lock-*") if MakerLock(p).is_held()]
        entries = sorted(p for p in self.work.glob("*") if not p.name.startswith("lock-"))
        return [p for p in entries if not p.name.startswith(tuple(held))]


def sync(path: Path) -> None:
    """Have a file's bytes on disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
