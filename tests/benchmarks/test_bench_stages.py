"""Built-in stages beside plain transformers loops: `pytest tests/benchmarks/test_bench_stages.py -m benchmark -s`."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.benchmark

PLAIN = Path(__file__).parent / "bench_plain_loops.py"
WORDS = 8000


def build(folder: Path) -> None:
    """Two Llamas with a vocabulary of 8003 words and padding to 8064, and 96 rows of 48 + 48 words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import AutoModelForCausalLM, LlamaConfig

    vocabulary = {t: i for i, t in enumerate(["<pad>", "<bos>", "<eos>", *(f"w{i}" for i in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<pad>", "<bos>", "<eos>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    for name, hidden, layers, seed in (("teacher", 192, 6, 1), ("student", 128, 4, 2)):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=8064,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=3 * hidden,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
        tokenizer.save(str(folder / name / "tokenizer.json"))
        names = {"eos_token": "<eos>", "bos_token": "<bos>", "pad_token": "<pad>"}
        (folder / name / "tokenizer_config.json").write_text(json.dumps(names))
    rng = np.random.default_rng(0)

    def words(count: int) -> str:
        return " ".join(f"w{i}" for i in rng.integers(0, WORDS, count))

    rows = [
        {"prompt": words(int(rng.integers(24, 48))), "response": words(int(rng.integers(24, 48)))} for _ in range(96)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


RECIPE = """
name: bench-stages
stages:
  - {name: data, uses: preprocess, with: {data: train.jsonl, tokenizer: student, chat_template: none}}
  - name: cache
    uses: teacher.cache_logits
    with: {teacher: teacher, top_k: 100, temperatures: [1, 2, 4], device: cpu, threads: 1}
    inputs: {data: data}
  - name: generate
    uses: teacher.generate
    with: {teacher: teacher, max_new_tokens: 16, keep_truncated: true, batch_rows: 8, device: cpu, threads: 1}
    inputs: {data: data}
  - name: sft
    uses: student.train
    with: {student: student, max_steps: 12, batch_rows: 8, learning_rate: 1.0e-4, device: cpu, threads: 1}
    inputs: {data: data}
  - name: kd
    uses: student.train
    with: {student: student, objective: kd, max_steps: 12, batch_rows: 8, learning_rate: 1.0e-4, device: cpu,
           threads: 1}
    inputs: {data: data, logits: cache}
  - {name: plain-generate, kind: teacher, run: [PYTHON, PLAIN, generate, .]}
  - {name: plain-sft, kind: student, run: [PYTHON, PLAIN, sft, .]}
  - {name: plain-online-kd, kind: student, run: [PYTHON, PLAIN, kd, .]}
"""


def test_tokens_and_joules_beside_plain_loops(tmp_path: Path, own_home: Path) -> None:
    """One run through the recorder; rates are of the work phase, J/token of the whole stage as the report gives it."""
    from kdwatch.ledger.report import build_report
    from kdwatch.pipeline.launch import start_run
    from kdwatch.pipeline.recipe import load_recipe
    from kdwatch.rundir.reader import RunReader

    build(tmp_path)
    text = RECIPE.replace("PYTHON", sys.executable).replace("PLAIN", str(PLAIN))
    (tmp_path / "bench.yaml").write_text(text)
    os.environ["KDWATCH_HOME"] = str(own_home)
    run = start_run(load_recipe(tmp_path / "bench.yaml"))
    end = time.monotonic() + 540
    while RunReader(run).status() == "running" and time.monotonic() < end:
        time.sleep(0.5)
    report = build_report(run)
    assert report["status"] == "completed", report["warnings"]
    print(f"\n{'stage':<16}{'tokens':>8}{'tokens/s of work':>18}{'J/token':>10}")
    rate = {}
    for stage in report["stages"]:
        if not stage["tokens"] or "work" not in stage["phases_s"]:
            continue
        rate[stage["name"]] = stage["tokens"] / stage["phases_s"]["work"]
        print(f"{stage['name']:<16}{stage['tokens']:>8}{rate[stage['name']]:>18.0f}{stage['j_per_token']:>10.4f}")
    manifest = json.loads(next((own_home / "artifacts" / "logits").glob("*/manifest.json")).read_text())
    size = sum(p.stat().st_size for p in next((own_home / "artifacts" / "logits").iterdir()).glob("*"))
    print(f"logit cache: {size / manifest['positions']:.0f} bytes a response token, all files")
    assert rate["kd"] > rate["plain-online-kd"] / 2 and rate["sft"] > rate["plain-sft"] / 2


def test_kd_step_costs_at_most_1_3_sft_steps(tmp_path: Path) -> None:
    """CPU time of alternating updates in one process; medians of 9."""
    import torch

    from kdwatch.stages import cache_logits, preprocess
    from kdwatch.stages.cache.reader import LogitCache
    from kdwatch.stages.data.tokens import read_tokens
    from kdwatch.stages.entry import Stage
    from kdwatch.stages.nn import models
    from kdwatch.stages.nn.checkpoint import Checkpoints
    from kdwatch.stages.nn.loop import Trainer
    from kdwatch.stages.nn.objective import Objective
    from kdwatch.stages.settings import CacheSettings, PreprocessSettings, TrainSettings

    build(tmp_path)
    torch.set_num_threads(1)
    student, teacher = str(tmp_path / "student"), str(tmp_path / "teacher")
    data_path, cache_path = tmp_path / "data", tmp_path / "cache"
    preprocess.work(
        PreprocessSettings(data=str(tmp_path / "train.jsonl"), tokenizer=student), Stage("p", {}, data_path)
    )
    wanted = CacheSettings(teacher=teacher, temperatures=[1, 2], device="cpu", threads=1)
    cache_logits.work(wanted, Stage("c", {"data": data_path}, cache_path))
    data = read_tokens(data_path)
    cpu = torch.device("cpu")

    def trainer(**values: object) -> Trainer:
        settings = TrainSettings(student=student, batch_rows=8, device="cpu", threads=1, max_steps=99, **values)  # type: ignore[arg-type]
        cache = LogitCache(cache_path, data) if settings.objective == "kd" else None
        model = models.load_model(student, settings, cpu, dtype=torch.float32, train=True)
        objective = Objective.make(settings, 8003, cache)
        return Trainer(settings, model, data, objective, cpu, Checkpoints(tmp_path, ""), Stage("t", {}, tmp_path))

    trainers = {"sft": trainer(), "kd": trainer(objective="kd"), "kd, T 2": trainer(objective="kd", temperature=2)}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(10):
        for name, one in trainers.items():
            begin = time.process_time()
            one._step()
            if turn:
                seconds[name].append(time.process_time() - begin)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print("\nCPU seconds a step:", {name: round(value, 4) for name, value in medians.items()})
    assert medians["kd"] <= 1.3 * medians["sft"]
    assert medians["kd, T 2"] <= 1.5 * medians["sft"]
