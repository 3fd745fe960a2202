"""How a stage's process uses the CPU: threads and memory. To be set before torch is imported."""

from __future__ import annotations

import contextlib
import ctypes
import os

THREADS_SLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Waiting threads sleep instead of spinning: spinning takes energy, and on a shared machine most of the time."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt (malloc.h)."""
KEPT_B = 2**28
"""Bytes of freed memory that a process keeps at most for its next tensors."""
MALLOC_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def prepare() -> None:
    """Set what costs least energy, where the user's environment does not say otherwise."""
    for name, value in THREADS_SLEEP.items():
        os.environ.setdefault(name, value)
    if not any(name in os.environ for name in MALLOC_SETTINGS):
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """By default glibc takes the memory of each large tensor from the kernel, page by page, and hands it back.

    Those page faults take a good part of the time of caching logits. Other C libraries have no mallopt.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(parameter, KEPT_B)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def asked_threads() -> int:
    """Threads that OMP_NUM_THREADS asks for, 0 where it does not. Behind a comma stand those of nested regions."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0
