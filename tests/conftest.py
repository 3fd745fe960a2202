"""For every test: a home of its own, no socket that leaves this machine, no settings of the person who runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pytest_socket import socket_allow_hosts

KEPT = {"KDWATCH_TEST_TMUX"}


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`KDWATCH_HOME` in a temporary directory; sensors' and users' variables unset."""
    for name in list(os.environ):
        if name.startswith("KDWATCH_") and name not in KEPT:
            monkeypatch.delenv(name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("KDWATCH_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home


@pytest.fixture(autouse=True)
def no_outside_sockets() -> None:
    """Only loopback and local sockets: kdwatch needs no network after it is installed."""
    socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)
