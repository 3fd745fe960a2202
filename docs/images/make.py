"""Draw the pictures of README and docs from a run directory: `python docs/images/make.py RUN`.

`run.svg` is a replay at three quarters of its length, `plan.svg` the plan for 20 kWh.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kdwatch.tui.app import KdwatchApp
from kdwatch.tui.replay import ReplayFeed

HERE = Path(__file__).parent
SIZE = (120, 36)
PATIENCE_S = 60.0


async def picture(name: str, app: KdwatchApp, ready: Callable[[KdwatchApp], bool]) -> None:
    """Wait until the screen is ready and save it."""
    async with app.run_test(size=SIZE) as pilot:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while not ready(app):
            if loop.time() > end:
                raise SystemExit(f"{name}: nothing to show after {PATIENCE_S:.0f} s")
            await pilot.pause(0.05)
        await pilot.pause(0.2)
        (HERE / f"{name}.svg").write_text(app.export_screenshot(title=f"kdwatch {name}"), encoding="utf-8")
        print(HERE / f"{name}.svg")


async def main(run: Path) -> None:
    """Both pictures, with settings of nobody."""
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(KDWATCH_HOME=home, KDWATCH_CONFIG=str(Path(home) / "config.toml"), TEXTUAL_ANIMATIONS="none")
        middle = ReplayFeed(run).find_end() * 0.75
        replay = KdwatchApp(run, replay=True, start=middle)
        await picture("run", replay, lambda app: app.frame is not None)
        await picture("plan", KdwatchApp(screen="plan"), lambda app: bool(app.base_screen and app.base_screen.plan))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    asyncio.run(main(parser.parse_args().run))
