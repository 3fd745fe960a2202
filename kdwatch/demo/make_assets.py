"""Train the demo's teacher and the students' base checkpoints: `python -m kdwatch.demo.make_assets`.

About 7 minutes on two quiet cores. Seeds fix the data; the number of threads changes sums, and so the last digits of
scores. What was measured while making them is written to `assets/made.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kdwatch.demo.tasks import MAKERS, STUDENT_TASKS, Example, examples

ASSETS = Path(__file__).parent / "assets"
SPECIAL = ("<pad>", "<bos>", "<eos>")
VOCABULARY = [*SPECIAL, *(chr(code) for code in range(32, 127))]
MODEL_ROWS = 104
"""Embedding rows: more than the 98 real tokens, padded as published models are."""
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Shape:
    """Architecture and training of one checkpoint."""

    name: str
    hidden: int
    layers: int
    heads: int
    inter: int
    steps: int
    batch: int
    learning_rate: float
    seed: int
    tasks: tuple[str, ...]


TEACHER = Shape("teacher", 128, 5, 4, 352, 2400, 128, 2e-3, 11, tuple(MAKERS))
POLISH = Shape("teacher", 128, 5, 4, 352, 500, 128, 5e-4, 12, ("count", "count", *MAKERS))
"""Training that follows from the saved teacher, with more of the task that it learns last."""
BASES = (
    Shape("base_xs", 32, 2, 2, 96, 2000, 64, 4e-3, 21, STUDENT_TASKS),
    Shape("base_s", 64, 2, 4, 192, 1100, 128, 4e-3, 22, STUDENT_TASKS),
)


def write_tokenizer(folder: Path) -> None:
    """A character tokenizer in the common `tokenizer.json` form: 95 printable ASCII characters and 3 special ones."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = {token: i for i, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "model_max_length": 64,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def encode(rows: list[Example]) -> tuple[Any, Any]:
    """(input ids, labels), both [rows, longest]: bos prompt response eos; labels only where the answer is."""
    import torch

    code = {c: i for i, c in enumerate(VOCABULARY)}
    ids = [[1, *(code[c] for c in r.prompt + r.response), 2] for r in rows]
    width = max(map(len, ids))
    inputs = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), IGNORED)
    for i, (row, example) in enumerate(zip(ids, rows, strict=True)):
        inputs[i, : len(row)] = torch.tensor(row)
        start = 1 + len(example.prompt)
        labels[i, start : len(row)] = inputs[i, start : len(row)]
    return inputs, labels


def build(shape: Shape) -> Any:
    """A fresh Llama of this shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=MODEL_ROWS,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        intermediate_size=shape.inter,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def train(shape: Shape, model: Any) -> float:
    """AdamW, 50 warm-up steps, cosine to zero; returns the last loss."""
    import torch
    from torch.nn.functional import cross_entropy

    optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / 50, 0.5 * (1 + math.cos(math.pi * s / shape.steps)))
    )
    stream = examples(shape.seed, shape.tasks)
    model.train()
    loss = math.nan
    for step in range(shape.steps):
        inputs, labels = encode(list(islice(stream, shape.batch)))
        logits = model(input_ids=inputs, attention_mask=(inputs != 0).long()).logits[:, :-1, : len(VOCABULARY)]
        value = cross_entropy(logits.reshape(-1, len(VOCABULARY)), labels[:, 1:].reshape(-1), ignore_index=IGNORED)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        loss = float(value)
        if step % 200 == 0:
            print(f"{shape.name} step {step}/{shape.steps} loss {loss:.4f}", flush=True)
    return loss


def score(model: Any, task: str, rows: int = 400) -> float:
    """Share of held-out answers whose every character, end included, is the model's first choice."""
    import torch

    inputs, labels = encode(list(islice(examples(5, (task,), test=True), rows)))
    model.eval()
    with torch.no_grad():
        chosen = model(input_ids=inputs, attention_mask=(inputs != 0).long()).logits[:, :-1, : len(VOCABULARY)]
    wanted = labels[:, 1:]
    right = (chosen.argmax(-1) == wanted) | (wanted == IGNORED)
    return right.all(dim=1).double().mean().item()


def make(shape: Shape, out: Path, *, polish: bool = False) -> dict[str, Any]:
    """Train one checkpoint, from zero or from what is saved, write it in half precision; what is known about it."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(shape.seed)
    model = LlamaForCausalLM.from_pretrained(out / shape.name, dtype=torch.float32) if polish else build(shape)
    start = time.monotonic()
    loss = train(shape, model)
    seconds = time.monotonic() - start
    folder = out / shape.name
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    write_tokenizer(folder)
    scores = {task: score(model.float(), task) for task in dict.fromkeys(shape.tasks)}
    weights = sum(p.numel() for p in model.parameters())
    made = {**asdict(shape), "parameters": weights, "seconds": round(seconds, 1), "loss": loss, "held_out": scores}
    print(json.dumps(made), flush=True)
    return made


def main() -> None:
    """Make all checkpoints, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which of: teacher polish base_xs base_s (default: all)")
    parser.add_argument("--out", type=Path, default=ASSETS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    record = options.out / "made.json"
    known = json.loads(record.read_text())["checkpoints"] if record.exists() else {}
    work = {"teacher": TEACHER, "polish": POLISH, **{shape.name: shape for shape in BASES}}
    for name, shape in work.items():
        if not options.names or name in options.names:
            known[name] = make(shape, options.out, polish=name == "polish")
            versions = {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            }
            record.write_text(json.dumps({"versions": versions, "checkpoints": known}, indent=1) + "\n")


if __name__ == "__main__":
    main()
