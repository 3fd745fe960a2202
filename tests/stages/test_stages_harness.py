"""lm-evaluation-harness through its public API; the tests with it run where it is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from stages_help import in_process, jsonl

from kdwatch.stages import evaluate, teacher_evaluate
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.scoring import harness
from kdwatch.stages.scoring.counts import Counts
from kdwatch.stages.settings import StudentEvaluateSettings, TeacherEvaluateSettings

CPU = {"device": "cpu", "threads": 1}
TEMPLATE = (
    "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
)
ROWS = [
    {"q": "max 12 34 56=", "a": "56", "choices": ["56", "34", "12"]},
    {"q": "rev abc=", "a": "cba", "choices": ["cba", "abc", "cab"]},
    {"q": "rev xy=", "a": "yx", "choices": ["yx", "yy", "y"]},
]
GENERATE = """
task: kdwatch_generate
dataset_path: json
dataset_kwargs: {data_files: {test: ROWS}}
test_split: test
output_type: generate_until
doc_to_text: '{{q}}'
doc_to_target: '{{a}}'
generation_kwargs: {until: ['%%%'], max_gen_toks: 4}
metric_list: [{metric: exact_match}]
filter_list:
  - {name: strict-match, filter: [{function: take_first}]}
  - {name: flexible, filter: [{function: take_first}]}
"""
CHOOSE = """
task: kdwatch_choose
dataset_path: json
dataset_kwargs: {data_files: {test: ROWS}}
test_split: test
output_type: multiple_choice
doc_to_text: '{{q}}'
doc_to_target: 0
doc_to_choice: '{{choices}}'
target_delimiter: ''
metric_list: [{metric: acc}]
"""


def test_headline_takes_the_tasks_own_metric() -> None:
    metrics = {"alias": "gsm8k", "exact_match,strict-match": 0.4, "exact_match,flexible-extract": 0.5}
    assert harness.headline(metrics, "gsm8k") == 0.4
    assert harness.headline({"acc,none": 0.3, "acc_stderr,none": 0.01}, "mmlu") == 0.3
    with pytest.raises(StageProblem, match="gave no number"):
        harness.headline({"alias": "x"}, "x")


def test_a_harness_that_is_not_installed_is_said(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "find_spec", lambda _: None)
    settings = StudentEvaluateSettings(lm_eval={"tasks": ["gsm8k"]}, **CPU)
    with pytest.raises(StageProblem, match="not installed"):
        in_process(evaluate.work, settings, None, student=models["student"])


def test_tokens_of_logged_samples_are_counted_once(models: dict[str, Path]) -> None:
    """A generated sample is logged once for each filter; choices that share all but the last token are one pass."""
    tokenizer = TextTokenizer.load(str(models["student"]))
    made = {"arguments": [("abc", {"until": ["x"]})], "resps": [["de"]]}
    chosen = {"arguments": [("ab", "c"), ("ab", "d"), ("ab", "cd")], "resps": [[(-1.0, True)]] * 3}
    counts = Counts()
    harness.count_samples([{"doc_id": 0, **made}, {"doc_id": 0, **made}], tokenizer, counts)
    assert (counts.prompt, counts.output) == (4, 3)  # <bos> abc; de <eos>
    counts = Counts()
    harness.count_samples([{"doc_id": 0, **chosen}], tokenizer, counts)
    assert (counts.prompt, counts.output) == (3 + 4, 0)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Directory of two task files on our own rows."""
    pytest.importorskip("lm_eval")
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = jsonl(folder / "rows.jsonl", ROWS)
    (folder / "generate.yaml").write_text(GENERATE.replace("ROWS", str(rows)))
    (folder / "choose.yaml").write_text(CHOOSE.replace("ROWS", str(rows)))
    return folder


@pytest.mark.parametrize(
    "template",
    [pytest.param(False, marks=pytest.mark.slow), True],  # the harness takes 10 s of CPU time for each
)
def test_tasks_of_our_own_are_scored_with_limit_template_and_tokens(
    tmp_path: Path, models: dict[str, Path], tasks: Path, template: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 36, against the installed version. What the model is asked goes through its chat template if it has one."""
    model = shutil.copytree(models["student"], tmp_path / "model")
    if template:
        (model / "chat_template.jinja").write_text(TEMPLATE)
    asked: list[str] = []
    count = harness.count_samples

    def watch(samples: Any, tokenizer: TextTokenizer, counts: Counts) -> None:
        asked.extend(arguments[0] for sample in samples for arguments in sample["arguments"])
        count(samples, tokenizer, counts)

    monkeypatch.setattr(harness, "count_samples", watch)
    monkeypatch.setenv("KDWATCH_EVENTS", str(tmp_path / "events"))
    wanted = {"tasks": ["kdwatch_generate", "kdwatch_choose"], "limit": 2, "include_path": str(tasks)}
    settings = TeacherEvaluateSettings(teacher=str(model), lm_eval=wanted, batch_rows=2, **CPU)
    out = in_process(teacher_evaluate.work, settings, tmp_path / "out")
    record = json.loads((out / "scores.json").read_text())
    assert set(record["benchmarks"]) == {"kdwatch_generate", "kdwatch_choose"}
    assert all(0 <= score <= 1 for score in record["benchmarks"].values())
    questions = [row["q"] for row in ROWS[:2]]
    assert set(asked) == {f"[u]{q}[a]" if template else q for q in questions}
    least = 2 * sum(map(len, questions))  # a character is a token
    assert least < record["tokens"] < 4 * least + 100


@pytest.mark.slow  # 20 s of CPU time in the harness
def test_a_task_whose_data_is_missing_and_an_unknown_task_are_one_line(models: dict[str, Path], tasks: Path) -> None:
    (tasks / "rows.jsonl").unlink()
    for task, said in (("kdwatch_generate", "cannot be run"), ("kdwatch_nothing", "no task kdwatch_nothing")):
        wanted = {"tasks": [task], "include_path": str(tasks)}
        with pytest.raises(StageProblem, match=said) as caught:
            in_process(
                evaluate.work, StudentEvaluateSettings(student=str(models["student"]), lm_eval=wanted, **CPU), None
            )
        assert "\n" not in str(caught.value)
