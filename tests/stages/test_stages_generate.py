"""Generation: whole prompts, right labels, filters, resume."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stages_help import REAL, in_process, preprocessed, task_rows

from kdwatch.stages import generate
from kdwatch.stages.data.tokens import read_tokens
from kdwatch.stages.entry import Stage, Stopped
from kdwatch.stages.generated import engines
from kdwatch.stages.generated.answers import AnswerStore, RowAnswer
from kdwatch.stages.generated.filters import reason, repetition
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import GenerateSettings


def settings_for(models: dict[str, Path], **values: Any) -> GenerateSettings:
    base = {
        "max_new_tokens": 6,
        "min_tokens": 0,
        "keep_truncated": True,
        "device": "cpu",
        "threads": 1,
        "batch_rows": 4,
    }
    return GenerateSettings(teacher=str(models["teacher"]), **{**base, **values})


@pytest.fixture
def data(tmp_path: Path, models: dict[str, Path]) -> Path:
    return preprocessed(tmp_path / "data", models["teacher"], task_rows(20))


def test_whole_prompts_are_kept_and_only_answers_are_labels(
    tmp_path: Path, models: dict[str, Path], data: Path
) -> None:
    """Traps 8 and 9: prompts cut to their last token; pads among the labels."""
    out = in_process(generate.work, settings_for(models, drop_duplicates=False), tmp_path / "out", data=data)
    source, made = read_tokens(data), read_tokens(out)
    assert len(made) == len(source)
    for r in range(len(made)):
        np.testing.assert_array_equal(made.prompt(r), source.prompt(r))
        ids, targets = made.row(r)
        start = len(source.prompt(r))
        assert not targets[:start].any() and targets[start:].all()
        assert len(ids) - start <= 7
    counts = made.meta["counts"]
    assert counts["output_tokens"] == int(made.response_counts.sum())
    assert counts["prompt_tokens"] == sum(len(source.prompt(r)) for r in range(len(source)))
    assert counts["generated"] == counts["kept"] == 20


def test_examples_are_the_same_rows_as_text(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    """Another tokenizer's student can preprocess `examples.jsonl`."""
    out = in_process(generate.work, settings_for(models, drop_duplicates=False), tmp_path / "out", data=data)
    rows = [json.loads(line) for line in (out / "examples.jsonl").read_text().splitlines()]
    assert [r["prompt"] for r in rows] == [r["prompt"] for r in task_rows(20)]


