"""Who may speak to the server: loopback is shared on a GPU node, so an address alone is no permission.

Every request must carry one of our own Host names (against DNS rebinding), every request with an Origin one of our own
(against other sites in the same browser), and everything but the static files the token. The page gives the token on to
its socket. There is no cookie: a browser would send it to every port of this machine, also to another user's.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names of this machine's own."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def headers(port: int) -> dict[str, str]:
    """Headers of every answer: nothing is loaded from elsewhere, nothing is kept, nobody may frame the page."""
    sockets = " ".join(f"ws://{name}:{port}" for name in LOOPBACK[:2])
    return {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
            f"img-src 'self' data:; connect-src 'self' {sockets}; frame-ancestors 'none'; base-uri 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


class Guard:
    """Checks Host, Origin and token of a request."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self.port = port

    def refusal(self, request: web.Request) -> str | None:
        """Why the request is refused, or None."""
        hosts = {f"{name}:{self.port}" for name in LOOPBACK}
        if request.headers.get("Host", "") not in hosts:
            return "this server answers to 127.0.0.1 and localhost only"
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return "requests from other sites are refused"
        if request.path.startswith("/ws") and origin is None:
            return "a socket is opened by the page only"
        if not request.path.startswith("/static/") and not self._has_token(request):
            return "open the whole address that kdwatch serve printed, with its token"
        return None

    def _has_token(self, request: web.Request) -> bool:
        given = request.match_info.get("token") or request.query.get("token") or ""
        return hmac.compare_digest(given.encode(), self._token.encode())

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse, or answer with our headers."""
        problem = self.refusal(request)
        if problem is not None:
            return web.Response(status=403, text=f"kdwatch: {problem}\n", headers=headers(self.port))
        response = await handler(request)
        if not response.prepared:
            response.headers.update(headers(self.port))
        return response
