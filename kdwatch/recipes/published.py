"""Published configurations of the study's models (OLMo-2), for what must be known before a model is on this disk.

`models.csv` says where each row comes from. The 1B's is taken from its training configuration (model width 2048, 16
layers, 16 heads, MLP ratio 8; half of 8 * 2048 reaches the down-projection of a gated MLP, so intermediate_size is
8192); its config.json was not seen.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "models.csv"
_VARIANT = re.compile(r"-(SFT|DPO|Instruct)$")
"""Later training stages of a model keep its configuration."""


@dataclass(frozen=True)
class PublishedModel:
    """One row."""

    model: str
    hub: str
    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    """Rows of the embedding, padding included."""
    real_vocab_size: int
    """Ids of the tokenizer."""
    pad_token_id: int
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    source: str

    @property
    def parameters(self) -> int:
        """All weights: embedding and output, and in each layer q, k, v, o, gate, up, down and the norms.

        An OLMo-2 layer has four norms: of queries (hidden), of keys (key heads x head size), after attention and after
        the MLP (hidden each); one more follows the last layer.
        """
        hidden = self.hidden_size
        keys = self.num_key_value_heads * hidden // self.num_attention_heads
        layer = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * self.intermediate_size + 3 * hidden + keys
        tables = 1 if self.tie_word_embeddings else 2
        return tables * self.vocab_size * hidden + self.num_hidden_layers * layer + hidden


@cache
def published_models() -> tuple[PublishedModel, ...]:
    """All rows."""
    with TABLE.open(newline="", encoding="utf-8") as f:
        return tuple(_model(row) for row in csv.DictReader(f))


def _model(row: dict[str, str]) -> PublishedModel:
    texts = {name: row[name] for name in ("model", "hub", "source")}
    tied = row["tie_word_embeddings"] == "true"
    numbers = {k: int(v) for k, v in row.items() if k not in (*texts, "tie_word_embeddings", "rope_theta")}
    return PublishedModel(
        **texts, **numbers, rope_theta=float(row["rope_theta"]), tie_word_embeddings=tied  # type: ignore[arg-type]
    )  # fmt: skip


def published(hub: str) -> PublishedModel | None:
    """The configuration of a hub name, or of a later training stage (`-SFT`, `-DPO`, `-Instruct`) of one."""
    name = _VARIANT.sub("", hub)
    return next((model for model in published_models() if model.hub == name), None)
