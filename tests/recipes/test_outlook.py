"""Dry runs: tokens counted or bounded, disk by the cache's formula, energy from runs of this hardware or a prior."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import DATA, KD

from kdwatch.ledger.units import KWH_J
from kdwatch.pipeline.dry_run import describe, energy_range, size_text
from kdwatch.pipeline.outlook import data
from kdwatch.pipeline.outlook.models import model_facts
from kdwatch.pipeline.outlook.past import PastStage
from kdwatch.pipeline.outlook.stages import Machine, StageOutlook, outlook, total
from kdwatch.pipeline.recipe import parse_recipe
from kdwatch.stages.cache.layout import Layout
from planners.probes import Made, Probe

EMPTY = Machine(None, ())
TOKENS = 3 + 1 + 1 + 2 + 2 + 1 + 3
"""Words of the data set, and an end for each of its three rows."""
RESPONSE = 1 + 2 + 1 + 3


def look(folder: Path, text: str = KD, machine: Machine = EMPTY) -> dict[str, StageOutlook]:
    return {found.stage.name: found for found in outlook(parse_recipe(text, folder / "r.yaml"), machine)}


def trained(tokens: float, joules: float, params_b: float | None = None, objective: str = "kd") -> PastStage:
    return PastStage("student", "student.train", (), {"objective": objective}, params_b, tokens, joules, "cpu")


@pytest.fixture
def sized(folder: Path) -> Path:
    """The model directory with weights: a file whose header says one million parameters, and no more."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1000, 1000], "data_offsets": [0, 4_000_000]}}).encode()
    with (folder / "model" / "model.safetensors").open("wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.truncate(8 + len(header) + 4_000_000)
    (folder / "model" / "config.json").write_text(json.dumps({"vocab_size": 8}))
    return folder


# -- amounts


def test_tokens_of_small_data_are_counted(folder: Path) -> None:
    found = look(folder)
    assert (found["data"].amounts.tokens, found["data"].amounts.how) == (TOKENS, "counted")
    assert found["cache"].amounts.tokens == TOKENS
    assert found["student"].amounts.tokens == TOKENS  # one epoch


def test_tokens_of_large_data_are_sampled(folder: Path) -> None:
    rows = [json.dumps({"prompt": "one " * (1 + i % 3), "response": "two"}) for i in range(3000)]
    (folder / "data.jsonl").write_text("\n".join(rows))
    found = look(folder)["data"].amounts
    assert found.how == "sampled" and found.tokens == pytest.approx(3000 * 4, rel=0.05)  # 2 + 1 + an end, on average


def test_epochs_steps_validation_and_early_stopping(folder: Path) -> None:
    epochs = look(folder, KD.replace("objective: kd}", "objective: kd, epochs: 3}"))
    assert epochs["student"].amounts.tokens == 3 * TOKENS
    steps = KD.replace("objective: kd}", "objective: kd, max_steps: 10, batch_rows: 2, accumulate: 3}")
    assert look(folder, steps)["student"].amounts.tokens == pytest.approx(10 * 2 * 3 * TOKENS / 3)
    held = KD.replace("chat_template: none", "chat_template: none, validation: 0.25")
    assert look(folder, held)["student"].amounts.tokens == pytest.approx(0.75 * TOKENS)
    early = KD.replace("objective: kd}", "objective: kd, early_stop: {epsilon: 0.1, patience: 1}}")
    assert look(folder, early)["student"].amounts.how == "at most"


def test_without_the_data_the_settings_bound_it_or_it_is_unknown(folder: Path) -> None:
    hub = KD.replace("data: data.jsonl", "data: hub:a/b, limit: 50, max_length: 64")
    assert (look(folder, hub)["data"].amounts.tokens, look(folder, hub)["data"].amounts.how) == (50 * 64, "at most")
    nothing = look(folder, KD.replace("data: data.jsonl", "data: hub:a/b"))
    assert all(s.amounts.tokens is None for s in nothing.values())
    assert "n/a" in describe(parse_recipe(KD.replace("data.jsonl", "hub:a/b"), folder / "r.yaml"), EMPTY)


def test_generation_is_bounded_by_its_longest_answers(folder: Path) -> None:
    text = """\
stages:
  - {name: data, uses: preprocess, with: {data: data.jsonl, tokenizer: model, chat_template: none}}
  - name: answers
    uses: teacher.generate
    with: {teacher: model, max_new_tokens: 10, prompts: 2}
    inputs: {data: data}
  - {name: student, uses: student.train, with: {student: model}, inputs: {data: answers}}
"""
    found = look(folder, text)
    assert (found["answers"].amounts.tokens, found["answers"].amounts.how) == (20, "at most")
    prompts = (TOKENS - RESPONSE) * 2 / 3
    assert found["student"].amounts.tokens == pytest.approx(prompts + 20)


def test_the_cache_is_as_large_as_its_layout_says(sized: Path) -> None:
    found = look(sized, KD.replace("top_k: 4", "top_k: 4, temperatures: [1, 2]"))["cache"].amounts
    assert found.disk_b == Layout(4, 8, (1.0, 2.0)).bytes_per_position * RESPONSE
    quantised = look(sized, KD.replace("top_k: 4", "top_k: 4, quantised: true"))["cache"].amounts
    assert quantised.disk_b == Layout(4, 8, (1.0,), quantised=True).bytes_per_position * RESPONSE


def test_sizes_of_models(sized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (model_facts("model", sized).params, model_facts("model", sized).vocabulary) == (1e6, 8)
    assert model_facts("allenai/OLMo-2-0425-1B", sized).source == "published"
    assert model_facts("someone/thing-3B", sized).params_b == 3.0
    assert model_facts("someone/thing", sized).params is None
    monkeypatch.setenv("HF_HUB_CACHE", str(sized / "hub"))
    snapshot = sized / "hub" / "models--someone--thing" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    (sized / "model").rename(snapshot)
    assert model_facts("someone/thing", sized).params == 1e6


# -- energy


def test_without_runs_and_for_small_models_energy_is_unknown_with_the_reason(sized: Path) -> None:
    found = look(sized)
    assert all(s.energy is None and s.why for s in found.values())
    assert total(list(found.values())) is None
    text = describe(parse_recipe(KD, sized / "r.yaml"), EMPTY)
    assert "n/a: energy of data, cache, student: no run of it on this hardware" in text


def test_energy_of_the_same_work_is_the_mean_of_its_runs(sized: Path) -> None:
    past = [trained(TOKENS, j, params_b=0.001) for j in (90.0, 100.0, 110.0)]
    found = look(sized, machine=Machine("cpu", past))["student"].energy
    assert found is not None and found.label == "predicted" and found.mean_j == pytest.approx(100.0)
    assert found.low_j < 90 and found.high_j > 110  # a next run, with three to judge by


def test_runs_of_two_lengths_carry_a_line(sized: Path) -> None:
    past = [trained(tokens, 50.0 + 2.0 * tokens, params_b=0.001) for tokens in (100.0, 1000.0)]
    text = KD.replace("objective: kd}", "objective: kd, max_steps: 100, batch_rows: 1}")
    found = look(sized, text, Machine("cpu", past))["student"]
    assert found.energy is not None
    assert found.energy.mean_j == pytest.approx(50.0 + 2.0 * 100 * TOKENS / 3, rel=1e-6)


def test_one_length_gives_a_range_and_no_answer_far_from_it(sized: Path) -> None:
    past = [trained(4.0 * TOKENS, 100.0, params_b=0.001)]
    found = look(sized, machine=Machine("cpu", past))["student"].energy
    assert found is not None and found.low_j < 100.0 / 4 < found.mean_j < 100.0 / 2 < found.high_j
    far = look(sized, machine=Machine("cpu", [trained(40.0 * TOKENS, 100.0, params_b=0.001)]))["student"]
    assert far.energy is None and "too far" in str(far.why)


def test_other_objectives_and_machines_say_nothing(sized: Path) -> None:
    past = [trained(TOKENS, 100.0, params_b=0.001, objective="sft")]
    assert look(sized, machine=Machine("cpu", past))["student"].energy is None


def test_a_size_between_two_that_ran_is_interpolated(sized: Path) -> None:
    past = [trained(TOKENS, 100.0, 0.0005), trained(TOKENS, 200.0, 0.0015)]
    found = look(sized, machine=Machine("cpu", past))["student"].energy
    assert found is not None and found.mean_j == pytest.approx(150.0)


def test_an_evaluation_is_predicted_from_the_same_tests_only(sized: Path) -> None:
    (sized / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DATA))
    text = """\
stages:
  - {name: e, uses: teacher.evaluate, with: {teacher: model, exact_match: test.jsonl, max_new_tokens: 8}}
"""
    same = PastStage(
        "e", "teacher.evaluate", (), {"exact_match": "test.jsonl", "max_new_tokens": 8}, 0.001, 30, 40.0, "cpu"
    )
    found = look(sized, text, Machine("cpu", [same]))["e"]
    assert found.energy is not None and found.energy.mean_j == 40.0
    assert found.amounts.how == "at most" and found.amounts.tokens == (TOKENS - RESPONSE) + 3 * 8
    other = replace(same, settings={"exact_match": "other.jsonl", "max_new_tokens": 8})
    assert "other tests" in str(look(sized, text, Machine("cpu", [other]))["e"].why)


@pytest.mark.parametrize("hardware", ["1x NVIDIA H100 80GB HBM3", "AMD EPYC"])
def test_large_models_have_a_prior_that_names_its_machine(folder: Path, hardware: str) -> None:
    text = KD.replace("data: data.jsonl", "data: hub:a/b, limit: 1000, max_length: 1000").replace(
        "student: model", "student: allenai/OLMo-2-0425-1B"
    )
    found = look(folder, text, Machine(hardware, ()))["student"].energy
    assert found is not None and found.label == "prior"
    assert ("not this machine" in found.basis) == (hardware == "AMD EPYC")
    flops = 6 * 1.485e9 * 1e6  # 6 P D, at 8 to 60 pJ in KD
    assert found.low_j == pytest.approx(flops * 8e-12, rel=0.01)
    assert found.high_j == pytest.approx(flops * 60e-12, rel=0.01)
    assert found.low_j < found.mean_j < found.high_j


def test_the_sum_adds_both_sides_of_the_ranges_in_squares(sized: Path) -> None:
    past = [
        trained(TOKENS, 100.0, 0.001),
        PastStage("c", "teacher.cache_logits", (), {}, 0.001, TOKENS, 40.0, "cpu"),
        PastStage("p", "preprocess", (), {}, None, TOKENS, 3.0, "cpu"),
    ]
    found = list(look(sized, machine=Machine("cpu", past)).values())
    whole = total(found)
    assert whole is not None and whole.mean_j == pytest.approx(143.0) and whole.unknown == ()
    parts = [s.energy for s in found if s.energy]
    assert whole.high_j - 143.0 == pytest.approx(math.hypot(*[e.high_j - e.mean_j for e in parts]))
    assert len(parts) == 3 and whole.low_j > 0


def test_runs_with_the_same_batch_go_before_others(sized: Path) -> None:
    wide, narrow = (
        replace(trained(TOKENS, joules, 0.001), settings={"objective": "kd", "batch_rows": rows})
        for rows, joules in ((8, 100.0), (1, 500.0))
    )
    found = look(sized, machine=Machine("cpu", [narrow, wide]))["student"].energy  # the default is 8 rows
    assert found is not None and found.mean_j == 100.0 and "another batch" not in found.basis
    found = look(sized, machine=Machine("cpu", [narrow]))["student"].energy
    assert found is not None and found.mean_j == 500.0 and "another batch" in found.basis


# -- reading and showing


def test_stored_counts_survive_any_file(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"rows": -1, "tokens": 2, "response_tokens": 1}', '{"rows": true}', "nan"):
        (tmp_path / "meta.json").write_text(text)
        assert data.stored_count(tmp_path) is None
    whole = {"rows": 4, "tokens": 9, "response_tokens": 5, "validation_rows": 1}
    (tmp_path / "meta.json").write_text(json.dumps(whole))
    found = data.stored_count(tmp_path)
    assert found == data.DataCount(4, 9, 5, "counted", 0.75) and found.prompt == 4


@pytest.mark.parametrize(
    ("value", "how", "text"),
    [
        (None, None, "n/a"),
        (0, None, "0 B"),
        (999, None, "999 B"),
        (6.59e9, "at most", "≤6.59 GB"),
        (5e4, "sampled", "~50.0 kB"),
    ],
)
def test_sizes_as_text(value: float | None, how: str | None, text: str) -> None:
    assert size_text(value, how) == text


def test_ranges_are_in_the_unit_of_the_mean() -> None:
    assert energy_range(1500.0, 900.0, 2100.0).replace("\N{NO-BREAK SPACE}", " ") == "1.50 kJ (0.900 to 2.10)"
    assert "kWh" in energy_range(2 * KWH_J, 1.0, 3 * KWH_J)


def test_a_dry_run_loads_no_torch_and_no_screen(sized: Path) -> None:
    (sized / "r.yaml").write_text(KD + "sweep: {student.alpha: [0.3, 0.5]}\n")
    code = (
        "import sys; from kdwatch.__main__ import main\n"
        "sys.argv = ['kdwatch', 'sweep', '--dry-run', 'r.yaml']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*(m for m in ('torch', 'transformers', 'codecarbon', 'textual') if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=sized, capture_output=True, text=True, timeout=120, check=True
    )
    assert "2 points, 2 to run" in done.stdout and done.stderr.strip() == ""


def probed(rate: float, startup: float, **settings: Any) -> Probe:
    """A student's probe of the small model."""
    points = tuple((100.0 * n, 100.0 * n * rate) for n in range(10))
    shape = {"objective": "kd"} | settings
    return Probe("student", points, startup, 0.0, params_b=0.001, uses="student.train", settings=shape)


def test_probes_serve_where_nothing_ran(sized: Path) -> None:
    found = look(sized, machine=Machine("cpu", (), [probed(2.0, 50.0)]))["student"].energy
    assert found is not None and (found.label, found.basis) == ("predicted", "from probes here")
    assert found.mean_j == pytest.approx(50.0 + 2.0 * TOKENS)


def test_full_runs_go_before_probes_and_probes_of_other_settings_say_nothing(sized: Path) -> None:
    past = [trained(TOKENS, 100.0, params_b=0.001)]
    found = look(sized, machine=Machine("cpu", past, [probed(2.0, 50.0)]))["student"].energy
    assert found is not None and found.mean_j == pytest.approx(100.0)
    assert look(sized, machine=Machine("cpu", (), [probed(2.0, 50.0, batch_rows=64)]))["student"].energy is None


def test_answers_are_as_long_and_as_often_kept_as_those_of_the_probe(sized: Path) -> None:
    """A student that trains on answers: not on the longest that there could be."""
    text = """\
stages:
  - {name: data, uses: preprocess, with: {data: data.jsonl, tokenizer: model}}
  - {name: answers, uses: teacher.generate, with: {teacher: model, max_new_tokens: 64}, inputs: {data: data}}
  - {name: student, uses: student.train, with: {student: model, epochs: 2}, inputs: {data: answers}}
"""
    assert look(sized, text)["student"].amounts.how == "at most"
    points = tuple((100.0 * n, 300.0 * n) for n in range(10))
    settings = {"teacher": "model", "max_new_tokens": 64}
    probe = Probe("generate", points, 10.0, 0.0, params_b=0.001, length=64.0, samples=90.0,
                  made=Made(60.0, 1200.0), uses="teacher.generate", settings=settings)  # fmt: skip
    found = look(sized, text, Machine("cpu", (), [probe]))
    assert found["answers"].amounts.tokens == pytest.approx(3 * 10.0), "3 prompts of 900/90 tokens"
    assert found["student"].amounts.tokens == pytest.approx(2 * 3 * (60 / 90) * 20)
    assert found["answers"].energy is not None
    assert found["answers"].energy.mean_j == pytest.approx(10.0 + 3.0 * 30, rel=0.01)
