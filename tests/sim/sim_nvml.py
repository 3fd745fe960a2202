"""Build, script and load the simulated libnvidia-ml.so.1.

The script is text: `clock FILE`, `calls FILE`, `driver VERSION`, then for each board a line `board key=value …`
followed by its `segment SECONDS WATTS WATTS`, `fault KIND FROM UNTIL VALUE`, `process PID FROM UNTIL`,
`mig UUID GI CI` lines. Times are those of the clock: CLOCK_MONOTONIC, or the number in the clock file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sim_traces import Trace, constant

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("fake_nvml_*.c"))
CALLS = ("energy", "power", "fields", "facts")
MAX_BOARDS = 16
NEVER = 1e12


@dataclass
class FakeBoard:
    """One scripted board. A period of 0 means that the driver does not offer the reading."""

    uuid: str = ""
    name: str = "NVIDIA H100 80GB HBM3"
    trace: Trace = field(default_factory=constant)
    counter_s: float = 0.1
    counter_phase_s: float = 0.0
    base_j: float = 1e6
    instant_s: float = 0.02
    instant_phase_s: float = 0.0
    average_s: float = 0.1
    average_phase_s: float = 0.0
    average_window_s: float = 1.0
    noise_w: float = 0.0
    shift_s: float = 0.0
    limit_w: float = 700.0
    latency_s: float = 0.0
    fields: bool = True
    legacy: bool = True
    legacy_is_instant: bool = False
    module: bool = False
    capability: int = 90
    faults: list[tuple[str, float, float, float]] = field(default_factory=list)
    """(kind, from, until, value); kinds in fake_nvml.h."""
    processes: list[tuple[int, float, float]] = field(default_factory=list)
    migs: list[tuple[str, int, int]] = field(default_factory=list)

    def lines(self, index: int, origin_s: float) -> list[str]:
        """The board's lines of the script."""
        self.uuid = self.uuid or f"GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}"
        words = ["board", f"uuid={self.uuid}", f"name={self.name.replace(' ', '_')}", f"origin_s={origin_s!r}"]
        for key in NUMBERS:
            words.append(f"{key}={float(getattr(self, key))!r}")
        out = [" ".join(words)]
        out += [f"segment {s!r} {a!r} {b!r}" for s, a, b in self.trace.segments]
        out += [f"fault {kind} {a!r} {b!r} {v!r}" for kind, a, b, v in self.faults]
        out += [f"process {pid} {a!r} {b!r}" for pid, a, b in self.processes]
        out += [f"mig {uuid} {gi} {ci}" for uuid, gi, ci in self.migs]
        return out


NUMBERS = (
    "counter_s", "counter_phase_s", "base_j", "instant_s", "instant_phase_s", "average_s", "average_phase_s",
    "average_window_s", "noise_w", "shift_s", "limit_w", "latency_s", "fields", "legacy", "legacy_is_instant",
    "module", "capability",
)  # fmt: skip


class VirtualClock:
    """A clock in a file that the library reads too. Sleeping moves it; so it runs as fast as the code does."""

    def __init__(self, path: Path, start: float = 1000.0) -> None:
        self.path = path
        path.write_bytes(struct.pack("<d", start))
        with path.open("r+b") as f:
            self._map = mmap.mmap(f.fileno(), 8)

    def __call__(self) -> float:
        return struct.unpack_from("<d", self._map)[0]

    def set(self, t: float) -> None:
        """Move to a time."""
        struct.pack_into("<d", self._map, 0, t)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.set(self() + seconds)


class FakeNvml:
    """A scripted library: in this process once `load`ed, in child processes through `environment`."""

    def __init__(self, library: Path, folder: Path, boards: Sequence[FakeBoard], virtual: bool) -> None:
        self.library = library
        self.boards = list(boards)
        self.clock = VirtualClock(folder / "clock") if virtual else None
        self.origin = self.clock() if self.clock else time.monotonic()
        self._calls = folder / "calls"
        self._calls.write_bytes(bytes(8 * MAX_BOARDS * len(CALLS)))
        self.script = folder / "nvml.script"
        lines = [f"calls {self._calls}"]
        if self.clock:
            lines.append(f"clock {self.clock.path}")
        for index, board in enumerate(self.boards):
            lines += board.lines(index, self.origin)
        self.script.write_text("\n".join(lines) + "\n")

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a child process that should find this library."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML_SCRIPT": str(self.script)}

    def load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the loader of this process find this library: it goes by the name inside it. The C library reads the
        process's own environment, so the script's name is set there."""
        ctypes.CDLL(str(self.library))
        monkeypatch.setenv("FAKE_NVML_SCRIPT", str(self.script))
        os.putenv("FAKE_NVML_SCRIPT", str(self.script))
        if self.clock is not None:  # a busy machine must not make calls late that take no time at all
            monkeypatch.setattr("kdwatch.meters.nvml.NvmlMeter.deadline_s", 60.0)

    def calls(self, board: int, kind: str | None = None) -> int:
        """How often a board was asked for something (`energy`, `power`, `fields`, `facts`; None: all)."""
        counts = struct.unpack(f"<{MAX_BOARDS * len(CALLS)}Q", self._calls.read_bytes())
        row = counts[board * len(CALLS) : (board + 1) * len(CALLS)]
        return sum(row) if kind is None else row[CALLS.index(kind)]

    def joules(self, board: int, start: float, end: float) -> float:
        """What the board truly used between two times of the clock."""
        own = self.boards[board]
        return own.trace.joules(start - self.origin + own.shift_s, end - self.origin + own.shift_s)


def build_bare(folder: Path) -> Path:
    """Compile a library as an old driver has it: no field values, no facts, no list of processes."""
    return build(folder, [HERE / "bare_nvml.c"], "default")


def compiler() -> str | None:
    """Path of a C compiler."""
    return next((p for p in map(shutil.which, ("cc", "gcc", "clang")) if p), None)


def header_folder() -> Path | None:
    """Folder of nvml.h, from the package nvidia-nvml-dev."""
    found = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/nvml.h"))
    return found[-1].parent if found else None


def build(folder: Path, sources: Sequence[Path] = SOURCES, visibility: str = "hidden") -> Path:
    """Compile the library; skips the test where that cannot be done."""
    cc, headers = compiler(), header_folder()
    if cc is None:
        pytest.skip("no C compiler: simulated GPUs cannot be built")
    if headers is None:
        pytest.skip("nvml.h is missing: install nvidia-nvml-dev for simulated GPUs")
    library = folder / "libnvidia-ml.so.1"
    command = [cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-fPIC"]
    command += ["-shared", f"-fvisibility={visibility}", "-Wl,-soname,libnvidia-ml.so.1", f"-I{headers}"]
    done = subprocess.run(
        [*command, "-o", str(library), *map(str, sources), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return library
