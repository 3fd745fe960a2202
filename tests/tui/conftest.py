"""A home of its own for each test, no animation, and a helper that waits for frames instead of sleeping."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """KDWATCH_HOME and the config file under the test's own directory; colours and terminal fixed."""
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    monkeypatch.setenv("KDWATCH_HOME", str(home))
    monkeypatch.setenv("KDWATCH_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "KDWATCH_UNITS", "KDWATCH_REGION", "KDWATCH_THEME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are pressed one after the other as soon as their messages are dealt with, not after CPU idleness: on a busy
    machine that takes a minute per screen."""

    async def next_turn(*_: object) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr("textual.app.wait_for_idle", next_turn)
    monkeypatch.setattr("textual.pilot.wait_for_idle", next_turn)
