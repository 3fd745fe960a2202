"""Content hashes: of files and directories, remembered by size, time and inode, and of JSON values."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from kdwatch.rundir.paths import home

CHUNK_B = 1 << 20


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: keys sorted, no spaces. Raises ValueError for NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def hash_value(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while chunk := f.read(CHUNK_B):
            digest.update(chunk)
    return digest.hexdigest()


def walk_files(folder: Path) -> list[Path]:
    """Regular files below a directory, sorted; hidden ones and links out of it are left out."""
    found = []
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(d for d in folders if not d.startswith("."))
        found += [Path(base) / n for n in sorted(names) if not n.startswith(".")]
    return [p for p in found if p.is_file()]


class HashMemory:
    """Hashes of files seen before, so that a model of many gigabytes is read once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home() / "cache" / "hashes.json"
        self._known = self._load()
        self._changed = False

    def _load(self) -> dict[str, list[Any]]:
        try:
            data = json.loads(self.path.read_text())
            return data if isinstance(data, dict) else {}
        except (OSError, ValueError):
            return {}

    def of_file(self, path: Path) -> str:
        """Hash of a file's content. Raises OSError."""
        stat = path.stat()
        mark = [stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns]
        key = str(path.resolve())
        known = self._known.get(key)
        if isinstance(known, list) and known[:4] == mark:
            return str(known[4])
        found = hash_file(path)
        self._known[key] = [*mark, found]
        self._changed = True
        return found

    def of_path(self, path: Path) -> str:
        """Hash of a file, or of a directory's file names and contents. Raises OSError."""
        if not path.is_dir():
            return self.of_file(path)
        return hash_value({str(p.relative_to(path)): self.of_file(p) for p in walk_files(path)})

    def save(self) -> None:
        """Keep what was learnt; a home that cannot be written costs only time."""
        if not self._changed:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            part.write_text(json.dumps(self._known))
            part.replace(self.path)
            self._changed = False
        except OSError:
            pass
