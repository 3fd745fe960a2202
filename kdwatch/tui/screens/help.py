"""Help: the keys of the screen that it was called from, then the marks and words on the screens."""

from __future__ import annotations

from kdwatch.tui.keys import shown
from kdwatch.tui.screens.listing import ListingScreen
from kdwatch.tui.view.line import Line, left, wrapped

MARKS: tuple[tuple[str, str], ...] = (
    ("123 J", "measured: a hardware energy counter, or sampled power integrated (column source)"),
    ("~123 J", "estimated by a model, such as TDP times CPU share; no sensor measured it"),
    ("^123 J", "imported from another tool's log"),
    ("?123 J", "predicted"),
    ("n/a", "unknown; never 0"),
    ("-", "not reported by this stage or sensor"),
    ("gap", "a part of the plot without readings stays empty"),
    ("unattributed", "energy outside every stage; stages + unattributed = total"),
    ("dashes", "across the plot: mean power that would use up the budget just at the forecast end"),
)
"""What is drawn, and what it means."""


class HelpScreen(ListingScreen):
    """Keys and marks."""

    NAME = "help"
    TITLE_TEXT = "Help"

    def __init__(self) -> None:
        super().__init__()
        self.about = "run"

    def on_screen_resume(self) -> None:
        """Speak of the screen that was left."""
        self.about = self.kd.screen_before or "run"
        super().on_screen_resume()

    def heading(self) -> str:
        return f"Help on the screen {self.about}"

    def content(self, width: int) -> list[Line]:
        keys = self.kd.keys_now(self.about)
        lines: list[Line] = [(("Keys", "head"), ("   to change them: docs/screens.md", "dim"))]
        for key in keys:
            name = left(shown(key.keys, every=True), 12)
            asks = "  (asks first)" if key.control else ""
            lines += _entry(name, "key", key.help + asks, width)
        lines += [(), (("Marks", "head"),)]
        lines += [line for mark, text in MARKS for line in _entry(left(mark, 12), "accent", text, width)]
        lines += [(), (("This screen", "head"),), (("  " + self.own_cost(), ""),)]
        return lines

    def own_cost(self) -> str:
        """What the monitor itself takes."""
        frame = self.kd.frame
        share = frame.cpu_share if frame else None
        return "its own CPU share: " + ("n/a" if share is None else f"{share * 100:.1f}% of one core")


def _entry(name: str, tone: str, text: str, width: int) -> list[Line]:
    """A key or mark and its text, wrapped beside it."""
    first, *rest = wrapped(text, max(width - 15, 16))
    return [((f"  {name}", tone), (first, "")), *(((" " * 14 + more, ""),) for more in rest)]
