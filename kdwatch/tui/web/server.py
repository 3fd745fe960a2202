"""textual-serve with our page, our guard, and a process of the screens per browser tab."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import textual_serve.server
from aiohttp import web

from kdwatch.rundir.errors import UsageProblem
from kdwatch.tui.web.guard import Guard

HOST = "127.0.0.1"
"""The only address that is served."""

PACKAGE = Path(textual_serve.server.__file__).parent


class ScreenServer(textual_serve.server.Server):
    """Serves the screens on loopback, to whoever knows the token."""

    def __init__(self, command: str, port: int, token: str) -> None:
        super().__init__(
            command,
            host=HOST,
            port=port,
            title="kdwatch",
            statics_path=PACKAGE / "static",
            templates_path=Path(__file__).parent,
        )
        self.token = token

    @property
    def address(self) -> str:
        """What the user opens."""
        return f"{self.public_url}/?token={self.token}"

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.router.add_get("/ws/{token}", self.handle_websocket)
        app.middlewares.append(Guard(self.token, self.port).middleware)
        return app

    async def handle_index(self, request: web.Request) -> Any:
        """The page; its socket's address carries the token."""
        import aiohttp_jinja2

        base = f"{request.scheme}://{request.headers['Host']}"
        context = {
            "font_size": 16,
            "app_websocket_url": f"ws://{request.headers['Host']}/ws/{self.token}",
            "config": {"static": {"url": f"{base}/static/"}},
            "application": {"name": self.title},
        }
        return aiohttp_jinja2.render_template("page.html.jinja", request, context)

    async def on_startup(self, app: web.Application) -> None:
        """Say the address, and nothing else, on stdout, as soon as it answers."""
        self._announcing = asyncio.create_task(self._announce())

    async def _announce(self) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, self.port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            print(self.address, flush=True)
            return

    def initialize_logging(self) -> None:
        """Nothing of textual-serve's own log: it would print addresses."""


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def check_port(port: int) -> None:
    """Raises UsageProblem where the port is taken."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError as problem:
            raise UsageProblem(f"--port {port}: {problem.strerror}; choose another, or 0 for a free one") from None


def session_command(path: Path | None, *, readonly: bool, replay: bool) -> str:
    """The process behind one browser tab."""
    words = [sys.executable, "-m", "kdwatch.tui.web.session"]
    words += ["--run", str(path)] if path else []
    words += [] if readonly else ["--control"]
    words += ["--replay"] if replay else []
    return shlex.join(words)


def serve(path: Path | None, *, port: int, readonly: bool, replay: bool) -> None:
    """Serve until SIGINT or SIGTERM. Raises UsageProblem where the port is taken."""
    port = port or free_port()
    check_port(port)
    command = session_command(path, readonly=readonly, replay=replay)
    ScreenServer(command, port, secrets.token_urlsafe(24)).serve()
