"""Data and recipes that the tests of sweeps and dry runs share."""

from __future__ import annotations

TOKENIZER_WORDS = ["<pad>", "<eos>", "<unk>", "one", "two", "three", "four", "five"]

DATA = [
    {"prompt": "one two three", "response": "four"},  # 3 + 1 words, and an end
    {"prompt": "one", "response": "two three"},  # 1 + 2, and an end
    {"prompt": "five five", "response": "one"},  # 2 + 1, and an end
]

KD = """\
name: kd
regime: kd
stages:
  - name: data
    uses: preprocess
    with: {data: data.jsonl, tokenizer: model, chat_template: none}
  - name: cache
    uses: teacher.cache_logits
    with: {teacher: model, top_k: 4}
    inputs: {data: data}
  - name: student
    uses: student.train
    with: {student: model, objective: kd}
    inputs: {data: data, logits: cache}
"""
