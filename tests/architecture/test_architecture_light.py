"""What each command may import, proven in a process of its own (design: "Light where it must be")."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import click
import pytest

from kdwatch.cli.root import COMMANDS

ROOT = Path(__file__).parents[2]
SAMPLE_RUNS = sorted(path.parent for path in (ROOT / "sample_runs").glob("*/manifest.json"))
HEAVY = {"torch", "transformers", "codecarbon", "pandas"}

PROBE = """
import json, sys
from kdwatch.__main__ import main
sys.argv = ["kdwatch", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as stop:
    code = stop.code
print("\\nMODULES" + json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def modules_after(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    code, names = json.loads(done.stdout.rsplit("MODULES", 1)[1])
    assert code in (0, None), done.stderr
    return set(names)


@pytest.fixture
def runs(own_home: Path) -> Path:
    assert SAMPLE_RUNS, "sample_runs/ holds no run"
    for run in SAMPLE_RUNS[:2]:
        shutil.copytree(run, own_home / "runs" / run.name)
    return own_home


def test_help_imports_no_heavy_module() -> None:
    assert not modules_after("--help") & (HEAVY | {"textual", "polars", "rich", "pydantic", "yaml", "psutil"})


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_is_light(name: str) -> None:
    assert not modules_after(name, "--help") & (HEAVY | {"textual"})


@pytest.mark.parametrize(
    "args",
    [
        ("ls",),
        ("report", "last"),
        ("report", "last", "--json"),
        ("replay", "last", "--once"),
        ("watch", "last", "--once"),
    ],
)
def test_headless_commands_import_neither_textual_nor_polars(runs: Path, args: tuple[str, ...]) -> None:
    assert not modules_after(*args) & (HEAVY | {"textual", "polars"})


def test_plan_imports_neither_textual_nor_torch() -> None:
    assert not modules_after("plan", "--budget", "20kWh", "--frontier", "paper", "--json") & (HEAVY | {"textual"})


def test_run_and_replay_screens_import_no_polars_and_no_torch() -> None:
    code = "import kdwatch.tui.app, sys, json; print(json.dumps(sorted({n.split('.')[0] for n in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert not set(json.loads(done.stdout)) & (HEAVY | {"polars"})


def test_every_command_of_the_table_exists_with_help() -> None:
    for name, (target, short) in COMMANDS.items():
        module, attribute = target.split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), name
        assert command.help and short


def test_help_is_about_as_quick_as_importing_click() -> None:
    """At most 2.5 x `python -c 'import click'` + 0.05 s; medians of pairs in one run."""

    def wall(*command: str) -> float:
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
        return time.perf_counter() - start

    wall(sys.executable, "-m", "kdwatch", "--help")
    pairs = [
        (wall(sys.executable, "-m", "kdwatch", "--help"), wall(sys.executable, "-c", "import click")) for _ in range(9)
    ]
    ours, click_alone = (statistics.median(column) for column in zip(*pairs, strict=True))
    assert ours <= 2.5 * click_alone + 0.05