def test_truncated_answers_are_dropped_and_counted(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    """Trap 10: filters that only clamp. A random teacher rarely ends within 6 tokens."""
    kept = in_process(generate.work, settings_for(models, drop_duplicates=False), tmp_path / "kept", data=data)
    ended = [bool(read_tokens(kept).row(r)[0][-1] == 2) for r in range(20)]
    wanted = settings_for(models, keep_truncated=False, drop_duplicates=False)
    if not any(ended):
        with pytest.raises(StageProblem, match=r"truncated.*raise max_new_tokens"):
            in_process(generate.work, wanted, tmp_path / "out", data=data)
    else:
        out = in_process(generate.work, wanted, tmp_path / "out", data=data)
        counts = read_tokens(out).meta["counts"]
        assert counts["kept"] == sum(ended) and counts["dropped: truncated"] == 20 - sum(ended)


def test_duplicates_are_dropped(tmp_path: Path, models: dict[str, Path]) -> None:
    rows = task_rows(5)
    data = preprocessed(tmp_path / "d", models["teacher"], rows + rows)
    out = in_process(generate.work, settings_for(models, do_sample=False), tmp_path / "out", data=data)
    counts = read_tokens(out).meta["counts"]
    assert counts["kept"] == 5 and counts["dropped: duplicate"] == 5


@pytest.mark.parametrize(
    ("ids", "ended", "values", "why"),
    [
        ([5, 6], True, {"min_tokens": 3}, "too short"),
        ([5, 6, 7], True, {"min_tokens": 3}, None),
        ([5, 6, 7], False, {"keep_truncated": False}, "truncated"),
        ([5, 6, 7], False, {}, None),
        ([7] * 12, True, {"max_repetition": 0.5}, "repetitive"),
        ([7] * 12, True, {}, None),
    ],
)
def test_each_filter_says_why(
    models: dict[str, Path], ids: list[int], ended: bool, values: dict[str, Any], why: str | None
) -> None:
    assert reason(RowAnswer(0, 4, ids, ended), settings_for(models, **values)) == why


def test_repetition_is_the_share_of_four_grams_seen_before() -> None:
    assert repetition([1, 2, 3]) == 0
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([7] * 8) == pytest.approx(4 / 5)


def test_a_users_command_decides(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    code = "import sys, json\nfor l in sys.stdin: print(str(json.loads(l)['prompt'].startswith('max')).lower())"
    wanted = settings_for(models, drop_duplicates=False, filter_command=[sys.executable, "-c", code])
    out = in_process(generate.work, wanted, tmp_path / "out", data=data)
    rows = [json.loads(line) for line in (out / "examples.jsonl").read_text().splitlines()]
    assert len(rows) == sum(r["prompt"].startswith("max") for r in task_rows(20))
    wanted = settings_for(models, filter_command=[sys.executable, "-c", "print('maybe')"])
    with pytest.raises(StageProblem, match="must print true or false"):
        in_process(generate.work, wanted, tmp_path / "bad", data=data)


def test_a_stopped_generation_goes_on_and_gives_the_same(
    tmp_path: Path, models: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings_for(models, shard_rows=5, drop_duplicates=False)
    whole = in_process(generate.work, wanted, tmp_path / "whole", data=data)
    output = tmp_path / "stopped"
    stage = Stage("stage", {"data": data}, output)
    plain = engines.TransformersEngine.answer
    asked: list[int] = []

    def answer(self: Any, data: Any, rows: Any, stage: Stage, store: Any) -> Any:
        asked.append(len(rows))
        found = plain(self, data, rows, stage, store)
        stage.stopping = len(asked) == 2
        return found

    monkeypatch.setattr(engines.TransformersEngine, "answer", answer)
    with pytest.raises(Stopped):
        generate.work(wanted, stage)
    events = tmp_path / "events"
    monkeypatch.setenv("KDWATCH_EVENTS", str(events))
    in_process(generate.work, wanted, output, data=data)
    said = [json.loads(line) for line in events.read_text().splitlines()]
    told = max(e["tokens"] for e in said if e["type"] == "progress")
    all_of_them = read_tokens(output).response_counts
    assert told == int(all_of_them[10:].sum()) and "resumed" in [e.get("code") for e in said]
    assert len(asked) == 2 + 1 + 2
    for name in ("ids.npy", "targets.npy", "examples.jsonl"):
        assert (output / name).read_bytes() == (whole / name).read_bytes()
    assert not (output / ".answers").exists()


class FakeVllm(ModuleType):
    """vLLM's offline API as its documentation has it, answering greedily with the model itself."""

    def __init__(self, last: int | None = None) -> None:
        super().__init__("vllm")
        self.__spec__ = ModuleSpec("vllm", None)
        fake = self
        self.made: dict[str, Any] = {}
        self.asked: list[Any] = []

        @dataclass
        class SamplingParams:
            temperature: float = 1.0
            top_p: float = 1.0
            seed: int | None = None
            max_tokens: int | None = 16
            stop_token_ids: list[int] | None = None
            detokenize: bool = True

        class LLM:
            def __init__(
                self,
                model: str,
                *,
                dtype: str = "auto",
                seed: int = 0,
                trust_remote_code: bool = False,
                tensor_parallel_size: int = 1,
                skip_tokenizer_init: bool = False,
            ) -> None:
                from transformers import AutoModelForCausalLM

                fake.made = {"dtype": dtype, "tensor_parallel_size": tensor_parallel_size}
                assert skip_tokenizer_init  # only then are ids all it takes
                self.model = AutoModelForCausalLM.from_pretrained(model)

            def generate(self, prompts: Any, sampling_params: Any = None, *, use_tqdm: bool = True) -> list[Any]:
                fake.asked += sampling_params
                return [self._one(p["prompt_token_ids"], s) for p, s in zip(prompts, sampling_params, strict=True)]

            def _one(self, prompt: list[int], params: SamplingParams) -> Any:
                import torch

                assert params.max_tokens is not None and params.stop_token_ids is not None
                ids = list(prompt)
                reason = "length"
                for _ in range(params.max_tokens):
                    with torch.no_grad():
                        logits = self.model(input_ids=torch.tensor([ids])).logits[0, -1, :REAL]
                    ids.append(int(logits.argmax()))
                    if ids[-1] in params.stop_token_ids:
                        reason = "stop"
                        break
                made = ids[len(prompt) :]
                if last is not None:
                    made, reason = [*made[:3], last, *made[3:]], "length"
                return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(made), finish_reason=reason)])

        self.LLM, self.SamplingParams = LLM, SamplingParams


