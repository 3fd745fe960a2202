"""Tables, samples of files and sample outputs of the docs are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kdwatch.cli.plan import plan
from kdwatch.interop.exporting import BINARY_FORMATS, TEXT_FORMATS
from kdwatch.interop.load import READERS
from kdwatch.ledger import core, stages
from kdwatch.ledger.report import build_report
from kdwatch.meters.sensor_checks import IDS
from kdwatch.pipeline.progress_tail import CHECKS
from kdwatch.pipeline.recipe_model import Recipe, StageRecipe
from kdwatch.settings import load
from kdwatch.stages.prerun_settings import Expected, PrerunSettings
from kdwatch.stages.registry import BUILTIN
from planners.schema import COLUMNS

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`([^`\s]+)`")
PACKAGES = ("tensorboard", "wandb", "trackio", "mlflow")
WARNED = re.compile(r'(?:\.warn\(|Verdict\("warn", |"code": |warning", code=)"([a-z_]+)"|code: str = "([a-z_]+)"')


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(name: str, heading: str) -> list[list[str]]:
    """Cells of the first table below a line of a page, without its head."""
    after = page(name).split(f"\n{heading}", 1)[1]
    table = re.search(r"\n\|.*\n\|[-| ]+\n((?:\|.*\n)+)", after)
    assert table is not None
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[1].splitlines()]


def first(name: str, heading: str) -> list[str]:
    """Code words of a table's first column."""
    return [word for row in rows(name, heading) for word in CODE.findall(row[0])]


def test_keys_of_a_stage() -> None:
    assert set(first("recipes.md", "## Keys of a stage")) == {
        field.alias or name for name, field in StageRecipe.model_fields.items()
    }


def test_the_example_recipe_is_one_and_shows_every_key() -> None:
    text = re.search(r"\n((?:    .*\n)+)", page("recipes.md"))
    assert text is not None
    recipe = yaml.safe_load(text[1])
    Recipe.model_validate(recipe)
    assert set(Recipe.model_fields) - set(recipe) == {"intensity", "sweep"}


def test_warnings_of_the_recorder() -> None:
    told = set(first("recipes.md", "## Warnings of the recorder"))
    for path in sorted((ROOT / "kdwatch" / "pipeline").glob("*.py")):
        given = {a or b for a, b in WARNED.findall(path.read_text(encoding="utf-8"))}
        assert given <= told, path


def test_built_in_stages() -> None:
    cells = {CODE.findall(row[0])[0]: (row[1], row[2]) for row in rows("pipelines.md", "## Built-in")}
    assert cells == {name: (stage.kind, stage.makes or "") for name, stage in BUILTIN.items()}


def test_columns_of_a_csv() -> None:
    told = {CODE.findall(row[0])[0]: row[1] for row in rows("planning.md", "CSV columns")}
    assert told == {name: meaning for name, (_, meaning) in COLUMNS.items() if name != "run_dir"}


def test_events() -> None:
    block = re.search(r"\n## Events\n.*?\n\n((?:    .*\n)+)", page("run-directory.md"))
    assert block is not None
    told = re.findall(r"^    ([a-z_]+) ", block[1], re.M)
    assert {*core._ACTIONS, *stages._ACTIONS, *CHECKS} <= set(told)
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kdwatch").rglob("*.py"))
    for name in told:
        assert f'"{name}"' in sources, name


def test_formats_in_and_out() -> None:
    read = first("import-export.md", "### Formats")
    assert set(READERS) - {"carbontracker"} <= set(read)
    assert sorted(first("import-export.md", "## Export")) == sorted({*TEXT_FORMATS, *BINARY_FORMATS, *PACKAGES})


def test_checks_of_doctor() -> None:
    assert set(IDS.values()) <= set(first("sensors.md", "## Checks of `kdwatch doctor`"))


def test_the_plan_that_the_page_shows(own_home: Path) -> None:
    shown = page("planning.md").split("kdwatch plan --budget 20kWh --frontier paper\n```\n\n")[1]
    block = re.match(r"(?:    .*\n)+", shown)
    assert block is not None
    done = CliRunner().invoke(plan, ["--budget", "20kWh", "--frontier", "paper"])
    assert done.stdout.startswith("".join(line[4:] + "\n" for line in block[0].splitlines()))


def fenced(name: str, language: str) -> str:
    """The first block of a language on a page."""
    block = re.search(rf"```{language}\n(.*?)```", page(name), re.S)
    assert block is not None
    return block[1]


def test_the_prerun_of_the_page_is_one_and_shows_every_setting() -> None:
    (stage,) = yaml.safe_load(fenced("sensors.md", "yaml"))["stages"]
    checked = PrerunSettings.model_validate(StageRecipe.model_validate(stage).settings)
    assert checked.model_fields_set == set(PrerunSettings.model_fields)
    assert checked.expect is not None and checked.expect.model_fields_set == set(Expected.model_fields)


def test_the_config_file_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text(fenced("screens.md", "toml"))
    monkeypatch.setenv("KDWATCH_CONFIG", str(path))
    found = load()
    assert [found[name] for name in ("units", "region", "energy_price")] == ["kWh", "FRA", 0.25]
    assert found.keys == {"freeze": "P"} and found.hooks == {"stage_failed": ["notify-send", "kdwatch"]}


def test_the_python_of_the_planning_page_runs() -> None:
    names: dict[str, Any] = {}
    exec(fenced("planning.md", "python"), names)
    assert names["result"].recommendation.id == "SFT-7B" and names["more"].reuse_n == 20


def keys_of(value: Any) -> set[str]:
    """Names of all fields at any depth; those under names of the user's own (`NAME` on the page) left out."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    inner = [keys_of(list(v.values()) if k == "benchmarks" else v) for k, v in value.items() if k != "phases_s"]
    return set(value).union(*inner)


def test_fields_of_a_report() -> None:
    block = re.search(r"\n((?:    .*\n|\n)+)", page("runs.md").split("## The report's object")[1].split("\n\n", 1)[1])
    assert block is not None
    plain_words = re.sub(r"\(.*?\)|\bof a stage:", "", block[1])
    told = set(re.findall(r"\b[a-z][a-z0-9_]*\b", plain_words))
    found: set[str] = set()
    for run in ("demo-sft", "demo-kd", "demo-synthetic"):
        found |= keys_of(build_report(ROOT / "sample_runs" / run))
    assert found <= told
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kdwatch" / "ledger").glob("*.py"))
    for name in told - found:
        assert f'"{name}"' in sources or f"{name}=" in sources, name
