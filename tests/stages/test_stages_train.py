"""Training: token weighting, masks, resume, early stopping, refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stages_help import in_process, random_rows, tiny_model, token_rows

from kdwatch.stages import cache_logits, train
from kdwatch.stages.data.tokens import TokenSet, read_tokens
from kdwatch.stages.entry import Stage, Stopped
from kdwatch.stages.nn import loop, models, optim
from kdwatch.stages.nn.batches import collate, collate_packed, response_logits
from kdwatch.stages.nn.early import Patience
from kdwatch.stages.nn.objective import Objective
from kdwatch.stages.nn.order import DataOrder
from kdwatch.stages.problem import StageProblem, TrainingProblem
from kdwatch.stages.settings import CacheSettings, EarlyStop, EvaluateSettings, TrainSettings

CPU = torch.device("cpu")
REAL = 98


def load(folder: Path) -> Any:
    return models.load_model(str(folder), EvaluateSettings(), CPU, dtype=torch.float32, train=True)


def settings_for(student: Path, **values: Any) -> TrainSettings:
    base = {"device": "cpu", "threads": 1, "batch_rows": 4, "max_steps": 6, "learning_rate": 1e-2, "warmup_steps": 2}
    return TrainSettings(student=str(student), **{**base, **values})


@pytest.fixture
def data(tmp_path: Path, models: dict[str, Path]) -> Path:
    token_rows(tmp_path / "data", models["student"], random_rows(3, 24), held_out=6)
    return tmp_path / "data"


@pytest.fixture
def logits(tmp_path: Path, models: dict[str, Path], data: Path) -> Path:
    wanted = CacheSettings(teacher=str(models["teacher"]), top_k=10, temperatures=[1, 2], device="cpu", threads=1)
    return in_process(cache_logits.work, wanted, tmp_path / "logits", data=data)


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def gradient_of(student: Path, data: TokenSet, objective: Objective, batch_rows: int) -> dict[str, torch.Tensor]:
    """Gradient of one update over the first 8 rows, in passes of `batch_rows`."""
    model = load(student)
    group = np.arange(8)
    positions = int(data.response_counts[group].sum())
    for begin in range(0, 8, batch_rows):
        batch = collate(data, group[begin : begin + batch_rows], 0, CPU)
        (objective.loss_sum(model, batch) / positions).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("objective", ["sft", "kd"])
def test_gradient_is_the_same_however_the_update_is_cut(
    models: dict[str, Path], data: Path, logits: Path, objective: str
) -> None:
    """Rows 9 and 17, traps 1 and 13: (8, 1), (2, 4) and (1, 8) with ragged lengths."""
    from kdwatch.stages.cache.reader import LogitCache

    tokens = read_tokens(data)
    cache = LogitCache(logits, tokens) if objective == "kd" else None
    made = Objective.make(settings_for(models["student"], objective=objective), REAL, cache)
    whole, two, one = (gradient_of(models["student"], tokens, made, n) for n in (8, 2, 1))
    for name, gradient in whole.items():
        torch.testing.assert_close(two[name], gradient, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(one[name], gradient, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_prompt_positions_get_no_gradient_but_the_last(tmp_path: Path, kind: str) -> None:
    """Rows 16 and 22: three architectures; the last prompt token predicts the first answer token."""
    student = tiny_model(tmp_path / kind, kind=kind, seed=3)
    tokens = token_rows(tmp_path / "d", student, [([1, 5, 6, 7, 8, 9, 2], 4), ([1, 10, 11, 12, 2], 2)])
    model = load(student)
    batch = collate(tokens, [0, 1], 0, CPU)
    full = model(input_ids=batch.ids).logits[:, :, :REAL]
    full.retain_grad()
    torch.nn.functional.cross_entropy(full[batch.row, batch.position], batch.labels, reduction="sum").backward()
    touched = full.grad.abs().sum(-1) > 0
    assert touched[0].tolist() == [False, False, False, True, True, True, False]
    assert touched[1].tolist() == [False, True, True, True, False, False, False]
    torch.testing.assert_close(
        response_logits(model, batch, REAL), full[batch.row, batch.position], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2", "gemma2", "no output layer to hook"])
@pytest.mark.parametrize("packed", [False, True])
def test_logits_at_answer_positions_are_those_of_a_plain_forward_pass(tmp_path: Path, kind: str, packed: bool) -> None:
    """Row 22. gemma2 bends its logits after the output layer, which must still happen."""
    model = load(tiny_model(tmp_path / "m", kind=kind if " " not in kind else "llama")).eval()
    data = token_rows(tmp_path / "data", tmp_path / "m", random_rows(5, 5))
    batch = collate_packed(data, [[0, 3], [1, 2, 4]], 0, CPU) if packed else collate(data, range(5), 0, CPU)
    if " " in kind:
        model.get_output_embeddings = lambda: None
    found = response_logits(model, batch, REAL)
    expected = []
    for r in batch.numbers:
        ids, targets = data.row(r)
        with torch.no_grad():
            whole = model(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0]
        expected.append(whole[np.flatnonzero(targets) - 1, :REAL])
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)


def test_pad_equal_to_end_keeps_one_end_label_and_no_more(tmp_path: Path, models: dict[str, Path]) -> None:
    """Row 12: which positions count follows from lengths, never from ids."""
    tokens = token_rows(tmp_path / "d", models["student"], [([1, 5, 6, 2], 2), ([1, 7, 8, 9, 10, 11, 2], 3)])
    batch = collate(tokens, [0, 1], 2, CPU)
    assert batch.labels.tolist() == [6, 2, 9, 10, 11, 2]
    assert batch.tokens == 11


def test_packed_rows_do_not_see_each_other(tmp_path: Path, models: dict[str, Path]) -> None:
    tokens = token_rows(tmp_path / "d", models["student"], random_rows(8, 4))
    model = load(models["student"])
    packed = collate_packed(tokens, [[0, 1], [2, 3]], 0, CPU)
    alone = collate(tokens, [0, 1, 2, 3], 0, CPU)
    assert packed.labels.tolist() == alone.labels.tolist()
    with torch.no_grad():
        a, b = response_logits(model, packed, REAL), response_logits(model, alone, REAL)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def run_training(output: Path, settings: TrainSettings, **inputs: Path) -> dict[str, Any]:
    in_process(train.work, settings, output, **inputs)
    return json.loads((output / "training.json").read_text())


def stop_after(monkeypatch: pytest.MonkeyPatch, stage: Stage, update: int) -> None:
    """SIGTERM's flag goes up during that update."""
    plain = loop.Trainer._step

    def step(self: loop.Trainer) -> None:
        plain(self)
        stage.stopping = self.update == update

    monkeypatch.setattr(loop.Trainer, "_step", step)


