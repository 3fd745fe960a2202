"""What the screens cost: first frame, CPU per tick with 16 GPUs, memory, redraw; nvitop beside it in the same run.

    pytest tests/benchmarks/test_bench_tui.py -m benchmark -s

Numbers are printed. Asserted is a ratio to a yardstick of the same run on the same machine, so that a slow machine
does not fail it, and beside it the issue's own limit as the median of several spans. CPU times are those of the kernel
for the process, not wall time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest
import sim_nvml
from big_run import write_big_run
from sim_nvml import FakeBoard
from tui_live import LiveRun, live_run
from tui_runs import Shape, make_run
from tui_terminal import Terminal, kdwatch_home

from kdwatch.tui.feed import RunFeed
from kdwatch.tui.history import TOTAL, History
from kdwatch.tui.raster import BRAILLE
from kdwatch.tui.view.plot import PlotSpec, plot_lines, sub_columns

pytestmark = [pytest.mark.benchmark, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

SPANS, SPAN_S = 5, 5
"""Spans whose median counts, and how many ticks (seconds) each has."""

GPUS = 16
SIZE = (120, 40)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process's threads so far, to the nanosecond (/proc/PID/stat counts in 10 ms)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def best_cpu(action, rounds: int = 5) -> float:
    """Least CPU seconds of several rounds: what it costs when nothing disturbs it."""
    found = []
    for _ in range(rounds):
        before = time.process_time()
        action()
        found.append(time.process_time() - before)
    return min(found)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, LiveRun]]:
    """A running run with 16 GPUs, 30 s old."""
    home = tmp_path / "home"
    with live_run(home / "runs" / "live", Shape(gpus=GPUS, gap=None, hz=10.0)) as writer:
        writer.write_to(30.0)
        yield home, writer


def ticked(terminal: Terminal, writer: LiveRun | None, ready: str) -> tuple[float, float, float]:
    """CPU ms and bytes per second, each the median of SPANS spans, and memory in MiB, of a program on a terminal."""
    terminal.wait_for(ready)
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        terminal.read(0.2)
    found = [_span(terminal, writer, 30.0 + n * SPAN_S) for n in range(SPANS)]
    return median(f[0] for f in found), median(f[1] for f in found), resident_mib(terminal.pid)


def _span(terminal: Terminal, writer: LiveRun | None, t: float) -> tuple[float, float]:
    """CPU ms and bytes per second over SPAN_S ticks from run time `t` on."""
    cpu, sent, start = cpu_s(terminal.pid), len(terminal.written), time.monotonic()
    for k in range(1, SPAN_S + 1):
        if writer is not None:
            writer.write_to(t + k)
        while time.monotonic() < start + k:
            terminal.read(0.1)
    seconds = time.monotonic() - start
    return (cpu_s(terminal.pid) - cpu) / seconds * 1e3, (len(terminal.written) - sent) / seconds


def test_cost_per_tick_beside_nvitop(live, tmp_path: Path) -> None:
    """16 GPUs at 10 Hz, 120x40, one picture a second. Issue: <= 10 ms CPU a tick, <= 80 MB, <= 8 kB a tick."""
    home, writer = live
    ours = Terminal(["watch", "live"], SIZE, **kdwatch_home(home))
    cpu, sent, memory = ticked(ours, writer, "GPU 15")
    ours.send("\x11")
    ours.wait()
    print(f"\nkdwatch  {cpu:6.1f} ms CPU/s  {sent:7.0f} bytes/s  {memory:5.1f} MiB")
    other = nvitop(tmp_path)
    if other is not None:
        print(f"nvitop   {other[0]:6.1f} ms CPU/s  {other[1]:7.0f} bytes/s  {other[2]:5.1f} MiB")
        assert cpu <= other[0], "more CPU than nvitop on the same node"
    assert cpu <= 10.0
    assert sent <= 8_000
    assert memory <= 80 * 1e6 / 2**20


def nvitop(tmp_path: Path) -> tuple[float, float, float] | None:
    """The same figures of nvitop on a simulated node with 16 boards; None where it is not installed."""
    if find_spec("nvitop") is None:
        return None
    library = tmp_path / "library"
    library.mkdir()
    node = sim_nvml.FakeNvml(sim_nvml.build(library), tmp_path, [FakeBoard() for _ in range(GPUS)], virtual=False)
    terminal = Terminal(["--monitor", "full"], (160, 60), "nvitop", **node.environment)
    found = ticked(terminal, None, "H100")
    terminal.send("q")
    terminal.kill(signal.SIGTERM)
    terminal.wait()
    return found


def test_first_frame(tmp_path: Path) -> None:
    """From exec to the stage table on the screen. Issue: <= 0.8 s; yardstick: a bare import of Textual's app."""
    home = tmp_path / "home"
    make_run(home / "runs" / "r1", Shape(gpus=8))
    found = []
    for _ in range(3):
        start = time.monotonic()
        terminal = Terminal(["watch", "r1"], SIZE, **kdwatch_home(home))
        terminal.wait_for("teacher logits")
        found.append((time.monotonic() - start, cpu_s(terminal.pid)))
        terminal.send("q")
        terminal.wait()
    bare = min(_child_cpu("import textual.app, textual.widgets") for _ in range(3))
    wall, cpu = min(f[0] for f in found), min(f[1] for f in found)
    print(f"\nfirst frame {wall:.2f} s ({cpu:.2f} s CPU), importing textual alone {bare:.2f} s CPU")
    assert cpu <= 2.0 * bare + 0.1
    assert cpu <= 0.8


def _child_cpu(code: str) -> float:
    """CPU seconds of a fresh interpreter that runs `code`."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_redraw_of_ten_thousand_points() -> None:
    """Issue: <= 5 ms a redraw at 10,000 points; yardstick: plotext drawing a tenth of them."""
    import plotext

    from kdwatch.rundir.parse import Sample

    history = History([{"key": "g0"}])
    for k in range(10_000):
        history.sample(Sample(k * 0.1, "g0", None, 500.0 + 100.0 * ((k * 7919) % 13) / 13, None))
    history.settle()

    def ours() -> None:
        view = history.view(TOTAL, 0.0, 1000.0, sub_columns(100, BRAILLE), 999.9)
        plot_lines(view, PlotSpec("total", "all"), 100, 24, BRAILLE)

    def theirs() -> None:
        plotext.clear_figure()
        plotext.plotsize(100, 24)
        plotext.plot(list(range(1000)), [500.0 + (k * 7919) % 13 for k in range(1000)], marker="braille")
        plotext.build()

    mine, yardstick = best_cpu(ours, 20), best_cpu(theirs)
    print(f"\nredraw of 10,000 points {mine * 1e3:.2f} ms CPU; plotext with 1,000 {yardstick * 1e3:.1f} ms")
    assert mine <= 0.5 * yardstick
    assert mine <= 0.005


def test_three_days_of_eight_gpus_open(tmp_path: Path) -> None:
    """Issue: <= 1 s. Yardstick: parsing as many lines of JSON as the rollups have."""
    run = write_big_run(tmp_path / "big", days=3.0, gpus=8)
    lines = (run / "rollups.jsonl").read_bytes().splitlines()

    def yardstick() -> None:
        import json

        for line in lines:
            json.loads(line)

    opened, parse = best_cpu(lambda: RunFeed(run).frame(), 3), best_cpu(yardstick, 3)
    print(f"\nthree days of 8 GPUs at 10 Hz open in {opened:.2f} s CPU; its rollups parse in {parse:.2f} s")
    assert opened <= 12 * parse
    assert opened <= 1.0
