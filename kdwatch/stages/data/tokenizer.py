"""A model directory's tokenizer without transformers: ids, special tokens, chat template, vocabulary map."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kdwatch.stages.problem import StageProblem

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
"""What belongs to a tokenizer in a model directory."""


def model_directory(name: str, revision: str | None = None, *, weights: bool = False) -> Path:
    """Local directory of a model named by path or hub name; safetensors only.

    Raises StageProblem where there is none. With a path no network is used.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or path.suffix:
        raise StageProblem(f"model: no such directory {name}: check the path in the recipe")
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.jinja", "*.txt", "*.model", *(["*.safetensors"] if weights else [])]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the library raises many kinds; each means that the model is not to be had
        raise StageProblem(
            f"model: {name} is no directory here, and the hub does not give it ({type(error).__name__}): check the name"
        ) from None


@dataclass(frozen=True)
class TextTokenizer:
    """Wraps `tokenizers.Tokenizer` with what `tokenizer_config.json` adds."""

    backend: Any
    """tokenizers.Tokenizer"""
    config: dict[str, Any]
    template: str | None
    """Jinja chat template; None where the model has none."""
    folder: Path

    @classmethod
    def load(cls, name: str, revision: str | None = None) -> TextTokenizer:
        """Read `tokenizer.json` and its settings. StageProblem where it is missing or torn."""
        from tokenizers import Tokenizer

        folder = model_directory(name, revision)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise StageProblem(f"tokenizer: {folder} has no tokenizer.json: save the model with its fast tokenizer")
        try:
            backend = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise StageProblem(f"tokenizer: {path} cannot be read ({error}): fetch the model again") from None
        backend.no_padding()
        backend.no_truncation()
        config = _optional_json(folder / "tokenizer_config.json")
        return cls(backend, config, _template(folder, config), folder)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids; `special` adds what the tokenizer puts around a text, but no end-of-text token."""
        ids: list[int] = self.backend.encode(text, add_special_tokens=special).ids
        return self._without_end(ids) if special else ids

    def encode_many(self, texts: list[str], *, special: bool = False) -> list[list[int]]:
        """`encode` of each text, on all cores, and without the places in the text that it would work out."""
        if not texts:
            return []
        found = [e.ids for e in self.backend.encode_batch_fast(texts, add_special_tokens=special)]
        return [self._without_end(ids) for ids in found] if special else found

    def _without_end(self, ids: list[int]) -> list[int]:
        return ids[:-1] if ids and ids[-1] == self.eos_id and ids[-1] != self.bos_id else ids

    def decode(self, ids: list[int]) -> str:
        """Text of the ids, special tokens left out."""
        return self.backend.decode(ids, skip_special_tokens=True)

    def token_id(self, role: str) -> int | None:
        """Id of `eos_token`, `bos_token` or `pad_token` by `tokenizer_config.json`; None where it has none."""
        token = self.token(role)
        return None if token is None else self.backend.token_to_id(token)

    def token(self, role: str) -> str | None:
        """Text of a special token."""
        value = self.config.get(role)
        return value.get("content") if isinstance(value, dict) else value

    @cached_property
    def eos_id(self) -> int:
        """End-of-text token. StageProblem where the model names none."""
        found: Any = self.token_id("eos_token")
        if found is None:
            listed = _optional_json(self.folder / "generation_config.json").get("eos_token_id")
            found = listed[0] if isinstance(listed, list) and listed else listed
        if not isinstance(found, int):
            raise StageProblem(f"tokenizer: {self.folder} names no eos_token: add it to tokenizer_config.json")
        return found

    @cached_property
    def bos_id(self) -> int | None:
        """Begin-of-text token."""
        return self.token_id("bos_token")

    @cached_property
    def pad_id(self) -> int:
        """What fills short rows: never looked at, so any id does where the model names none."""
        found = self.token_id("pad_token")
        return self.eos_id if found is None else found

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        return self.backend.get_vocab(with_added_tokens=True)

    @cached_property
    def size(self) -> int:
        """Real vocabulary: 1 + the highest id; rows of a model beyond it are padding."""
        return 1 + max(self.vocabulary.values())

    @cached_property
    def map_hash(self) -> str:
        """SHA-256 of the token-to-id map: equal hashes mean that ids mean the same tokens."""
        text = json.dumps(sorted(self.vocabulary.items(), key=lambda item: (item[1], item[0])))
        return hashlib.sha256(text.encode()).hexdigest()


def check_same(student: TextTokenizer, teacher: TextTokenizer) -> None:
    """Raise StageProblem with the first differences unless every id means the same token in both."""
    if student.map_hash == teacher.map_hash:
        return
    ours, theirs = student.vocabulary, teacher.vocabulary
    conflicts = [(t, i, theirs[t]) for t, i in ours.items() if t in theirs and theirs[t] != i]
    missing = sorted(set(ours) ^ set(theirs))
    if not conflicts and not missing:
        return
    shown = [f"{t!r} is {a} and {b}" for t, a, b in sorted(conflicts, key=lambda c: c[1])[:5]]
    shown += [f"{t!r} only in one" for t in missing[: 5 - len(shown)]]
    raise StageProblem(
        f"student and teacher have different vocabularies (sizes {student.size} and {teacher.size}): "
        f"{len(conflicts)} conflicts, {len(missing)} missing: {'; '.join(shown)}. "
        "Logits cannot be matched: take models of one tokenizer, or distil with teacher.generate (synthetic SFT)"
    )


def _optional_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
