"""Simulated hardware for the meters' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sim_nvml
from sim_nvml import FakeBoard, FakeNvml

from kdwatch.meters.discover import Discovery, discover

Gpus = Callable[..., FakeNvml]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    return sim_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Script some boards and let this process find them: `gpus(FakeBoard(…), …, virtual=True)`."""

    def make(*boards: FakeBoard, virtual: bool = True) -> FakeNvml:
        fake = FakeNvml(nvml_library, tmp_path, boards, virtual)
        fake.load(monkeypatch)
        return fake

    return make


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Discovery]]:
    """Discover sensors, no powercap tree and no estimate among them unless named; closed afterwards."""
    opened: list[Discovery] = []

    def find(fake: FakeNvml | None = None, **arguments) -> Discovery:
        arguments.setdefault("powercap_root", tmp_path / "no-powercap")
        if fake is not None and fake.clock is not None:
            arguments.update(clock=fake.clock, sleep=fake.clock.sleep)
        opened.append(discover(**arguments))
        return opened[-1]

    yield find
    for discovery in opened:
        discovery.close()
