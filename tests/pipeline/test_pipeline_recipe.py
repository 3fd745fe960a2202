"""Recipes: what is accepted, and errors that name file, line and key (issue 2, items 3 and "bad input")."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kdwatch.cli.root import cli
from kdwatch.pipeline.launch import recipe_spec
from kdwatch.pipeline.recipe import Recipe, load_recipe, parse_recipe
from kdwatch.pipeline.recipe_model import StageRecipe
from kdwatch.pipeline.resolve import measured_gpus, resolve
from kdwatch.rundir.errors import UsageProblem

GOOD = """
name: kd-demo
regime: kd
budget: 20kWh
stop_over_budget: true
region: FRA
pue: 1.2
idle_baseline: 5s
env: {A: b, N: 3}
stages:
  - name: student
    kind: student
    run: python3 train.py --name 'two words'
    gpus: [0, 2]
    timeout: 2h
    grace: 10s
"""


def test_a_whole_recipe() -> None:
    recipe = parse_recipe(GOOD)
    stage = recipe.stages[0]
    assert recipe.budget == 20 * 3.6e6  # 1 kWh = 3.6e6 J
    assert (recipe.idle_baseline, stage.timeout, stage.grace) == (5.0, 7200.0, 10.0)
    assert recipe.env == {"A": "b", "N": "3"}
    assert stage.argv == ["python3", "train.py", "--name", "two words"]
    assert stage.cuda_devices == "0,2"


def test_a_student_has_time_to_save_unless_the_recipe_says_otherwise() -> None:
    student = "{name: %s, uses: student.train, with: {student: m}, inputs: {data: d}%s}"
    data = "{name: d, uses: preprocess, with: {data: x, tokenizer: m}}"
    stages = [data, student % ("a", ""), student % ("b", ", grace: 5s"), "{name: c, run: 'true'}"]
    found = resolve(parse_recipe("name: r\nstages:\n" + "".join(f"- {s}\n" for s in stages)))
    assert [stage.grace_s for stage in found] == [10, 120, 5, 10]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("stages:\n- {name: a, run: 'true'}\nbudjet: 3kWh\n", 3, ["budjet", "did you mean budget"]),
        ("stages:\n- name: a\n  run: 'true'\n  gpu: 0\n", 4, ["stages[0].gpu", "did you mean gpus"]),
        ("name: x\n", 1, ["stages", "missing"]),
        ("stages: []\n", 1, ["stages"]),
        ("stages:\n- {name: a, run: 'true'}\n- {name: a, run: 'true'}\n", 3, ["stages[1].name", "two stages"]),
        ("stages:\n- name: a/b\n  run: 'true'\n", 2, ["stages[0].name", "letters"]),
        ("stages:\n- name: a\n", 2, ["stages[0]", "uses:", "run:"]),
        ("stages:\n- {name: a, uses: preprocess, run: 'true'}\n", 2, ["stages[0]", "only one"]),
        ("stages:\n- name: a\n  uses: preproces\n", 3, ["stages[0].uses", "did you mean preprocess"]),
        ("stages:\n- name: a\n  run: 'true'\n  with: {x: 1}\n", 2, ["with:", "built-in"]),
        ("budget: 20\nstages:\n- {name: a, run: 'true'}\n", 1, ["budget", "unit"]),
        ("budget: 20kW\nstages:\n- {name: a, run: 'true'}\n", 1, ["budget", "20kW", "kWh"]),
        ("budget: -1kWh\nstages:\n- {name: a, run: 'true'}\n", 1, ["budget"]),
        ("pue: .nan\nstages:\n- {name: a, run: 'true'}\n", 1, ["pue"]),
        ("pue: 0.5\nstages:\n- {name: a, run: 'true'}\n", 1, ["pue", "greater than or equal to 1"]),
        ("stop_over_budget: true\nstages:\n- {name: a, run: 'true'}\n", 1, ["stop_over_budget", "budget:"]),
        ("regime: magic\nstages:\n- {name: a, run: 'true'}\n", 1, ["regime", "synthetic_sft"]),
        ("region: FRB\nstages:\n- {name: a, run: 'true'}\n", 1, ["region", "FRA"]),
        ("stages:\n- name: a\n  run: 'true'\n  timeout: soon\n", 4, ["timeout", "soon", "2h"]),
        ("stages:\n- name: a\n  run: no-such-program-here x\n", 3, ["stages[0].run", "PATH"]),
        ("stages:\n- name: a\n  run: 'true'\n  workdir: nowhere\n", 4, ["workdir", "no directory"]),
        ("stages:\n- name: a\n  run: ''\n", 3, ["stages[0].run", "empty"]),
        ("stages:\n- name: a\n  run: echo a; exit 3\n", 3, ["stages[0].run", "; is for a shell", "sh -c"]),
        ("stages:\n- name: a\n  run: echo a && echo b\n", 3, ["stages[0].run", "&& is for a shell"]),
        ("stages:\n- name: a\n  run: echo a | cat\n", 3, ["stages[0].run", "| is for a shell"]),
        ("stages:\n- name: a\n  run: echo a 2>/dev/null\n", 3, ["stages[0].run", "2> is for a shell"]),
        ("stages:\n- name: a\n  run: echo ${HOME}/x\n", 3, ["stages[0].run", "${HOME is for a shell"]),
        ('stages:\n- name: a\n  run: "echo \'open"\n', 3, ["stages[0].run"]),
        ("stages:\n- name: a\n  run: 'true'\n  env: {X: [1]}\n", 4, ["env", "X"]),
        ("log_cap: 100\nstages:\n- {name: a, run: 'true'}\n", 1, ["log_cap", "100MB"]),
        ("name: x\nname: y\nstages:\n- {name: a, run: 'true'}\n", 2, ["name", "twice"]),
        ("stages:\n- name: a\n   run: x\n", 3, ["YAML"]),
        ("stages: [\n", 2, ["YAML"]),
        ("- a\n- b\n", 1, ["mapping"]),
        ("stages:\n- name: a\n  run: !!python/object/apply:os.system [id]\n", 3, ["YAML"]),
        (
            "stages:\n- {name: t, uses: evaluate, with: {student: x}, inputs: {student: nope}}\n",
            2,
            ["inputs.student", "nope"],
        ),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, line: int, words: list[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        load_recipe(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("""sh -c 'echo $HOME; ls | wc -l > x'""", ["sh", "-c", "echo $HOME; ls | wc -l > x"]),
        ("""find . -exec echo {} \\; -name '*|*'""", ["find", ".", "-exec", "echo", "{}", ";", "-name", "*|*"]),
        ("""curl http://x/?a=1&b=2;c""", ["curl", "http://x/?a=1&b=2;c"]),
        ("""python3 -c "print(1); print('a' > 'b')" """, ["python3", "-c", "print(1); print('a' > 'b')"]),
    ],
)
def test_quoted_signs_of_a_shell_are_the_commands_own(text: str, words: list[str]) -> None:
    assert StageRecipe.model_validate({"name": "a", "run": text}).argv == words


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "bomb.yaml").write_text(
        "a: &a [1,1,1,1,1,1,1,1]\n"
        + "".join(f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True))
    )
    for name, words in (
        ("bin", "UTF-8"),
        ("empty.yaml", "empty"),
        ("gone.yaml", "no such file"),
        (".", "directory"),
        ("bomb.yaml", "aliases"),
    ):
        with pytest.raises(UsageProblem) as caught:
            load_recipe(tmp_path / name)
        assert words in str(caught.value)


