"""Nothing secret reaches a run directory: planted in environment, arguments, recipe and git remote, then searched."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_helpers import python, record

from kdwatch.rundir.paths import list_runs

PLANTED = {
    "environment": "planted-env-5d1f0c",
    "recipe_env": "planted-recipe-8a2b",
    "stage_env": "planted-stage-77c0",
    "flag": "planted-flag-c91e",
    "assignment": "planted-assign-4471",
    "url": "planted-url-0be2",
    "git": "planted-git-9d3a",
    "known": "hf_plantedAbCdEfGhIjKlMnOpQr",
}


def everything(folder: Path) -> bytes:
    """All bytes of a directory, sealed segments unpacked, and all its names."""
    found = b""
    for path in folder.rglob("*"):
        found += os.fsencode(str(path.relative_to(folder)))
        if path.is_file():
            data = path.read_bytes()
            found += gzip.decompress(data) if path.suffix == ".gz" else data
    return found


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository whose remote holds a password."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    remote = f"https://user:{PLANTED['git']}@example.org/x.git"
    for args in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"], ["remote", "add", "origin", remote]):
        subprocess.run([*git, *args], check=True, capture_output=True)
    monkeypatch.setenv("PLANTED_TOKEN", PLANTED["environment"])
    return folder


def arguments() -> list[str]:
    return [
        "--api-key",
        PLANTED["flag"],
        f"--password={PLANTED['assignment']}",
        f"https://me:{PLANTED['url']}@example.org/",
        PLANTED["known"],
        f"--plain={PLANTED['environment']}",
    ]


def test_a_run_of_a_recipe_keeps_no_secret(repository: Path, mark: str) -> None:
    code = "import os; print(len(os.environ['PLANTED_TOKEN']), len(os.environ['A']), len(os.environ['B']))"
    command = json.dumps([*json.loads(python(code)), *arguments()])
    run = record(
        repository,
        f"env: {{A: {PLANTED['recipe_env']}}}\n"
        f"stages:\n- {{name: s, env: {{B: {PLANTED['stage_env']}}}, run: {command}}}\n",
    )
    assert (run / "logs" / "s.log").read_text() == "18 19 18\n"  # the stage itself has them
    found = everything(run)
    assert [what for what, secret in PLANTED.items() if secret.encode() in found] == []
    manifest = json.loads((run / "manifest.json").read_text())
    assert {"PLANTED_TOKEN", "A", "B"} <= set(manifest["environment"])
    assert "example.org" in manifest["git"]["remote"]
    assert "--api-key" in manifest["stages"][0]["command"]


def test_exec_keeps_no_secret(repository: Path, mark: str) -> None:
    command = [sys.executable, "-m", "kdwatch", "exec", "--", sys.executable, "-c", "pass", *arguments()]
    subprocess.run(command, check=True, cwd=repository, timeout=60)
    (run,) = list_runs()
    found = everything(run)
    assert [what for what, secret in PLANTED.items() if secret.encode() in found] == []


def test_only_the_owner_can_look(repository: Path, mark: str) -> None:
    run = record(repository, "stages:\n- {name: s, run: echo x}\n")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [run, *run.rglob("*")]}
    assert [path for path, mode in modes.items() if mode & 0o077] == []
