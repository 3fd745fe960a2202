"""The command palette: the keys of the screen that is shown, found by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from kdwatch.tui.keys import Key, shown


class KeyCommands(Provider):
    """Every key that works here, as a command."""

    def _keys(self) -> list[Key]:
        app: Any = self.app
        base = app.base_screen
        return app.keys_now(base.NAME) if base is not None else []

    def _call(self, key: Key) -> Any:
        return partial(self.app.run_action, f"app.key('{key.id}')")

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for key in self._keys():
            yield DiscoveryHit(f"{key.label}  ({shown(key.keys)})", self._call(key), help=key.help)

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for key in self._keys():
            text = f"{key.label}: {key.help}"
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), self._call(key), help=f"key {shown(key.keys)}")
