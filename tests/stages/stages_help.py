"""Tiny models and in-process stages for the tests of kdwatch.stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kdwatch.demo.make_assets import write_tokenizer
from kdwatch.demo.tasks import noisy
from kdwatch.stages.data.chat import Encoded
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.data.tokens import TokenSet, read_tokens, write_tokens
from kdwatch.stages.entry import Stage
from kdwatch.stages.settings import PreprocessSettings, Settings

ROWS, REAL = 104, 98
"""Vocabulary rows of the tiny models, and real ids of their tokenizer."""


def tiny_model(
    folder: Path, *, seed: int = 0, hidden: int = 16, layers: int = 1, rows: int = ROWS, kind: str = "llama"
) -> Path:
    """A random model of a few thousand weights with the demo's character tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, Qwen3Config

    torch.manual_seed(seed)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if kind == "gpt2":
        config: Any = GPT2Config(vocab_size=rows, n_embd=hidden, n_layer=layers, n_head=2, n_positions=64, **special)
    else:
        make = {"llama": LlamaConfig, "qwen3": Qwen3Config, "gemma2": Gemma2Config}[kind]
        config = make(
            vocab_size=rows,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=hidden // 2,
            intermediate_size=2 * hidden,
            max_position_embeddings=128,
            initializer_range=0.3,
            **special,
        )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def task_rows(count: int, seed: int = 1) -> list[dict[str, str]]:
    """Rows of the demo's tasks."""
    return [{"prompt": e.prompt, "response": e.response, "task": e.task} for e in noisy(seed, count, 0.0)]


def in_process(work: Callable[[Any, Stage], None], settings: Settings, output: Path | None, **inputs: Path) -> Path:
    """Run a stage's work here; its output directory."""
    work(settings, Stage("stage", dict(inputs), output))
    return output or Path()


def preprocessed(folder: Path, model: Path, rows: Sequence[Mapping[str, Any]], **settings: Any) -> Path:
    """A data set of these rows made by the stage."""
    from kdwatch.stages import preprocess

    folder.mkdir(parents=True, exist_ok=True)
    data = jsonl(folder / "rows.jsonl", rows)
    return in_process(
        preprocess.work,
        PreprocessSettings(data=str(data), tokenizer=str(model), **settings),
        folder / "out",
    )


def token_rows(folder: Path, model: Path, rows: Sequence[tuple[list[int], int]], held_out: int = 0) -> TokenSet:
    """A data set of given ids; each row is (ids, length of its prompt); the last `held_out` rows are validation."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = [Encoded(list(ids), [False] * n + [True] * (len(ids) - n)) for ids, n in rows]
    mask = np.zeros(len(rows), dtype=bool)
    if held_out:
        mask[-held_out:] = True
    write_tokens(folder, encoded, mask, TextTokenizer.load(str(model)), {})
    return read_tokens(folder)


def random_rows(seed: int, count: int, shortest: int = 3, longest: int = 20) -> list[tuple[list[int], int]]:
    """Ragged rows of real ids: (ids, prompt length ≥ 1)."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        length = int(rng.integers(shortest, longest + 1))
        ids = [1, *rng.integers(3, REAL, length - 1).tolist()]
        found.append((ids, int(rng.integers(1, length))))
    return found


def as_process(
    module: str, settings: Mapping[str, Any], output: Path | None, events: Path | None = None, **inputs: Path
) -> subprocess.Popen[str]:
    """Start a stage as the recorder does, as the first of a session."""
    config = (output or Path(inputs["student"])).with_suffix(".config.json")
    config.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "name": "stage",
        "settings": dict(settings),
        "inputs": {name: str(path) for name, path in inputs.items()},
        "output": str(output) if output else None,
    }
    config.write_text(json.dumps(value))
    env = {**os.environ, "KDWATCH_STAGE_CONFIG": str(config), "OMP_NUM_THREADS": "1"}
    if events:
        env["KDWATCH_EVENTS"] = str(events)
    return subprocess.Popen(
        [sys.executable, "-m", module],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
