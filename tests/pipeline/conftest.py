"""Fixtures of the pipeline's tests: a package of 250 W instead of this machine's sensors; nothing left behind."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pipeline_helpers import Powercap, marked

from kdwatch.pipeline import processes

settings.register_profile("shared machine", deadline=None)  # how long an example takes says nothing here
settings.load_profile("shared machine")


@pytest.fixture
def package_250w(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Powercap]:
    """`KDWATCH_POWERCAP_ROOT` with one RAPL package that uses 250 W."""
    tree = Powercap(tmp_path / "powercap", 250.0)
    monkeypatch.setenv("KDWATCH_POWERCAP_ROOT", str(tree.root))
    yield tree
    tree.close()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A variable in the environment of everything that the test starts; the test fails if one of them is left."""
    value = f"KDTEST_MARK=m{secrets.token_hex(8)}"
    monkeypatch.setenv(*value.split("="))
    yield value
    deadline = time.monotonic() + 5.0  # a recorder that has written its end still has to exit
    while (left := marked(value)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        processes.send(pid, 9)
    assert not left, f"{len(left)} processes were left"
