"""Rows and tokens of a data set before it is prepared: counted, sampled, or bounded by the settings."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kdwatch.pipeline.outlook.models import model_folder

SAMPLE_ROWS = 400
"""Rows that are encoded; of larger data this many, chosen by chance (the same ones each time)."""
LARGEST_B = 200_000_000
"""Files above this size are not read for a dry run."""

COUNTED, SAMPLED, AT_MOST = "counted", "sampled", "at most"


@dataclass(frozen=True)
class DataCount:
    """Rows of a prepared data set, with its tokens. `how`: counted, sampled, at most."""

    rows: float
    tokens: float
    response: float
    """Tokens that are answers."""
    how: str
    training: float = 1.0
    """Share of the rows that is trained on; the rest is held out for validation."""
    read: float | None = None
    """Tokens of all rows that were encoded, of which a `limit` kept a part."""

    @property
    def prompt(self) -> float:
        """Tokens that are no answers."""
        return self.tokens - self.response

    def part(self, share: float) -> DataCount:
        """The same for a share of the rows."""
        rows = round(self.rows * share)
        return replace(self, rows=rows, tokens=self.tokens * share, response=self.response * share)


def stored_count(folder: Path) -> DataCount | None:
    """Count of a stored data set or generated set, from its `meta.json`."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        values = [meta[name] for name in ("rows", "tokens", "response_tokens")]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    ok = all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)
    if not ok:
        return None
    held_out = meta.get("validation_rows")
    training = 1.0 - held_out / values[0] if isinstance(held_out, int) and values[0] else 1.0
    rows, tokens, response = map(float, values)
    return DataCount(rows, tokens, response, COUNTED, training)


def raw_count(settings: Mapping[str, Any], workdir: Path) -> DataCount | None:
    """Count of what `preprocess` with these settings would write; None where neither data nor settings say."""
    found = _of_data(settings, workdir) or _bound(settings)
    return found and replace(found, training=1.0 - float(settings["validation"]))


def _bound(settings: Mapping[str, Any]) -> DataCount | None:
    """Rows and length as the settings limit them: every row as long as it may be."""
    limit, longest = settings.get("limit"), settings.get("max_length")
    if not limit or not longest:
        return None
    return DataCount(float(limit), float(limit) * longest, float(limit) * longest, AT_MOST)


def _of_data(settings: Mapping[str, Any], workdir: Path) -> DataCount | None:
    path = workdir / Path(str(settings["data"])).expanduser()
    folder = model_folder(str(settings["tokenizer"]), workdir)
    if folder is None or str(settings["data"]).startswith("hub:") or not _readable(path):
        return None
    try:
        return _encoded(settings, path, folder)
    except ImportError:  # kdwatch without its training extra
        return None


def _readable(path: Path) -> bool:
    files = [p for p in path.iterdir() if p.is_file()] if path.is_dir() else [path]
    try:
        return sum(p.stat().st_size for p in files) <= LARGEST_B
    except OSError:
        return False


def _encoded(settings: Mapping[str, Any], path: Path, folder: Path) -> DataCount | None:
    from kdwatch.stages.data import chat, rows, tokenizer
    from kdwatch.stages.preprocess import fit
    from kdwatch.stages.problem import StageProblem
    from kdwatch.stages.settings import PreprocessSettings

    whole = PreprocessSettings.model_validate(settings)
    keys = rows.Keys(whole.prompt_key, whole.response_key, whole.messages_key, whole.task_key)
    try:
        text = tokenizer.TextTokenizer.load(str(folder))
        found = [row for row in rows.read_rows(str(path), keys, split=whole.split) if row is not None]
        chosen = found if len(found) <= SAMPLE_ROWS else random.Random(0).sample(found, SAMPLE_ROWS)
        sample = chat.encode_rows(chosen, text, use_template=whole.chat_template == "auto")
    except StageProblem:  # the stage itself will say so, with its place
        return None
    fitted = [row for entry in sample if (row := fit(entry, whole)) is not None]
    if not fitted:
        return None
    scale = len(found) / len(sample)
    kept = len(fitted) * scale
    tokens = scale * sum(len(row.ids) for row in fitted)
    response = scale * sum(int(sum(row.targets)) for row in fitted)
    count = DataCount(round(kept), tokens, response, COUNTED if chosen is found else SAMPLED, read=tokens)
    return count.part(whole.limit / kept) if whole.limit and whole.limit < kept else count