def tokens_said(events: Path) -> int:
    """Tokens that a stage reported as its own; it must also have said that it took up another's work."""
    said = [json.loads(line) for line in events.read_text().splitlines()]
    assert [e["code"] for e in said if e["type"] == "warning"] == ["resumed"]
    return max(e["tokens"] for e in said if e["type"] == "progress")


@pytest.mark.parametrize("variant", ["sft", "kd", "adafactor", "bfloat16", "packing"])
def test_a_stopped_training_resumes_to_the_same_weights(
    tmp_path: Path, models: dict[str, Path], data: Path, logits: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 39, trap 3: stop at update 3 of 6, resume; losses, order and final weights equal an undisturbed training, and
    the tokens that are told are those since the stop."""
    values: dict[str, Any] = {
        "sft": {},
        "kd": {"objective": "kd"},
        "adafactor": {"optimizer": "adafactor"},
        "bfloat16": {"weights": "bfloat16"},
        "packing": {"packing": True},
    }[variant]
    inputs = {"data": data, **({"logits": logits} if variant == "kd" else {})}
    settings = settings_for(models["student"], early_stop={"epsilon": 0.0, "patience": 9, "every": 2}, **values)
    whole = run_training(tmp_path / "whole", settings, **inputs)
    output = tmp_path / "stopped"
    stage = Stage("stage", inputs, output)
    with monkeypatch.context() as patch:
        stop_after(patch, stage, 3)
        with pytest.raises(Stopped):
            train.work(settings, stage)
    said = json.loads((output / ".resume" / "step-000000003" / "state.json").read_text())
    assert not (output / "model.safetensors").exists()
    monkeypatch.setenv("KDWATCH_EVENTS", str(tmp_path / "events"))
    resumed = run_training(output, settings, **inputs)
    assert tokens_said(tmp_path / "events") == whole["tokens"] - said["tokens"]
    assert resumed["validation_losses"] == whole["validation_losses"]
    assert resumed["tokens"] == whole["tokens"] and resumed["updates"] == 6
    for name, weight in final_weights(tmp_path / "whole").items():
        assert torch.equal(final_weights(output)[name], weight), name
    assert not (output / ".resume").exists()


def test_a_torn_newest_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, models: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(models["student"], checkpoint_every_s=1e-9)
    whole = run_training(tmp_path / "whole", settings, data=data)
    output = tmp_path / "torn"
    stage = Stage("stage", {"data": data}, output)
    with monkeypatch.context() as patch:
        stop_after(patch, stage, 4)
        with pytest.raises(Stopped):
            train.work(settings, stage)
    steps = sorted((output / ".resume").glob("step-*"))
    assert [s.name for s in steps] == ["step-000000003", "step-000000004"]
    (steps[-1] / "weights.safetensors").write_bytes(b"torn")
    resumed = run_training(output, settings, data=data)
    assert resumed["updates"] == whole["updates"]
    for name, weight in final_weights(tmp_path / "whole").items():
        assert torch.equal(final_weights(output)[name], weight)


def test_checkpoint_of_other_settings_is_not_taken_up(
    tmp_path: Path,
    models: dict[str, Path],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out"
    stage = Stage("stage", {"data": data}, output)
    with monkeypatch.context() as patch:
        stop_after(patch, stage, 3)
        with pytest.raises(Stopped):
            train.work(settings_for(models["student"]), stage)
    run_training(output, settings_for(models["student"], learning_rate=5e-3), data=data)
    assert "resumed" not in capsys.readouterr().out


def test_kd_without_cached_logits_is_an_error(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    """Row 5: never a silent fall back to cross-entropy."""
    with pytest.raises(StageProblem, match="needs the input logits"):
        in_process(train.work, settings_for(models["student"], objective="kd"), tmp_path / "o", data=data)


def test_kd_trains_with_the_teachers_files_deleted(tmp_path: Path, data: Path, models: dict[str, Path]) -> None:
    """Rows 4 and 10."""
    import shutil

    teacher = shutil.copytree(models["teacher"], tmp_path / "teacher")
    wanted = CacheSettings(teacher=str(teacher), top_k=10, device="cpu", threads=1)
    logits = in_process(cache_logits.work, wanted, tmp_path / "logits", data=data)
    shutil.rmtree(teacher)
    record = run_training(tmp_path / "o", settings_for(models["student"], objective="kd"), data=data, logits=logits)
    assert record["updates"] == 6 and record["captured_mass"]["1"] > 0


def test_undeclared_temperature_is_refused_before_training(
    tmp_path: Path, models: dict[str, Path], data: Path, logits: Path
) -> None:
    wanted = settings_for(models["student"], objective="kd", temperature=4)
    with pytest.raises(StageProblem, match="Cache again"):
        in_process(train.work, wanted, tmp_path / "o", data=data, logits=logits)


def test_student_of_another_tokenizer_is_refused(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    other = tiny_model(tmp_path / "other")
    value = json.loads((other / "tokenizer.json").read_text())
    value["model"]["vocab"]["a"], value["model"]["vocab"]["b"] = (
        value["model"]["vocab"]["b"],
        value["model"]["vocab"]["a"],
    )
    (other / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(StageProblem, match="different vocabularies"):
        in_process(train.work, settings_for(other), tmp_path / "o", data=data)


@pytest.mark.parametrize("rows", [99, 128])
def test_students_of_other_padding_train_on_one_cache(
    tmp_path: Path, models: dict[str, Path], data: Path, logits: Path, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows 1, 7, 8, 29: 98 real ids; the teacher has 104 rows, the student fewer or more; what is cut off is said."""
    other = tiny_model(tmp_path / "other", rows=rows)
    record = run_training(tmp_path / "o", settings_for(other, objective="kd"), data=data, logits=logits)
    assert math.isfinite(record["losses"][-1][1])
    assert f"98 real ids of {rows} rows; {rows - 98} padding rows are cut off" in capsys.readouterr().out
    assert record["versions"]["torch"] == torch.__version__  # row 15


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, models: dict[str, Path], data: Path
) -> None:
    settings = settings_for(models["student"], learning_rate=1e30, clip=None, warmup_steps=0, checkpoint_every_s=1e-9)
    with pytest.raises(TrainingProblem, match=r"the loss is nan at step \d of 6"):
        in_process(train.work, settings, tmp_path / "o", data=data)
    assert list((tmp_path / "o" / ".resume").glob("step-*"))
    assert not (tmp_path / "o" / "model.safetensors").exists()


