"""The prerun's loads: CPUs by threads, GPUs by a helper process."""

from __future__ import annotations

import os
import time

import pytest

from kdwatch.meters.cpu_time import machine_cpu_time
from kdwatch.stages import prerun_load
from kdwatch.stages.prerun import busy_share
from kdwatch.stages.prerun_load import CpuLoad, GpuLoad


def test_every_cpu_is_loaded_and_let_go() -> None:
    before, began = machine_cpu_time(), time.process_time()
    with CpuLoad() as load:
        time.sleep(0.5)
    used = time.process_time() - began
    share = busy_share(before, machine_cpu_time())
    assert len(load.blocks) == len(os.sched_getaffinity(0)) and min(load.blocks) > 0
    assert used > 0.03 and share is not None and share > 0.3, "also on a machine that others load"
    done = list(load.blocks)
    time.sleep(0.1)
    assert load.blocks == done


def gpu_load(monkeypatch: pytest.MonkeyPatch, code: str) -> GpuLoad:
    monkeypatch.setattr(prerun_load, "GPU_LOAD", code)
    monkeypatch.setattr(prerun_load, "find_spec", lambda name: object())
    return GpuLoad(0.1)


def test_a_gpu_load_waits_until_it_is_told_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    load = gpu_load(
        monkeypatch, "import sys; print('ready', flush=True); sys.stdin.readline(); print('loading', sys.argv)"
    )
    assert load.ready() and load.problem is None
    load.begin()
    assert load._process is not None
    assert "loading" in load._process.communicate(timeout=20)[0]
    load.close()


def test_a_gpu_load_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    load = gpu_load(monkeypatch, "import sys; sys.exit('torch finds no GPU')")
    assert not load.ready() and load.problem == "torch finds no GPU"
    load.close()


def test_a_gpu_load_that_never_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    load = gpu_load(monkeypatch, "import time; time.sleep(60)")
    began = time.monotonic()
    assert not load.ready(limit_s=0.3) and load.problem == "the load did not start"
    assert time.monotonic() - began < 20
    load.close()


def test_without_torch_there_is_no_gpu_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerun_load, "find_spec", lambda name: None)
    load = GpuLoad(1.0)
    assert not load.ready() and load.problem == "torch is not installed"
    load.close()
