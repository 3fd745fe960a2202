"""Text to tokens: chats, masks, splits, refusals; and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from stages_help import in_process, jsonl, preprocessed, task_rows, tiny_model

from kdwatch.stages import preprocess
from kdwatch.stages.data.chat import encode_rows, pieces_of
from kdwatch.stages.data.rows import Row
from kdwatch.stages.data.tokenizer import TextTokenizer
from kdwatch.stages.data.tokens import read_tokens
from kdwatch.stages.problem import StageProblem
from kdwatch.stages.settings import PreprocessSettings

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'assistant' %}A:{{ m.content }}{{ eos_token }}{% if not loop.last %};{% endif %}"
    "{% else %}{{ m.role[0] }}:{{ m.content }};{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    model = tiny_model(tmp_path / "chatty")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


def texts(data: Path, model: Path, r: int = 0) -> tuple[str, str]:
    """(all text, text of the targets with | for the end-of-text token)."""
    tokens, tokenizer = read_tokens(data), TextTokenizer.load(str(model))
    ids, targets = tokens.row(r)
    shown = tokenizer.backend.decode(ids.tolist(), skip_special_tokens=False)
    marked = "".join("|" if i == 2 else tokenizer.backend.decode([int(i)]) for i in ids[targets])
    return shown, marked


def test_every_assistant_turn_is_trained_and_no_user_turn(tmp_path: Path, chatty: Path) -> None:
    """Trap 14: everything after the first assistant marker was trained, later user turns too."""
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]
    out = preprocessed(tmp_path / "d", chatty, [{"messages": messages}])
    shown, trained = texts(out, chatty)
    assert shown == "<bos>s:be brief;u:one;A:two<eos>;u:three;A:four<eos>"
    assert trained == "two|four|"


def test_prompt_and_response_without_template(tmp_path: Path, models: dict[str, Path]) -> None:
    out = preprocessed(tmp_path / "d", models["student"], [{"prompt": "rev abc=", "response": "cba", "task": "rev"}])
    assert texts(out, models["student"]) == ("<bos>rev abc=cba<eos>", "cba|")
    assert json.loads((out / "tasks.json").read_text())["tasks"] == ["rev"]


@pytest.mark.parametrize("template", [False, True])
def test_rows_encoded_together_are_those_encoded_alone(chatty: Path, models: dict[str, Path], template: bool) -> None:
    text = TextTokenizer.load(str(chatty if template else models["student"]))
    turns = [(("user", r["prompt"]), ("assistant", r["response"])) for r in task_rows(40)]
    rows = [Row(t, task=str(n)) for n, t in enumerate(turns)] + [Row((*turns[0], *turns[1]))] * template
    together = encode_rows(rows, text, use_template=True)
    assert [e.task for e in together] == [row.task for row in rows]
    for row, entry in zip(rows, together, strict=True):
        alone = encode_rows([row], text, use_template=True)[0]
        np.testing.assert_array_equal(entry.ids, alone.ids)
        np.testing.assert_array_equal(entry.targets, alone.targets)
        pieces = pieces_of(row, text, use_template=True)
        ids = [i for piece in pieces for i in text.encode(piece.text, special=piece.special)]
        assert entry.ids.tolist() in (ids, [*ids, text.eos_id])


def test_chat_without_template_and_template_that_rewrites_are_refused(
    tmp_path: Path, models: dict[str, Path], chatty: Path
) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(StageProblem, match="no chat template"):
        preprocessed(tmp_path / "a", models["student"], [{"messages": messages}])
    (chatty / "chat_template.jinja").write_text(
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(StageProblem, match="changes earlier turns"):
        preprocessed(tmp_path / "b", chatty, [{"messages": messages * 2}])


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path: Path, chatty: Path) -> None:
    (chatty / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(StageProblem, match=r"chat template .* fails"):
        preprocessed(tmp_path / "b", chatty, [{"messages": messages}])


def test_limit_and_validation_are_used_and_follow_the_seed(tmp_path: Path, models: dict[str, Path]) -> None:
    """Trap 14: num_samples and test_size were ignored, the split unseeded."""
    rows = task_rows(60)
    one = read_tokens(preprocessed(tmp_path / "a", models["student"], rows, limit=40, validation=0.25, seed=3))
    same = read_tokens(preprocessed(tmp_path / "b", models["student"], rows, limit=40, validation=0.25, seed=3))
    other = read_tokens(preprocessed(tmp_path / "c", models["student"], rows, limit=40, validation=0.25, seed=4))
    assert len(one) == 40 and len(one.validation_rows()) == 10
    assert one.meta["content"] == same.meta["content"] != other.meta["content"]
    np.testing.assert_array_equal(one.held_out, same.held_out)


def test_long_rows_are_dropped_or_cut_without_an_end_label(tmp_path: Path, models: dict[str, Path]) -> None:
    rows = [{"prompt": "ab", "response": "cd"}, {"prompt": "ab", "response": "c" * 30}]
    dropped = read_tokens(preprocessed(tmp_path / "a", models["student"], rows, max_length=10))
    assert len(dropped) == 1 and dropped.meta["left_out"] == {"too long": 1}
    cut = read_tokens(preprocessed(tmp_path / "b", models["student"], rows, max_length=10, too_long="truncate"))
    ids, targets = cut.row(1)
    assert len(ids) == 10 and ids[-1] != 2 and targets[-1]


def test_unusable_rows_are_counted_and_none_left_is_an_error(tmp_path: Path, models: dict[str, Path]) -> None:
    rows = [{"prompt": "a", "response": "b"}, {"prompt": 3}, {"text": "x"}, {"prompt": "", "response": "b"}]
    assert read_tokens(preprocessed(tmp_path / "a", models["student"], rows)).meta["left_out"] == {"no text": 3}
    with pytest.raises(StageProblem, match="no usable row"):
        preprocessed(tmp_path / "b", models["student"], rows[1:])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}\n{torn", "line 2 is no JSON"),
        (b"[1]\n", "line 1 is no object"),
        (b"", "no usable row"),
        (b'{}\n{"prompt": "caf\xe9"}\n', "line 2 is no JSON"),
        (b"[" * 200_000, "line 1 is no JSON"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, models: dict[str, Path], content: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(StageProblem, match=message):
        in_process(
            preprocess.work, PreprocessSettings(data=str(path), tokenizer=str(models["student"])), tmp_path / "o"
        )


def test_parquet_and_json_give_the_same_as_jsonl(tmp_path: Path, models: dict[str, Path]) -> None:
    import polars

    rows = task_rows(12)
    want = read_tokens(preprocessed(tmp_path / "l", models["student"], rows)).meta["content"]
    polars.DataFrame(rows).write_parquet(tmp_path / "x.parquet")
    (tmp_path / "x.json").write_text(json.dumps(rows))
    for name in ("x.parquet", "x.json"):
        settings = PreprocessSettings(data=str(tmp_path / name), tokenizer=str(models["student"]))
        out = in_process(preprocess.work, settings, tmp_path / f"o-{name}")
        assert read_tokens(out).meta["content"] == want


def test_other_vocabulary_of_the_teacher_fails_here(tmp_path: Path, models: dict[str, Path]) -> None:
    """Row 2: before any teacher energy is spent."""
    other = tiny_model(tmp_path / "other")
    value = json.loads((other / "tokenizer.json").read_text())
    value["model"]["vocab"].pop("~")
    (other / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(StageProblem, match="'~' only in one"):
        preprocessed(tmp_path / "a", models["student"], task_rows(3), teacher=str(other))


def test_a_torn_data_set_is_found(tmp_path: Path, models: dict[str, Path]) -> None:
    out = preprocessed(tmp_path / "a", models["student"], task_rows(3))
    ids = np.load(out / "ids.npy")
    ids[-1] += 1
    np.save(out / "ids.npy", ids)
    with pytest.raises(StageProblem, match=r"is not what its meta\.json says"):
        read_tokens(out)
    (out / "ids.npy").write_bytes(b"x")
    with pytest.raises(StageProblem, match="torn"):
        read_tokens(out)


def test_preprocess_imports_neither_torch_nor_transformers(tmp_path: Path, models: dict[str, Path]) -> None:
    data = jsonl(tmp_path / "x.jsonl", task_rows(3))
    config = tmp_path / "config.json"
    settings = {"data": str(data), "tokenizer": str(models["student"])}
    config.write_text(json.dumps({"name": "p", "settings": settings, "inputs": {}, "output": str(tmp_path / "o")}))
    code = (
        "import sys, runpy\n"
        "try: runpy.run_module('kdwatch.stages.preprocess', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"KDWATCH_STAGE_CONFIG": str(config), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o" / "meta.json").is_file()
