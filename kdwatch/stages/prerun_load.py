"""A load for the prerun: all CPUs, and the GPUs through a helper process that alone imports torch."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from importlib.util import find_spec

START_LIMIT_S = 60.0
"""Longest time that torch and CUDA may take to start."""

GPU_LOAD = """
import sys, time, torch
if not torch.cuda.is_available():
    sys.exit("torch finds no GPU")
work = [torch.randn(4096, 4096, device=f"cuda:{i}", dtype=torch.bfloat16) for i in range(torch.cuda.device_count())]
for x in work:
    x @ x
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for x in work:
        for _ in range(8):
            x @ x
    for i in range(len(work)):
        torch.cuda.synchronize(i)
"""


class CpuLoad:
    """Hashes on every CPU that this process may use, until stopped. Hashing large blocks leaves the interpreter free,
    so threads are enough."""

    def __init__(self) -> None:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.blocks = [0] * count
        """Blocks of 1 MiB hashed by each thread."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(count)]

    def __enter__(self) -> CpuLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        block = bytes(1 << 20)
        while not self._stop.is_set():
            hashlib.sha256(block).digest()
            self.blocks[number] += 1


class GpuLoad:
    """Matrix products on every GPU that CUDA shows, in a process of its own."""

    def __init__(self, seconds: float) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.problem: str | None = None
        """Why there is no load."""
        if find_spec("torch") is None:
            self.problem = "torch is not installed"
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", GPU_LOAD, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self, limit_s: float = START_LIMIT_S) -> bool:
        """Wait until the load can begin; False if it cannot, with `problem` set."""
        process = self._process
        if process is None:
            return False
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if line.strip() == "ready":
            return True
        errors = process.communicate()[1].strip().splitlines()
        self.problem = errors[-1] if errors else "the load did not start"
        return False

    def begin(self) -> None:
        """Start the products."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
