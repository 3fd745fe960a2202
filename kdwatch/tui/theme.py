"""Colours: a dark theme, a light one, and the terminal's own. Chosen so that 256 colours come near them: greys stay
grey, the plot's fill stays blue."""

from __future__ import annotations

from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    name="kdwatch-dark",
    primary="#6cb6eb",
    secondary="#c099e8",
    accent="#6cb6eb",
    foreground="#d7dae0",
    background="#121417",
    surface="#181b20",
    panel="#24282f",
    success="#8ec07c",
    warning="#e5b567",
    error="#ef7171",
    dark=True,
    variables={"line": "#6cb6eb", "fill": "#2d5278", "quiet": "#858d99", "stage-mark": "#c099e8"},
)

LIGHT = Theme(
    name="kdwatch-light",
    primary="#0b63a5",
    secondary="#7a3fb0",
    accent="#0b63a5",
    foreground="#1d2127",
    background="#fbfbf9",
    surface="#f2f2ee",
    panel="#e3e4de",
    success="#2f7d32",
    warning="#96610a",
    error="#b3261e",
    dark=False,
    variables={"line": "#0b63a5", "fill": "#a9cbeb", "quiet": "#666d78", "stage-mark": "#7a3fb0"},
)

_PLAIN = BUILTIN_THEMES["ansi-dark"].variables | {
    "line": "ansi_cyan",
    "fill": "ansi_blue",
    "quiet": "ansi_bright_black",
    "stage-mark": "ansi_magenta",
}

TERMINAL = Theme(
    name="kdwatch-terminal",
    primary="ansi_cyan",
    secondary="ansi_magenta",
    accent="ansi_cyan",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    dark=True,
    ansi=True,
    variables=_PLAIN,
)

THEMES = {"dark": DARK, "light": LIGHT, "terminal": TERMINAL}
"""Themes by the name that the setting `theme` takes."""