def test_no_answer_token_is_an_error(tmp_path: Path, models: dict[str, Path]) -> None:
    """All labels masked: trl#6668."""
    token_rows(tmp_path / "d", models["student"], [([1, 2, 3], 3)])
    with pytest.raises(StageProblem, match="no row has an answer token"):
        in_process(train.work, settings_for(models["student"]), tmp_path / "o", data=tmp_path / "d")


def test_validation_loss_equals_the_mean_training_loss_on_the_same_rows(
    tmp_path: Path, models: dict[str, Path], data: Path
) -> None:
    """Row 21: eval loss 1000 times the training loss."""
    tokens = read_tokens(data)
    rate = settings_for(models["student"], max_steps=1, batch_rows=18, learning_rate=1e-12, warmup_steps=0)
    record = run_training(tmp_path / "o", rate, data=data)
    every = TokenSet(tokens.ids, tokens.targets, tokens.offsets, ~tokens.held_out, tokens.meta)
    model = load(models["student"])
    total = sum(
        float(Objective.make(rate, REAL, None).loss_sum(model, collate(every, [r], 0, CPU)))
        for r in every.validation_rows()
    )
    assert record["losses"][0][1] == pytest.approx(total / every.response_counts[every.held_out].sum(), rel=1e-4)


def test_early_stop_follows_epsilon_and_patience_and_keeps_the_best() -> None:
    """Trap 2: eps 0.002, patience 3."""
    rule = Patience(EarlyStop(epsilon=0.002, patience=3, every=10))
    course = [1.0, 0.9, 0.899, 0.8985, 0.8]
    seen = [rule.improves(loss, 10 * i) for i, loss in enumerate(course, 1)]
    assert seen == [True, True, False, False, True] and not rule.over
    assert [rule.improves(0.7995, 60 + i) for i in range(3)] == [False] * 3
    assert rule.over and rule.best == 0.8 and rule.best_update == 50


