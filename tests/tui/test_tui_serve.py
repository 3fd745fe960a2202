"""The screens in a browser: who is let in, what is loaded, and that a click does something."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium_page import CHROMIUM, page
from tui_live import live_run
from tui_runs import Shape, make_run
from tui_terminal import kdwatch_home

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")

PATIENCE_S = 90.0


@asynccontextmanager
async def serving(home: Path, *arguments: str) -> AsyncIterator[str]:
    """`kdwatch serve` on a free port; its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kdwatch",
        "serve",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **kdwatch_home(home)},
    )
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        yield line.decode().strip()
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) in (0, -15, 143)


async def test_only_the_token_our_host_and_our_origin_are_let_in(own_home: Path) -> None:
    """Another user's guess, a rebound name, a foreign page, a socket from nowhere: 403."""
    async with serving(own_home) as address, aiohttp.ClientSession() as session:
        base, token = address.split("/?token=")
        port = base.rsplit(":", 1)[1]
        assert base.startswith("http://127.0.0.1:") and len(token) >= 32
        cases = [
            (f"{base}/", {}, 403),
            (f"{base}/?token=", {}, 403),
            (f"{base}/?token={token[:-1]}x", {}, 403),
            (address, {"Host": f"evil.example:{port}"}, 403),
            (address, {"Host": "127.0.0.1:1"}, 403),
            (address, {"Origin": "http://evil.example"}, 403),
            (address, {"Origin": "null"}, 403),
            (f"{base}/ws/{token}", {}, 403),
            (f"{base}/ws/wrong", {"Origin": base}, 403),
            (f"{base}/download/x", {}, 403),
            (address, {}, 200),
            (address, {"Host": f"localhost:{port}"}, 200),
            (f"{base}/static/js/textual.js", {}, 200),
        ]
        for url, headers, status in cases:
            answer = await session.get(url, headers=headers)
            assert answer.status == status, (url, headers)
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "Set-Cookie" not in answer.headers, "cookies go to every port of a machine"
            assert token not in await answer.text() or status == 200
        page_text = await (await session.get(address)).text()
        assert "http://" not in page_text.replace(base, "")


async def test_a_taken_port_is_one_line(own_home: Path) -> None:
    """Exit 2, what to do."""
    async with serving(own_home) as address:
        port = address.split("/?")[0].rsplit(":", 1)[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kdwatch", "serve", "--port", port, stderr=asyncio.subprocess.PIPE
        )
        _, problem = await process.communicate()
        assert process.returncode == 2 and problem.count(b"\n") == 1 and port.encode() in problem


@pytest.mark.parametrize(("words", "acts"), [((), False), (("--control",), True)], ids=["looks", "control"])
async def test_a_tab_acts_on_a_run_only_if_asked(own_home: Path, words: tuple[str, ...], acts: bool) -> None:
    """The process behind a tab: with --control S asks whether to stop the run, without it S does nothing."""
    with live_run(own_home / "runs" / "live") as writer:
        writer.write_to(3.0)
        async with serving(own_home, "live", *words) as address, aiohttp.ClientSession() as session:
            base, token = address.split("/?token=")
            socket = f"{base}/ws/{token}?width=100&height=30".replace("http", "ws")
            async with session.ws_connect(socket, headers={"Origin": base}) as tab:
                await tab.send_json(["resize", {"width": 100, "height": 30}])
                await seen(tab, "prerun")
                await tab.send_json(["stdin", "S"])
                await tab.send_json(["stdin", "?"])
                text = await seen(tab, "Stop the whole run" if acts else "Help on the screen")
                assert ("Stop the whole run" in text) is acts


async def seen(tab: Any, text: str) -> str:
    """What the tab's process has drawn once `text` is among it."""
    drawn = ""
    async with asyncio.timeout(PATIENCE_S):
        while text not in drawn:
            message = await tab.receive()
            data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
            drawn += data.decode("utf-8", "replace")
    return drawn


@pytest.mark.skipif(CHROMIUM is None, reason="needs the distribution's Chromium")
async def test_the_run_in_chromium_with_a_click_and_a_picture(own_home: Path, tmp_path: Path) -> None:
    """The Run screen is drawn; a click on a footer key changes it; nothing came from elsewhere; no control keys."""
    make_run(own_home / "runs" / "r1", Shape(gpus=2))
    async with serving(own_home, "r1") as address, page(tmp_path) as tab:
        base = address.split("/?")[0]
        await tab.call("Page.navigate", url=address)
        before = await settled(tab)
        rows = int(await tab.evaluate("document.querySelector('.xterm-screen').clientHeight"))
        width = await tab.evaluate("document.querySelector('.xterm-screen').clientWidth")
        assert rows > 200 and width > 400
        await tab.click(20, rows - 8)
        after = await changed(tab, before)
        assert before.startswith(b"\x89PNG") and len(before) > 20_000 and after != before
        foreign = [u for u in tab.requested if not u.startswith((base, base.replace("http", "ws"), "about:"))]
        assert foreign == []


async def settled(tab) -> bytes:
    """The picture once the screen has been drawn and two pictures in a row are the same."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    last = b""
    while loop.time() < end:
        await asyncio.sleep(0.3)
        if "-first-byte" not in str(await tab.evaluate("document.body.className")):
            continue
        now = await tab.screenshot()
        if now == last and len(now) > 20_000:
            return now
        last = now
    raise AssertionError("the page did not come to rest")


async def changed(tab, before: bytes) -> bytes:
    """The next picture that differs."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while loop.time() < end:
        now = await tab.screenshot()
        if now != before:
            return now
        await asyncio.sleep(0.1)
    raise AssertionError("the click changed nothing")