def test_aliases_and_merges_work() -> None:
    text = "stages:\n- &s {name: a, run: 'true', timeout: 5}\n- {<<: *s, name: b}\n"
    assert [(s.name, s.timeout) for s in parse_recipe(text).stages] == [("a", 5.0), ("b", 5.0)]


@pytest.mark.parametrize("arguments", [["run"], ["run", "--dry-run"]])
def test_the_command_says_it_in_one_line_and_exits_2(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("stages:\n- name: a\n  uses: nope\n")
    result = CliRunner().invoke(cli, [*arguments, str(path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and f"{path}:3: stages[0].uses" in result.stderr


def test_an_unknown_setting_of_a_built_in_is_named(tmp_path: Path) -> None:
    text = "stages:\n- name: a\n  uses: preprocess\n  with:\n    data: d.jsonl\n    tokenizer: t\n    max_lenght: 3\n"
    with pytest.raises(UsageProblem, match=r"recipe.yaml:7: stages\[0\].with.max_lenght: .*max_length"):
        parse_recipe(text)


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@given(
    st.lists(names, min_size=1, max_size=4, unique=True),
    st.lists(words, max_size=3),
    st.dictionaries(names, words, max_size=3),
    st.none() | st.floats(min_value=1e-3, max_value=1e15),
    st.integers(1000, 10**12),
)
def test_what_goes_to_the_recorder_is_the_same_recipe(stages, arguments, env, budget, cap) -> None:
    """A recipe survives the way to the recorder's process, whatever its words are."""
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "budget": None if budget is None else f"{budget!r}J",
            "env": env,
            "log_cap": f"{cap / 1000!r}kB",
            "stages": [{"name": n, "run": ["true", *arguments]} for n in stages],
        }
    )
    again = Recipe.model_validate(recipe_spec(recipe))
    assert again == recipe


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "stages", "run", "uses", "with", "env", "budget", "gpus", "inputs", "x"]),
                x,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_yaml_makes_anything_but_a_recipe_or_one_line(data) -> None:
    try:
        parse_recipe(yaml.safe_dump(data, allow_unicode=True))
    except UsageProblem as problem:
        assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("stages", "caller", "measured"),
    [
        ("- {name: a, run: 'true', gpus: [1, 0]}\n- {name: b, run: 'true', gpus: '0,2'}", None, "1,0,2"),
        ("- {name: a, run: 'true', gpus: 3}", "0,1", "3"),
        ("- {name: a, run: 'true', env: {CUDA_VISIBLE_DEVICES: GPU-12}}", None, "GPU-12"),
        ("- {name: a, run: 'true', gpus: 0}\n- {name: b, run: 'true'}", "4,5", "4,5"),
        ("- {name: a, run: 'true'}", None, None),
        ("- {name: a, run: 'true', gpus: 0}\n- {name: b, run: 'true', gpus: GPU-12}", None, None),
        ("- {name: a, run: 'true', gpus: []}", "0", ""),
    ],
)
def test_only_the_runs_own_gpus_are_measured(stages: str, caller: str | None, measured: str | None) -> None:
    """notes 2.5d: polling every GPU of a shared node counts what others use."""
    recipe = parse_recipe(f"stages:\n{stages}\n")
    assert measured_gpus(recipe, {} if caller is None else {"CUDA_VISIBLE_DEVICES": caller}) == measured


def test_workdir_is_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "r.yaml").write_text(textwrap.dedent("workdir: w\nstages:\n- {name: a, run: 'true'}\n"))
    recipe = load_recipe(tmp_path / "r.yaml")
    assert recipe.workdir_of(recipe.stages[0]) == tmp_path / "w"
