"""Memory and threads of a stage's process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kdwatch.stages.cpu import MALLOC_SETTINGS, usable_cores
from kdwatch.stages.entry import Stage
from kdwatch.stages.nn import launch
from kdwatch.stages.nn.compute import pick_device
from kdwatch.stages.settings import EvaluateSettings

TENSORS = """
import resource, sys
if sys.argv[1] == "prepared":
    from kdwatch.stages import cpu
    cpu.prepare()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(40 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""40 MB are above 32 MB, the most that glibc keeps by itself (mallopt(3): DEFAULT_MMAP_THRESHOLD_MAX)."""


def page_faults(how: str, **settings: str) -> int:
    env = {k: v for k, v in os.environ.items() if k not in MALLOC_SETTINGS} | settings
    done = subprocess.run([sys.executable, "-c", TENSORS, how], capture_output=True, text=True, env=env, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_memory_of_large_tensors_is_kept_unless_the_user_says_otherwise() -> None:
    default = page_faults("as it is")
    assert page_faults("prepared") < default / 4
    assert page_faults("prepared", MALLOC_TRIM_THRESHOLD_="131072") > default / 2


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("setting", "environment", "expected"),
    [(None, "3", 3), (2, "3", 2), (None, "3,2", 3), (None, None, usable_cores()), (None, "many", usable_cores())],
)
def test_threads_are_the_settings_then_those_of_openmp_then_all_cores(
    threads: None, monkeypatch: pytest.MonkeyPatch, setting: int | None, environment: str | None, expected: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if environment is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
    pick_device(EvaluateSettings(device="cpu", threads=setting))
    assert torch.get_num_threads() == expected


@pytest.mark.parametrize(("asked", "expected"), [(None, "4"), ("2", "2")])
def test_processes_of_one_stage_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, expected: str
) -> None:
    """torchrun by itself gives each process one thread."""
    for name in ("RANK", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr(launch, "usable_cores", lambda: 9)
    monkeypatch.setattr(launch.signal, "signal", lambda *_: None)
    seen: dict[str, str] = {}

    class Child:
        def __init__(self, _words: list[str], env: dict[str, str]) -> None:
            seen.update(env)

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(launch.subprocess, "Popen", Child)
    stage = Stage("train", {}, Path("out"))
    assert launch.spread("kdwatch.stages.train", 2, "torchrun", stage)
    assert seen["OMP_NUM_THREADS"] == expected