def test_half_precision_without_the_range_for_gradients_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="train in bfloat16 or float32"):
        settings_for(models["student"], dtype="float16")


def test_epsilon_without_patience_is_a_settings_error() -> None:
    """Row 41."""
    with pytest.raises(ValueError, match="patience"):
        EarlyStop(epsilon=0.002)  # type: ignore[call-arg]


def test_early_stopped_training_saves_the_best_weights(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    """A rate that makes things worse: the best is an early one, and it is what is saved."""
    rule = {"epsilon": 0.0, "patience": 2, "every": 1}
    settings = settings_for(models["student"], learning_rate=0.5, max_steps=40, early_stop=rule, warmup_steps=0)
    record = run_training(tmp_path / "o", settings, data=data)
    assert record["stopped_early"] and record["updates"] < 40
    tokens = read_tokens(data)
    model = load(tmp_path / "o")
    batch = collate(tokens, tokens.validation_rows(), 0, CPU)
    with torch.no_grad():
        loss = float(Objective.make(settings, REAL, None).loss_sum(model, batch)) / len(batch.labels)
    assert loss == pytest.approx(min(value for _, value in record["validation_losses"]), rel=1e-4)


def test_one_update_is_one_step_whatever_the_accumulation() -> None:
    """Traps 1, 5 and 6: effective batch, step unit, and the schedule's length are in optimizer updates."""
    order = DataOrder(np.arange(64), rows_per_update=16, seed=0)
    assert order.total_updates(2, None) == 8
    settings = TrainSettings(student="x", batch_rows=4, accumulate=4, learning_rate=1.0, warmup_steps=2)
    rates = [optim.learning_rate(settings, u, 8) for u in range(9)]
    assert rates[:3] == [0.5, 1.0, 1.0] and rates[8] == pytest.approx(0)
    seen = np.sort(np.concatenate([order.group(u) for u in range(4)]))
    assert seen.tolist() == list(range(64))
    assert order.group(0).tolist() != order.group(4).tolist()


def test_tokens_count_every_real_token_of_every_epoch(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    record = run_training(tmp_path / "o", settings_for(models["student"], max_steps=None, epochs=2), data=data)
    tokens = read_tokens(data)
    assert record["tokens"] == 2 * int(tokens.lengths[tokens.training_rows()].sum())


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_small_rates_move_bfloat16_weights(optimizer: str) -> None:
    """Row 25: at a rate of 5e-5 and weights of 0.02, torch's AdamW in bf16 rounds most updates away; here at least 90 %
    of the weights move within 20 steps, and by what float32 would give on average."""

    def after(make: Any) -> torch.Tensor:
        torch.manual_seed(0)
        layer = torch.nn.Linear(64, 64, bias=False)
        torch.nn.init.uniform_(layer.weight, 0.02, 0.03)
        layer.bfloat16()
        start = layer.weight.detach().clone()
        stepper = make(layer)
        for _ in range(20):
            layer.weight.grad = torch.ones_like(layer.weight)
            stepper.step()
        return (layer.weight.detach().float() - start.float()).flatten()

    settings = TrainSettings(student="x", weights="bfloat16", learning_rate=5e-5, optimizer=optimizer)
    moved = after(lambda layer: optim.make_optimizer(settings, layer))
    stuck = after(lambda layer: torch.optim.AdamW(layer.parameters(), lr=5e-5, weight_decay=0.0))
    assert (moved != 0).double().mean() >= 0.9
    assert float(moved.mean()) == pytest.approx(-20 * 5e-5, rel=0.1)
    assert (stuck != 0).double().mean() < 0.5


def test_adafactor_is_the_published_one_with_a_fixed_rate() -> None:
    """Trap 7: parameter scaling on for one regime and off for the other. Here it is off for all, as in transformers'
    own implementation with `scale_parameter=False`, on matrices, vectors and clipped updates."""
    from transformers.optimization import Adafactor

    def trained(make: Any) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        weights = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((6, 9), (7,))]
        stepper = make(weights)
        for update in range(8):
            for w in weights:
                w.grad = torch.randn(w.shape, generator=generator) * 10.0 ** (update % 3 - 1)
            stepper.step()
        return [w.detach() for w in weights]

    off = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
    theirs = trained(lambda weights: Adafactor(weights, lr=0.01, **off))
    settings = TrainSettings(student="x", optimizer="adafactor", learning_rate=0.01)
    ours = trained(lambda weights: optim.make_optimizer(settings, torch.nn.ParameterList(weights)))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "cache"),
    [
        ({"divergence": "reverse"}, {}),
        ({"divergence": "jsd", "beta": 0.3}, {}),
        ({"tail": "paper-compatible"}, {}),
        ({"temperature": 2}, {"method": "sample", "samples": 30}),
        ({"temperature": 2}, {"quantised": True}),
    ],
)
def test_every_way_of_distilling_lowers_its_own_loss(
    tmp_path: Path, models: dict[str, Path], data: Path, values: dict[str, Any], cache: dict[str, Any]
) -> None:
    """From cache to saved student; the record names the tail, so that truncation is labelled."""
    wanted = CacheSettings(
        teacher=str(models["teacher"]), top_k=12, temperatures=[1, 2], device="cpu", threads=1, **cache
    )
    logits = in_process(cache_logits.work, wanted, tmp_path / "logits", data=data)
    rule = {"epsilon": 0.0, "patience": 99, "every": 5}
    settings = settings_for(models["student"], objective="kd", alpha=0.0, max_steps=40, early_stop=rule, **values)
    record = run_training(tmp_path / "o", settings, data=data, logits=logits)
    course = [loss for _, loss in record["validation_losses"]]
    assert min(course) < course[0] - 0.02
    assert record["tail"] == values.get("tail", "ghost")


