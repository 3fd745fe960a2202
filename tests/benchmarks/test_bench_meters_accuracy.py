"""The table of errors beside what a user would otherwise pick: Zeus, CodeCarbon, a trapezoid of 0.5 s samples.

    pytest tests/benchmarks/test_bench_meters_accuracy.py -m benchmark -s

All methods watch the same windows of the same boards in one run. Zeus and CodeCarbon run unmodified, each in a
process of its own on the same simulated library and clock, and read at the very edges of each window: what they
return is a difference of the counter's values. Numbers are the 95th percentile and the worst of |relative error|.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pynvml
import pytest
import sim_nvml
import sim_traces
from sim_accuracy import PHASES, Campaign, Errors, Method, compare
from sim_nvml import FakeNvml

pytestmark = pytest.mark.benchmark

ZEUS = """
import json, sys
from zeus.monitor import ZeusMonitor
if __name__ == "__main__":
    monitor = ZeusMonitor(gpu_indices=list(range(8)), cpu_indices=[])
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "begin\\n":
            monitor.begin_window("w", sync_execution=False)
            print(flush=True)
        else:
            energy = monitor.end_window("w", sync_execution=False).gpu_energy
            print(json.dumps([energy[i] for i in range(8)]), flush=True)
"""

CODECARBON = """
import json, sys, logging
logging.disable(logging.CRITICAL)
from codecarbon.core.units import Time
from codecarbon.external.hardware import GPU
gpu = GPU.from_utils()
gpu.start()
print("ready", flush=True)
def energies():
    gpu.measure_power_and_energy(1.0)
    return [d.energy_delta.kWh * 3.6e6 for d in gpu.devices.devices]
for line in sys.stdin:
    found = energies()
    print(json.dumps(found) if line == "end\\n" else "", flush=True)
"""


class Child:
    """A tool in a process of its own that is told when windows begin and end."""

    def __init__(self, name: str, code: str, fake: FakeNvml) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **fake.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while self._line() not in ("ready", None):
            pass

    def _line(self) -> str | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return line.strip() if line else None

    def _tell(self, word: str) -> str | None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._line()

    def begin(self) -> None:
        self._tell("begin")

    def tick(self) -> None:
        pass

    def end(self) -> list[float] | None:
        line = self._tell("end")
        return json.loads(line) if line else None

    def close(self) -> None:
        self._process.communicate()


class Trapezoid:
    """The paper's rule: legacy power every 0.5 s, trapezoids, edge values held."""

    name = "0.5 s trapezoid"

    def __init__(self, fake: FakeNvml) -> None:
        assert fake.clock is not None
        self._clock = fake.clock
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(PHASES)]
        self._samples: list[tuple[float, list[float]]] = []

    def begin(self) -> None:
        self._samples = []
        self.tick()

    def tick(self) -> None:
        watts = [pynvml.nvmlDeviceGetPowerUsage(h) / 1e3 for h in self._handles]
        self._samples.append((self._clock(), watts))

    def end(self) -> list[float]:
        joules = [0.0] * PHASES
        samples = [*self._samples, (self._clock(), self._samples[-1][1])]
        for (t0, w0), (t1, w1) in pairwise(samples):
            joules = [j + (t1 - t0) * (a + b) / 2 for j, a, b in zip(joules, w0, w1, strict=True)]
        return joules

    def close(self) -> None:
        pass


def zeus(fake: FakeNvml) -> Method:
    return Child("Zeus", ZEUS, fake)


def codecarbon(fake: FakeNvml) -> Method:
    return Child("CodeCarbon", CODECARBON, fake)


def cell(errors: Errors | None) -> str:
    if errors is None or not errors.relative:
        return "n/a"
    return f"{errors.quantile(0.95):.2%} / {errors.worst:.2%}"


NAMES = ("kdwatch", "Zeus", "CodeCarbon", "0.5 s trapezoid")


def test_errors_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    library = sim_nvml.build(tmp_path)
    lines = [f"{'window':>6} {'counter':>8} {'trace':<9}" + "".join(f"{name:>20}" for name in NAMES)]
    lost = []
    for window_s, counter_s in ((10.0, 0.02), (1.3, 0.02), (10.0, 0.1), (1.3, 0.1), (10.0, 0.0)):
        methods: list[Callable[[FakeNvml], Method]] = [Trapezoid]
        if counter_s:
            methods += [zeus] if find_spec("zeus") else []
            methods += [codecarbon]
        for trace in sim_traces.ALL:
            folder = tmp_path / f"{window_s}-{counter_s}-{trace.name}"
            folder.mkdir()
            found = compare(Campaign(trace, counter_s, window_s), library, folder, monkeypatch, methods)
            every = f"{counter_s * 1e3:.0f} ms" if counter_s else "none"
            columns = "".join(f"{cell(found.get(name)):>20}" for name in NAMES)
            lines.append(f"{window_s:>5}s {every:>8} {trace.name:<9}{columns}")
            lost += [
                (lines[-1], name)
                for name, errors in found.items()
                if errors.relative and errors.quantile(0.95) < found["kdwatch"].quantile(0.95)
            ]
    with capsys.disabled():
        print("\n95th percentile / worst of |relative error|, 208 windows a cell")
        print("\n".join(lines))
    assert not lost, "another method is more accurate in these cells"
