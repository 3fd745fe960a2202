"""A page in the distribution's headless Chromium, driven over its debugging socket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab: navigate, evaluate, click, type, take a picture. `requested` lists every address it asked for."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.requested: list[str] = []

    async def listen(self) -> None:
        """Sort answers and events until the socket closes."""
        async for message in self._socket:
            data = message.json()
            if "id" in data:
                self._answers.pop(data["id"]).set_result(data)
            elif data.get("method") == "Network.requestWillBeSent":
                self.requested.append(data["params"]["request"]["url"])
            elif data.get("method") == "Network.webSocketCreated":
                self.requested.append(data["params"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return (await asyncio.wait_for(answer, 30)).get("result", {})

    async def evaluate(self, script: str) -> Any:
        """Value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found.get("result", {}).get("value")

    async def click(self, x: float, y: float) -> None:
        """Left button down and up."""
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def screenshot(self) -> bytes:
        """The picture as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def page(directory: Path, width: int = 1200, height: int = 800) -> AsyncIterator[Page]:
    """Start Chromium with an own profile and attach to its first tab."""
    import aiohttp

    assert CHROMIUM is not None
    profile = directory / "profile"
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port_file = profile / "DevToolsActivePort"
        for _ in range(400):
            if port_file.exists() and port_file.read_text().count("\n"):
                break
            await asyncio.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                tabs = [t for t in await answer.json() if t["type"] == "page"]
            async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Page(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Network", "Page", "Runtime"):
                    await tab.call(f"{domain}.enable")
                yield tab
                listening.cancel()
    finally:
        process.terminate()
        await process.wait()