def test_stochastic_rounding_is_unbiased() -> None:
    from kdwatch.stages.nn.stochastic import round_to_bfloat16

    value = torch.full((200_000,), 1.0 - 5e-5)
    mean = float(round_to_bfloat16(value, torch.Generator().manual_seed(0)).double().mean())
    assert mean == pytest.approx(1.0 - 5e-5, abs=1e-5)
    special = torch.tensor([float("inf"), float("-inf")])
    assert torch.equal(round_to_bfloat16(special, torch.Generator()).float(), special)


def test_on_policy_scores_the_students_own_answers(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    """The student comes nearer to the teacher on its own text; no cache, no gradient to the teacher."""
    settings = settings_for(
        models["student"],
        objective="on_policy",
        teacher=str(models["teacher"]),
        alpha=0.0,
        divergence="reverse",
        max_new_tokens=6,
        max_steps=40,
        batch_rows=8,
        learning_rate=2e-2,
    )
    from kdwatch.stages.nn.onpolicy import OnPolicy

    tokens = read_tokens(data)
    scorer = OnPolicy.make(settings, REAL, tokens, CPU)
    assert not any(p.requires_grad for p in scorer.teacher.parameters())

    def distance(folder: Path) -> float:
        model = load(folder)
        torch.manual_seed(0)
        own = scorer.own_batch(model, collate(tokens, range(16), 0, CPU))
        return float(scorer.divergence(model, own)) / len(own.labels)

    before = distance(models["student"])
    run_training(tmp_path / "o", settings, data=data)
    assert distance(tmp_path / "o") < 0.9 * before


def test_on_policy_gradient_is_the_same_however_the_update_is_cut(models: dict[str, Path], data: Path) -> None:
    """Answers follow from update and row; each token of them weighs the same."""
    from kdwatch.stages.nn.onpolicy import OnPolicy
    from kdwatch.stages.nn.ranks import Ranks

    tokens = read_tokens(data)
    settings = settings_for(
        models["student"], objective="on_policy", teacher=str(models["teacher"]), max_new_tokens=9, divergence="jsd"
    )
    found = []
    for size in (8, 3, 1):
        model, scorer = load(models["student"]), OnPolicy.make(settings, REAL, tokens, CPU)
        torch.manual_seed(5)
        batches = [collate(tokens, range(begin, min(begin + size, 8)), 0, CPU) for begin in range(0, 8, size)]
        scorer.begin_update(model, batches, Ranks(), 1.0)
        sum(scorer.loss_sum(model, batch) for batch in batches).backward()
        found.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[2][name], gradient, rtol=1e-4, atol=1e-5)


