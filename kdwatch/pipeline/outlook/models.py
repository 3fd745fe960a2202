"""Size and vocabulary of a model without loading it: from its directory, the hub's cache here, or what is published."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdwatch.recipes.published import published


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model; None is unknown."""

    params: float | None = None
    vocabulary: int | None = None
    """Ids; where only the padded size is known, that one."""
    folder: Path | None = None
    """Its directory, if it is on this disk."""
    source: str | None = None
    """`weights`, `published` or `name`."""

    @property
    def params_b(self) -> float | None:
        """Billions of parameters."""
        return None if self.params is None else self.params / 1e9


def model_facts(name: str | None, workdir: Path) -> ModelFacts:
    """Facts of a model that a recipe names; paths are relative to `workdir`. Uses no network."""
    if not name:
        return ModelFacts()
    folder = model_folder(name, workdir)
    if folder is not None:
        return _stored(folder, name)
    known = published(name)
    if known:
        return ModelFacts(known.parameters, known.real_vocab_size, None, "published")
    return _named(name, None)


def model_folder(name: str, workdir: Path) -> Path | None:
    """Directory of a model on this disk: the path itself, or the newest snapshot in the hub's cache."""
    path = workdir / Path(name).expanduser()
    if path.is_dir():
        return path
    if name.count("/") != 1 or name.startswith((".", "~")):
        return None
    snapshots = hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    try:
        found = sorted((p for p in snapshots.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    except OSError:
        return None
    return found[-1] if found else None


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it fetched."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("HF_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache" / "huggingface") / "hub"


def _stored(folder: Path, name: str) -> ModelFacts:
    from planners.modelsize import stored_params_b

    params_b = stored_params_b(folder)
    if params_b is None:
        return _named(name, folder)
    config = _json(folder / "config.json")
    size = config.get("vocab_size")
    vocabulary = size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None
    return ModelFacts(params_b * 1e9, vocabulary, folder, "weights")


def _named(name: str, folder: Path | None) -> ModelFacts:
    from planners.modelsize import named_params_b

    params_b = named_params_b(name)
    return ModelFacts(None if params_b is None else params_b * 1e9, None, folder, "name" if params_b else None)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
