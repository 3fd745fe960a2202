"""How fast this machine is from moment to moment: a fixed piece of a small model's work, in CPU seconds.

Other tenants of a host slow a virtual CPU by half without a trace in its own accounts. As a program it appends lines
`CLOCK_MONOTONIC CPU-seconds` to the file it is given, until it is ended.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

PAUSE_S = 0.5


class Yardstick:
    """Readings over time, taken by a process beside whatever runs. It is made once that has started and taken one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self._process = subprocess.Popen([sys.executable, __file__, str(path)])
        while not path.stat().st_size:
            assert self._process.poll() is None, "the yardstick ended"
            time.sleep(0.1)
        self.used_s = 0.0
        """CPU seconds that the yardstick took; known at the end."""

    def __enter__(self) -> Yardstick:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        _, _, used = os.wait4(self._process.pid, 0)
        self.used_s = used.ru_utime + used.ru_stime

    def cpu_s(self, windows: Iterable[tuple[float, float]]) -> float:
        """Mean CPU seconds of the piece of work in some windows of time."""
        rows = [line.split() for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        taken = [float(cpu_s) for begin, end in windows for at, cpu_s in rows if begin <= float(at) <= end]
        return sum(taken) / len(taken)


def main(path: str) -> None:
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True).eval()
    rows = torch.randn(64, 16, 128)
    cpus = sorted(os.sched_getaffinity(0))
    with Path(path).open("a", buffering=1) as file, torch.inference_mode():
        for number in itertools.count():
            os.sched_setaffinity(0, {cpus[number % len(cpus)]})
            layer(rows)
            begun = time.process_time()
            for _ in range(2):
                layer(rows)
            file.write(f"{time.monotonic():.3f} {time.process_time() - begun:.6f}\n")
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1])
