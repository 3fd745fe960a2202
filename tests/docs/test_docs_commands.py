"""Every command in README and docs runs as written.

A block fenced as `sh` holds commands. A block that cannot run here (it needs a GPU, hours, or a browser) is preceded by
`<!-- not run: why -->`; its `kdwatch` lines are still checked against the command table and their options.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from kdwatch.cli.root import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "sample_runs" / "README.md"]
BLOCK = re.compile(r"(?P<before>(?:<!--[^\n]*-->\n)*)```sh\n(?P<body>.*?)```", re.S)
INSTALLS = "python3.11 -m venv"


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    body: str
    not_run: str | None

    @property
    def commands(self) -> list[list[str]]:
        """The words of each `kdwatch` line, continued lines joined."""
        lines = self.body.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.startswith("kdwatch ")]


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        if not page.exists():
            continue
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            reason = re.search(r"<!-- not run: (.*?) -->", match["before"])
            line = text.count("\n", 0, match.start("body")) + 1
            found.append(Block(page, line, match["body"], reason and reason[1]))
    return found


def name(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


RUN = [block for block in blocks() if not block.not_run and INSTALLS not in block.body]


def test_pages_have_commands() -> None:
    assert RUN


@pytest.mark.parametrize("block", blocks(), ids=name)
def test_commands_and_options_exist(block: Block) -> None:
    for words in block.commands:
        before_child = words[: words.index("--")] if "--" in words else words
        if before_child[1].startswith("-"):
            continue
        assert before_child[1] in COMMANDS, words
        module, attribute = COMMANDS[before_child[1]][0].split(":")
        command = getattr(import_module(module), attribute)
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for sub in getattr(command, "commands", {}).values():
            known |= {option for parameter in sub.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in before_child[2:]:
            if word.startswith("--"):
                assert word.split("=")[0] in known | {"--help"}, (
                    f"{name(block)}: {word} is not an option of {before_child[1]}"
                )


@pytest.fixture
def sandbox(own_home: Path, tmp_path: Path) -> Path:
    """A copy of what a reader would have: the sample runs, both in the checkout and as own runs."""
    shutil.copytree(ROOT / "sample_runs", tmp_path / "sample_runs")
    for folder in ("tests/data", "docs"):
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, tmp_path / folder)
    for run in (ROOT / "sample_runs").glob("*/manifest.json"):
        shutil.copytree(run.parent, own_home / "runs" / run.parent.name)
    return tmp_path


@pytest.mark.parametrize("block", RUN, ids=name)
def test_block_runs(block: Block, sandbox: Path) -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.body],
        cwd=sandbox,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{name(block)}\n{block.body}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
