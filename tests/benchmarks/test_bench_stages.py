"""Built-in stages beside plain transformers loops: `pytest tests/benchmarks/test_bench_stages.py -m benchmark -s`."""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.benchmark

PLAIN = Path(__file__).parent / "bench_plain_loops.py"
WORDS = 8000
LIMIT_S = 1500


def build(folder: Path) -> None:
    """Two Llamas with a vocabulary of 8003 words and padding to 8064, and 576 rows of 24 to 47 words twice. The
    teacher's weights are large, so that its distribution is peaked as a trained model's is."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import AutoModelForCausalLM, LlamaConfig

    vocabulary = {t: i for i, t in enumerate(["<pad>", "<bos>", "<eos>", *(f"w{i}" for i in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<pad>", "<bos>", "<eos>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    for name, hidden, layers, seed, spread in (("teacher", 192, 6, 1, 0.3), ("student", 128, 4, 2, 0.02)):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=8064,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=3 * hidden,
            tie_word_embeddings=True,
            initializer_range=spread,
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
        {"prompt": words(int(rng.integers(24, 48))), "response": words(int(rng.integers(24, 48)))} for _ in range(576)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


STEPS, NEW = 72, 48
"""Updates of each training, longest answer: some ten seconds of work each, so that start-up does not decide."""

RECIPE = """
name: bench-stages
stages:
  - {name: data, uses: preprocess, with: {data: train.jsonl, tokenizer: student, chat_template: none}}
