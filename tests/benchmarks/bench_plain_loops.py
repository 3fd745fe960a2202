"""What a user would otherwise write: `python bench_plain_loops.py WHAT FOLDER STEPS NEW`.

WHAT is sft, kd, generate, cache, trl-sft or trl-kd: plain transformers loops, or TRL's trainers, on the same models and
rows, padded as usual, reporting tokens so that kdwatch can give J/token. STEPS are updates, NEW is the longest answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from kdwatch import progress
from kdwatch.stages.data.tokenizer import TextTokenizer

BATCH, PROMPTS = 8, 96


def rows(folder: Path) -> list[tuple[list[int], list[int]]]:
    tokenizer = TextTokenizer.load(str(folder / "student"))
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [(tokenizer.encode(r["prompt"], special=True), [*tokenizer.encode(r["response"]), 2]) for r in lines]


def padded(part: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    width = max(len(p) + len(a) for p, a in part)
    ids = torch.zeros(len(part), width, dtype=torch.long)
    labels = torch.full((len(part), width), -100)
    mask = torch.zeros(len(part), width, dtype=torch.long)
    for i, (prompt, answer) in enumerate(part):
        row = torch.tensor(prompt + answer)
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
        labels[i, len(prompt) : len(row)] = row[len(prompt) :]
    return ids, mask, labels


def train(folder: Path, steps: int, teacher: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "student", dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data, seen = rows(folder), 0
    progress.phase("work")
    for step in range(steps):
        at = step * BATCH % len(data)
        ids, mask, labels = padded(data[at : at + BATCH])
        out = model(input_ids=ids, attention_mask=mask, labels=labels)
        loss = out.loss
        if teacher is not None:
            with torch.no_grad():
                theirs = teacher(input_ids=ids, attention_mask=mask).logits
            kept = labels[:, 1:] != -100
            loss = 0.5 * loss + 0.5 * torch.nn.functional.kl_div(
                torch.log_softmax(out.logits[:, :-1][kept], -1),
                torch.log_softmax(theirs[:, :-1][kept], -1),
                log_target=True,
                reduction="batchmean",
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen += int(mask.sum())
        progress.progress(tokens=seen, step=step + 1, total_steps=steps)


def generate(folder: Path, new: int) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "teacher", dtype=torch.float32)
    data, made = rows(folder)[:PROMPTS], 0
    progress.phase("work")
    for begin in range(0, len(data), BATCH):
        prompts = [p for p, _ in data[begin : begin + BATCH]]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=new,
            do_sample=True,
            temperature=0.7,
            top_p=0.9,
            top_k=0,
            pad_token_id=0,
        )
        answers = out[:, width:]
        made += int(((answers != 0) & (answers != 2)).sum()) + int((answers == 2).any(1).sum())
        progress.progress(tokens=made)


def cache(folder: Path) -> None:
    """Top-100 log-probabilities of every answer token at one temperature, as arrays of half precision."""
    model = AutoModelForCausalLM.from_pretrained(folder / "teacher", dtype=torch.float32).eval()
    data, seen, kept = rows(folder), 0, []
    progress.phase("work")
    for begin in range(0, len(data), BATCH):
        ids, mask, labels = padded(data[begin : begin + BATCH])
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask).logits
        top = torch.topk(torch.log_softmax(logits[:, :-1][labels[:, 1:] != -100], -1), 100)
        kept.append((top.values.half().numpy(), top.indices.int().numpy()))
        seen += int(mask.sum())
        progress.progress(tokens=seen)
    values, places = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    np.savez(folder / "plain-cache.npz", values=values, ids=places)


def train_with_trl(folder: Path, steps: int, teacher: Any) -> None:
    """SFTTrainer, or GKDTrainer on the data's own answers with forward KL."""
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast, TrainerCallback

    class Report(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.phase("work")

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.progress(tokens=int(state.num_input_tokens_seen), step=state.global_step, total_steps=steps)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.phase("save")

    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "student" / "tokenizer.json"), **names)
    model = AutoModelForCausalLM.from_pretrained(folder / "student", dtype=torch.float32)
    common = {
        "output_dir": str(folder / "trl"),
        "max_steps": steps,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 1e-4,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1000,
        "disable_tqdm": True,
        "include_num_input_tokens_seen": "non_padding",
    }
    parts = [(tokenizer.decode(p[1:]), tokenizer.decode(a[:-1])) for p, a in rows(folder)]
    if teacher is None:
        from trl import SFTConfig, SFTTrainer

        data = Dataset.from_list([{"prompt": p, "completion": f" {a}"} for p, a in parts])
        trainer = SFTTrainer(model, SFTConfig(**common), train_dataset=data, processing_class=tokenizer)
    else:
        from trl.experimental.gkd import GKDConfig, GKDTrainer

        tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
        data = Dataset.from_list(
            [{"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]} for p, a in parts]
        )
        settings = GKDConfig(**common, lmbda=0.0, beta=0.0, remove_unused_columns=False)
        trainer = GKDTrainer(model, teacher, settings, train_dataset=data, processing_class=tokenizer)
    trainer.add_callback(Report())
    trainer.train()


def main() -> None:
    what, folder, steps, new = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    progress.phase("load")
    teacher = None
    if what.endswith("kd"):
        teacher = AutoModelForCausalLM.from_pretrained(folder / "teacher", dtype=torch.float32).eval()
    if what == "generate":
        generate(folder, new)
    elif what == "cache":
        cache(folder)
    elif what.startswith("trl-"):
        train_with_trl(folder, steps, teacher)
    else:
        train(folder, steps, teacher)


if __name__ == "__main__":
    main()
