"""Driving the app in tests: open a run, wait until what is asked for is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kdwatch.tui.app import KdwatchApp
from kdwatch.tui.view.line import text_of
from kdwatch.tui.widgets.lines import Lines

PATIENCE_S = 90.0
"""How long a condition may take on a busy machine."""


async def until(pilot: Any, condition: Callable[[], object], what: str) -> None:
    """Let the app work until `condition` holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while not condition():
        assert loop.time() < end, f"not within {PATIENCE_S} s: {what}"
        await pilot.pause(0.01)


@asynccontextmanager
async def running(
    path: Path | None, size: tuple[int, int] = (120, 40), **options: Any
) -> AsyncIterator[tuple[KdwatchApp, Any]]:
    """The app in a terminal of that size, its first frame shown; `home` screens need no run."""
    app = KdwatchApp(path, **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        if path is not None:
            await until(pilot, lambda: app.frame is not None, "first frame")
        await pilot.pause()
        yield app, pilot


def text_on(app: KdwatchApp) -> str:
    """Text of all visible parts of the screen, one after the other."""
    parts = [w for w in app.base_screen.query(Lines) if w.display]
    return "\n".join(text_of(line) for part in parts for line in part.lines)


def part(app: KdwatchApp, name: str) -> str:
    """Text of one part."""
    return "\n".join(text_of(line) for line in app.base_screen.query_one(f"#{name}", Lines).lines)


def rows_of(app: KdwatchApp) -> list[str]:
    """The whole picture as text, row by row, as the terminal gets it."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip)[:width] for strip in strips][:height]