"""
TRAIN = "student: student, max_steps: STEPS, batch_rows: 8, learning_rate: 1.0e-4, device: cpu, threads: 1"
OURS = {
    "cache": "uses: teacher.cache_logits, reuse: false, inputs: {data: data}, with: {teacher: teacher, top_k: 100, "
    "temperatures: [1, 2, 4], batch_tokens: 1024, device: cpu, threads: 1}",
    "generate": "uses: teacher.generate, reuse: false, inputs: {data: data}, with: {teacher: teacher, prompts: 96, "
    "max_new_tokens: NEW, keep_truncated: true, batch_rows: 8, device: cpu, threads: 1}",
    "sft": f"uses: student.train, inputs: {{data: data}}, with: {{{TRAIN}}}",
    "kd": f"uses: student.train, inputs: {{data: data, logits: cache-ROUND}}, with: {{objective: kd, {TRAIN}}}",
}
"""What is compared, as our stages."""
KINDS = {"cache": "teacher", "generate": "teacher", "sft": "student", "kd": "student"}
TRL = ("sft", "kd")
ROUNDS = 2


def recipe(python: str, trl: bool) -> str:
    """All stages of one run; ours and theirs stand side by side, so that what else the machine does hits both."""
    lines = [RECIPE.rstrip()]
    for turn in range(1, ROUNDS + 1):
        for what, stage in OURS.items():
            lines.append(f"  - {{name: {what}-{turn}, {stage.replace('ROUND', str(turn))}}}")
            peers = {f"plain-{what}": what} | ({f"trl-{what}": f"trl-{what}"} if trl and what in TRL else {})
            for name, argument in peers.items():
                words = f"[{python}, {PLAIN}, {argument}, ., '{STEPS}', '{NEW}']"
                lines.append(f"  - {{name: {name}-{turn}, kind: {KINDS[what]}, run: {words}}}")
    return "\n".join(lines).replace("STEPS", str(STEPS)).replace("NEW", str(NEW)) + "\n"


@dataclass
class Cost:
    """What the rounds of one stage took together."""

    tokens: int = 0
    work_s: float = 0
    work_j: float = 0
    whole_j: float = 0
    startup_s: float = 0
    """From the start of the process to the first work, imports and loading included."""

    @property
    def rate(self) -> float:
        """Tokens a second of work."""
        return self.tokens / self.work_s


def costs_of(run: Path) -> dict[str, Cost]:
    """By stage without its round: seconds and joules of the phase `work`, and joules of the whole process."""
    from kdwatch.ledger.load import load_ledger
    from kdwatch.ledger.report import build_report
    from kdwatch.ledger.totals import build_totals
    from kdwatch.rundir.reader import RunReader

    began: dict[str, float] = {}
    edges: dict[str, list[float]] = {}
    for event in sorted(RunReader(run).iter_events(), key=lambda e: e["t"]):
        name = event.get("stage")
        if event["type"] == "stage_started":
            began[name] = event["t"]
        elif event["type"] == "phase" and (event["name"] == "work" or len(edges.get(name, ())) == 1):
            edges.setdefault(name, []).append(event["t"])
    found: dict[str, Cost] = defaultdict(Cost)
    for stage in build_report(run)["stages"]:
        if not re.search(r"-\d$", stage["name"]):
            continue
        whole = stage["energy_j"]["total"]
        joules = []
        for t in edges[stage["name"]][:2]:
            until = next(s for s in build_totals(load_ledger(run, t), t).stages if s.name == stage["name"])
            joules.append(until.energy_j["total"])
        cost = found[stage["name"].rsplit("-", 1)[0]]
        cost.tokens += stage["tokens"]
        cost.work_s += stage["phases_s"]["work"]
        cost.work_j += (joules[1] if len(joules) > 1 else whole) - joules[0]
        cost.whole_j += whole
        cost.startup_s += edges[stage["name"]][0] - began[stage["name"]]
    return found


def test_tokens_and_joules_beside_plain_loops(tmp_path: Path, own_home: Path) -> None:
    """One run through the recorder; tokens/s and J/token of the phase `work` for all, and J/token with start-up. TRL's
    trainers are there where it is installed."""
    from kdwatch.ledger.report import build_report
    from kdwatch.pipeline.launch import start_run
    from kdwatch.pipeline.recipe import load_recipe
    from kdwatch.rundir.reader import RunReader

    build(tmp_path)
    trl = find_spec("trl") is not None
    (tmp_path / "bench.yaml").write_text(recipe(sys.executable, trl))
    os.environ["KDWATCH_HOME"] = str(own_home)
    run = start_run(load_recipe(tmp_path / "bench.yaml"))
    end = time.monotonic() + LIMIT_S
    while RunReader(run).status() == "running" and time.monotonic() < end:
        time.sleep(0.5)
    report = build_report(run)
    assert report["status"] == "completed", report["warnings"]
    costs = costs_of(run)
    print(f"\n{'stage':<16}{'tokens':>8}{'tokens/s':>10}{'J/token':>10}{'with start-up':>15}{'start-up s':>12}")
    for name, c in costs.items():
        print(
            f"{name:<16}{c.tokens:>8}{c.rate:>10.0f}{c.work_j / c.tokens:>10.4f}{c.whole_j / c.tokens:>15.4f}"
            f"{c.startup_s / ROUNDS:>12.1f}"
        )
    print("all energies:", report["sources"], "" if trl else "; trl is not installed: its trainers are left out")
    manifest = json.loads(next((own_home / "artifacts" / "logits").glob("*/manifest.json")).read_text())
    size = sum(p.stat().st_size for p in next((own_home / "artifacts" / "logits").iterdir()).glob("*"))
    print(f"logit cache: {size / manifest['positions']:.0f} bytes a response token, all files")
    for ours in OURS:
        for theirs in (f"plain-{ours}", f"trl-{ours}"):
            if theirs in costs:
                assert costs[ours].rate > 0.95 * costs[theirs].rate, (ours, theirs)
                joules = [costs[name].work_j / costs[name].tokens for name in (ours, theirs)]
                assert joules[0] < 1.1 * joules[1], (ours, theirs, joules)


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
        PreprocessSettings(data=str(tmp_path / "train.jsonl"), tokenizer=student, limit=96), Stage("p", {}, data_path)
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
