"""Days on one screen: memory and open files stay where they are."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tui_runs import Shape, make_run

from kdwatch.tui.app import KdwatchApp
from kdwatch.tui.replay import ReplayFeed


class Stepping:
    """A clock that moves by one second at each reading, so that a replay runs on and on."""

    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        self.t += 1.0
        return self.t


def open_files() -> int:
    """File descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> float:
    """Resident bytes of this process."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) * 1024.0


async def rounds(app: KdwatchApp, count: int) -> int:
    """Play the recording from its start to its end so often, every frame drawn as fast as it can be made; always
    stops at the same place, where equal things are held. Returns the ticks."""
    ticks = 0
    for _ in range(count):
        before = -1.0
        while app.frame.t > before or ticks == 0:
            before = app.frame.t
            app.frame = app._ticker.make()
            app.base_screen.show_frame(app.frame)
            ticks += 1
            await asyncio.sleep(0)
    gc.collect()
    return ticks


@asynccontextmanager
async def looping(directory: Path) -> AsyncIterator[KdwatchApp]:
    """The Run screen on a replay that begins again and again at 20x."""
    run = make_run(directory / "run", Shape(gpus=4, hz=1.0, gap=None))

    def feed(path: Path, **_: object) -> ReplayFeed:
        found = ReplayFeed(path, clock=Stepping(), speed=20.0)
        found.loop = True
        return found

    app = KdwatchApp(run, replay=True, make_feed=feed)
    app.tick = lambda: None
    async with app.run_test(size=(120, 40)) as pilot:
        while app.frame is None:
            await pilot.pause(0.01)
        yield app


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
async def test_memory_and_files_are_flat(tmp_path: Path) -> None:
    """Six rounds after a warm-up of six: less than 200 kB of Python memory more, and no file."""
    async with looping(tmp_path) as app:
        await rounds(app, 6)
        tracemalloc.start()
        await rounds(app, 1)
        memory, files = tracemalloc.get_traced_memory()[0], open_files()
        await rounds(app, 6)
        gained = tracemalloc.get_traced_memory()[0] - memory
        tracemalloc.stop()
        assert gained < 200_000 and open_files() <= files


@pytest.mark.slow  # 100,000 ticks take more than ten minutes
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
async def test_hundred_thousand_ticks(tmp_path: Path) -> None:
    """A day at one a second, and more: less than 10 MB of resident memory more after the first tenth, and no file."""
    async with looping(tmp_path) as app:
        ticks = await rounds(app, 750)
        memory, files = resident(), open_files()
        while ticks < 100_000:
            ticks += await rounds(app, 100)
        assert resident() - memory < 10e6 and open_files() <= files
