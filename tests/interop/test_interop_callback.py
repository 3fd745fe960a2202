"""The TrainerCallback against a real Trainer and a tiny model: what it reports must be what was trained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from kdwatch.callback import KdwatchCallback

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=2))
lengths = [3, 5, 7, 4, 6, 8, 2, 5]

def item(n):
    ids = torch.zeros(8, dtype=torch.long)
    ids[:n] = torch.arange(1, n + 1)
    mask = (ids > 0).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(ids == 0, -100)}

data = [item(n) for n in lengths]
args = TrainingArguments(output_dir=sys.argv[1], num_train_epochs=3, per_device_train_batch_size=2, logging_steps=2,
                         gradient_accumulation_steps=2, report_to=[], save_strategy="no", use_cpu=True,
                         disable_tqdm=True, eval_strategy="epoch", per_device_eval_batch_size=4,
                         dataloader_pin_memory=False)
Trainer(model, args, train_dataset=data, eval_dataset=data[:4], callbacks=[KdwatchCallback()]).train()
"""
TOKENS = 3 * sum([3, 5, 7, 4, 6, 8, 2, 5])
"""Three epochs over the tokens that are no padding."""


def events_of(tmp_path: Path, script: str) -> list[dict]:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    path = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KDWATCH_EVENTS": str(path), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_trainer_reports_tokens_steps_loss_and_phases(tmp_path: Path) -> None:
    events = events_of(tmp_path, SCRIPT)
    progress = [e for e in events if e["type"] == "progress"]
    last = progress[-1]
    # 8 samples, batches of 2, accumulated over 2: 2 steps an epoch.
    assert (last["step"], last["total_steps"], last["tokens"]) == (6, 6, TOKENS)
    assert 0 < last["loss"] < 10
    tokens = [e["tokens"] for e in progress if "tokens" in e]
    assert tokens == sorted(tokens), "counts are cumulative"
    phases = [e["name"] for e in events if e["type"] == "phase"]
    assert phases[0] == "work" and phases[-1] == "save" and phases.count("evaluate") == 3


def test_importing_the_module_imports_no_transformers() -> None:
    code = "import sys, kdwatch.callback; print('transformers' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


ALONE = """
import time
from kdwatch.callback import Reporter
reporter = Reporter("train", "student")
reporter.begin()
reporter.phase("work")
reporter.counts(50, 1, 2, 3.0)
time.sleep(0.3)
reporter.counts(120, 2, 2, 2.5)
reporter.phase("save")
reporter.end()
"""


def test_without_a_run_around_it_records_one(tmp_path: Path) -> None:
    """The same reports in a program of its own: a run of one stage with the same counts."""
    from kdwatch.ledger.report import build_report

    home = tmp_path / "home"
    subprocess.run(
        [sys.executable, "-c", ALONE],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KDWATCH_HOME": str(home)},
        check=True, timeout=240,
    )  # fmt: skip
    (run,) = [path for path in (home / "runs").iterdir() if (path / "manifest.json").exists()]
    (stage,) = build_report(run)["stages"]
    assert (stage["name"], stage["kind"], stage["tokens"], stage["step"]) == ("train", "student", 120, 2)
    assert stage["loss"] == 2.5 and set(stage["phases_s"]) == {"work", "save"}