def test_trained_model_loads_with_its_tokenizer(tmp_path: Path, models: dict[str, Path], data: Path) -> None:
    """Trap 15: the final model was saved without the tokenizer that evaluation needs."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run_training(tmp_path / "o", settings_for(models["student"]), data=data)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "o")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "o")
    ids = tokenizer("rev abc=", return_tensors="pt").input_ids
    assert ids[0, 0] == 1 and model(input_ids=ids).logits.shape[-1] == 104


def test_no_pickle_and_no_network_client_in_what_training_writes(
    tmp_path: Path, models: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 17: no tracker is started unasked; checkpoints are safetensors and JSON."""
    import sys

    output = tmp_path / "o"
    stage = Stage("stage", {"data": data}, output)
    with monkeypatch.context() as patch:
        stop_after(patch, stage, 2)
        with pytest.raises(Stopped):
            train.work(settings_for(models["student"]), stage)
    kinds = {p.suffix for p in output.rglob("*") if p.is_file()}
    assert kinds <= {".json", ".safetensors"}
    assert "wandb" not in sys.modules


@pytest.mark.parametrize("values", [{"dtype": "bfloat16"}, {"gradient_checkpointing": True}])
def test_other_ways_to_compute_give_about_the_same_losses(
    tmp_path: Path, models: dict[str, Path], data: Path, values: dict[str, Any]
) -> None:
    """bfloat16 over float32 weights within 2 %; gradient checkpointing the same up to rounding."""
    plain = run_training(tmp_path / "plain", settings_for(models["student"]), data=data)
    other = run_training(tmp_path / "other", settings_for(models["student"], **values), data=data)
    tolerance = 0.02 if "dtype" in values else 1e-5
    assert other["losses"][-1][1] == pytest.approx(plain["losses"][-1][1], rel=tolerance)
