"""What a user would otherwise write with transformers: `python bench_plain_loops.py sft|kd|generate FOLDER`.

Plain loops on the same models and rows, padded as usual, reporting tokens so that kdwatch can give J/token.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from kdwatch import progress
from kdwatch.stages.data.tokenizer import TextTokenizer

BATCH, STEPS, NEW = 8, 12, 16


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


def train(folder: Path, teacher: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "student", dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data, seen = rows(folder), 0
    progress.phase("work")
    for step in range(STEPS):
        ids, mask, labels = padded(data[step * BATCH : (step + 1) * BATCH])
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
        progress.progress(tokens=seen, step=step + 1, total_steps=STEPS)


def generate(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "teacher", dtype=torch.float32)
    data, made = rows(folder), 0
    progress.phase("work")
    for begin in range(0, len(data), BATCH):
        prompts = [p for p, _ in data[begin : begin + BATCH]]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=NEW,
            do_sample=True,
            temperature=0.7,
            top_p=0.9,
            top_k=0,
            pad_token_id=0,
        )
        answers = out[:, width:]
        made += int(((answers != 0) & (answers != 2)).sum()) + int((answers == 2).any(1).sum())
        progress.progress(tokens=made)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    progress.phase("load")
    if what == "generate":
        generate(folder)
    else:
        teacher = None
        if what == "kd":
            teacher = AutoModelForCausalLM.from_pretrained(folder / "teacher", dtype=torch.float32).eval()
        train(folder, teacher)


if __name__ == "__main__":
    main()
