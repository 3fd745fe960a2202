"""Models and data by hub name, from a local cache without a network; code of a model runs only where it is allowed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from stages_help import in_process, jsonl, task_rows, tiny_model

from kdwatch.stages import preprocess, train
from kdwatch.stages.data.tokens import read_tokens
from kdwatch.stages.nn import models as loading
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import EvaluateSettings, PreprocessSettings, TrainSettings

OLD, NEW = "1" * 40, "2" * 40
CPU = {"device": "cpu", "threads": 1}


def put(cache: Path, kind: str, name: str, commit: str, source: Path) -> None:
    """A snapshot as huggingface_hub keeps it; the last one put is `main`."""
    folder = cache / f"{kind}--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    shutil.copytree(source, folder / "snapshots" / commit)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with a model of two revisions and a data set of two splits; no network."""
    cache = tmp_path / "hub"
    for commit, seed in ((OLD, 1), (NEW, 2)):
        put(cache, "models", "lab/tiny", commit, tiny_model(tmp_path / commit, seed=seed))
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    jsonl(data / "sub" / "train-00000.jsonl", task_rows(12))
    jsonl(data / "test-00000.jsonl", task_rows(5))
    put(cache, "datasets", "lab/rows", OLD, data)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return cache


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_student_and_data_by_hub_name(tmp_path: Path, hub: Path) -> None:
    wanted = PreprocessSettings(data="hub:lab/rows", tokenizer="lab/tiny")
    data = in_process(preprocess.work, wanted, tmp_path / "out")
    assert len(read_tokens(data)) == 12
    other = in_process(preprocess.work, wanted.model_copy(update={"split": "test"}), tmp_path / "test")
    assert len(read_tokens(other)) == 5
    settings = TrainSettings(student="lab/tiny", max_steps=1, learning_rate=1e-12, **CPU)
    out = in_process(train.work, settings, tmp_path / "student", data=data)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        assert (out / name).is_file()


@pytest.mark.parametrize(("revision", "commit"), [(None, NEW), (OLD, OLD)])
def test_a_revision_names_the_weights(hub: Path, revision: str | None, commit: str) -> None:
    found = loading.model_directory("lab/tiny", revision, weights=True)
    assert weights(found) == weights(hub / "models--lab--tiny" / "snapshots" / commit)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data": "hub:lab/none", "tokenizer": "lab/tiny"}, "hub data set lab/none cannot be had"),
        ({"data": "hub:lab/rows", "tokenizer": "lab/tiny", "split": "dev"}, "no .parquet or .jsonl file of split dev"),
        ({"data": "hub:lab/rows", "tokenizer": "lab/none"}, "the hub does not give it"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(tmp_path: Path, hub: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(StageProblem, match=said) as caught:
        in_process(preprocess.work, PreprocessSettings(**values), tmp_path / "out")
    assert "\n" not in str(caught.value)


CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM

Path({mark!r}).write_text("ran")

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_a_models_own_code_runs_only_where_the_recipe_says_so(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    model, mark = shutil.copytree(models["student"], tmp_path / "own"), tmp_path / "mark"
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "own", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "code.OwnConfig", "AutoModelForCausalLM": "code.OwnModel"}
    (model / "config.json").write_text(json.dumps(config))
    (model / "code.py").write_text(CODE.format(mark=str(mark)))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    with pytest.raises(StageProblem, match="trust_remote_code") as caught:
        loading.load_model(str(model), EvaluateSettings(), torch.device("cpu"), dtype=torch.float32)
    assert "\n" not in str(caught.value) and not mark.exists()
    trusted = EvaluateSettings(trust_remote_code=True)
    found = loading.load_model(str(model), trusted, torch.device("cpu"), dtype=torch.float32)
    assert mark.exists() and type(found).__name__ == "OwnModel"