def test_vllm_gives_the_rows_that_transformers_gives(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first prompts of a greedy generation; the fake takes documented arguments only."""
    data = preprocessed(tmp_path / "data", models["teacher"], task_rows(20))
    wanted = {"do_sample": False, "max_new_tokens": 12, "drop_duplicates": False, "shard_rows": 8}
    whole = in_process(generate.work, settings_for(models, **wanted), tmp_path / "whole", data=data)
    fake = FakeVllm()
    monkeypatch.setitem(sys.modules, "vllm", fake)
    settings = settings_for(models, **wanted, engine="vllm", tensor_parallel=2, dtype="bfloat16", seed=3)
    made = in_process(generate.work, settings, tmp_path / "made", data=data)
    for name in ("ids.npy", "targets.npy", "offsets.npy", "examples.jsonl"):
        assert (made / name).read_bytes() == (whole / name).read_bytes(), name
    assert read_tokens(made).meta["counts"] == read_tokens(whole).meta["counts"]
    assert fake.made == {"dtype": "bfloat16", "tensor_parallel_size": 2}
    assert {p.temperature for p in fake.asked} == {0.0} and len({p.seed for p in fake.asked}) == 20


def test_an_id_that_means_no_token_ends_a_vllm_answer(
    tmp_path: Path, models: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM samples over padding rows of the vocabulary too; no such id may become a label."""
    monkeypatch.setitem(sys.modules, "vllm", FakeVllm(last=REAL + 1))
    out = in_process(
        generate.work,
        settings_for(models, engine="vllm", max_new_tokens=8, drop_duplicates=False, temperature=0.7),
        tmp_path / "out",
        data=data,
    )
    made = read_tokens(out)
    assert made.ids.max() < REAL and made.response_counts.max() <= 3


def test_finished_shards_are_kept_when_another_number_of_gpus_goes_on(tmp_path: Path, models: dict[str, Path]) -> None:
    def missing(**values: Any) -> int:
        store = AnswerStore(tmp_path, settings_for(models, engine="vllm", **values), "data")
        return len(store.missing(np.arange(1), 5))

    AnswerStore(tmp_path, settings_for(models, engine="vllm"), "data").write(0, [RowAnswer(0, 4, [5, 6], True)])
    assert [missing(), missing(tensor_parallel=2), missing(temperature=0.3)] == [0, 0, 1]


def test_vllm_that_is_not_installed_is_said(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    with pytest.raises(StageProblem, match="vllm is not installed"):
        in_process(generate.work, settings_for(models, engine="vllm"), tmp_path / "out", data=data)
