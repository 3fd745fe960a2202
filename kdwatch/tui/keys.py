"""The one table of keys: bindings, footer, help, palette and docs/screens.md all come from it.

A key means the same on every screen. Letters, digits, arrows and punctuation; of the ctrl keys only ctrl+p
(palette) and ctrl+q (quit at once), because tmux, screen and terminals take the others. Each key can be given
another name in the config file: `[keys]`, `freeze = "p"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kdwatch.rundir.errors import UsageProblem

EVERYWHERE = "*"
"""A key of every screen."""

RUN, RUNS, COMPARE, PLAN, LOG, SENSORS, HELP = "run", "runs", "compare", "plan", "log", "sensors", "help"
"""Names of the screens; Replay is the Run screen on a recording."""

SCREENS = (RUNS, RUN, COMPARE, PLAN, LOG, SENSORS, HELP)
"""Every screen, in the order that help shows them."""


@dataclass(frozen=True, slots=True)
class Key:
    """One action and the keys that call it."""

    id: str
    """Name in the config file, and of the action: `action_<id>`."""
    keys: str
    """Textual key names, comma between alternatives."""
    label: str
    """One or two words for the footer."""
    help: str
    """What it does, for help, palette and docs."""
    screens: tuple[str, ...] = (EVERYWHERE,)
    """Where it applies."""
    rank: int = 50
    """Place in the footer; low ones stay when it is narrow."""
    control: bool = False
    """Acts on the run: asks first, and is off under --readonly."""
    replay: bool = False
    """Only with a recording."""

    def applies(self, screen: str) -> bool:
        """True if the key works on the screen of that name."""
        return EVERYWHERE in self.screens or screen in self.screens


KEYS: tuple[Key, ...] = (
    Key("help", "question_mark", "help", "Keys and marks of this screen", rank=1),
    Key("leave", "q", "quit", "Leave the screen; a live run goes on", rank=2),
    Key("back", "escape", "back", "Back to the screen before", rank=60),
    Key("palette", "ctrl+p", "palette", "Find an action by name", rank=70),
    Key("quit_now", "ctrl+q", "quit now", "Leave at once, without asking", rank=90),
    Key("go_runs", "1", "runs", "Runs: yours and the samples", rank=40),
    Key("go_run", "2", "run", "Run: stages, power, devices, log", rank=41),
    Key("go_compare", "3", "compare", "Compare two to four runs", rank=42),
    Key("go_plan", "4", "plan", "Plan: a method for an energy budget", rank=43),
    Key("go_log", "5,l", "log", "Log of the selected stage", rank=44),
    Key("go_sensors", "6,i", "sensors", "Sensors: what each gives and how to get more", rank=45),
    Key("units", "u", "units", "Energy unit: J, Wh, kWh, kg CO2e, money", rank=11),
    Key("theme", "t", "theme", "Dark, light, or the terminal's own colours", rank=80),
    Key("freeze", "space", "pause", "Pause: a replay stops, a live view freezes", (RUN, LOG), rank=5),
    Key("zoom_in", "z", "zoom", "Plot window shorter: all, 1 h, 10 min, 1 min", (RUN,), rank=10),
    Key("zoom_out", "Z", "zoom out", "Plot window longer", (RUN,), rank=61),
    Key("next_device", "d", "device", "Plot the next device, then the total", (RUN,), rank=13),
    Key("previous_device", "D", "device back", "Plot the device before", (RUN,), rank=62),
    Key("follow", "f", "follow", "Follow the newest again", (RUN, LOG), rank=14),
    Key("up", "up,k", "up", "Line up", rank=81),
    Key("down", "down,j", "down", "Line down", rank=82),
    Key("page_up", "pageup", "page up", "Page up", rank=83),
    Key("page_down", "pagedown", "page down", "Page down", rank=84),
    Key("first", "home", "first", "First line", rank=85),
    Key("last", "end,G", "last", "Last line", rank=86),
    Key("left", "left", "left", "Text or choice to the left", (LOG, PLAN, COMPARE), rank=87),
    Key("right", "right", "right", "Text or choice to the right", (LOG, PLAN, COMPARE), rank=88),
    Key("open", "enter", "open", "Open what is selected", (RUNS, RUN), rank=4),
    Key("play", "p", "replay", "Play the run from its start", (RUNS, RUN), rank=17),
    Key("mark", "m", "mark", "Mark a run for Compare", (RUNS,), rank=6),
    Key("step_back", "left_square_bracket", "step back", "One sample back", (RUN,), rank=33, replay=True),
    Key("step", "right_square_bracket", "step", "One sample on", (RUN,), rank=32, replay=True),
    Key("back_10", "comma", "-10 s", "10 s back", (RUN,), rank=30, replay=True),
    Key("on_10", "full_stop", "+10 s", "10 s on", (RUN,), rank=31, replay=True),
    Key("slower", "less_than_sign", "slower", "Half the speed, down to 1x", (RUN,), rank=8, replay=True),
    Key("faster", "greater_than_sign", "faster", "Double the speed, up to 1000x", (RUN,), rank=7, replay=True),
    Key("goto", "g", "go to", "Go to a time: 1:30, 90s, 50%", (RUN,), rank=9, replay=True),
    Key("next_stage", "n", "next stage", "To the next stage's start", (RUN, LOG), rank=15),
    Key("previous_stage", "N", "stage before", "To the stage before", (RUN, LOG), rank=34),
    Key("loop", "o", "loop", "Begin again at the end", (RUN,), rank=35, replay=True),
    Key("stop_stage", "s", "stop stage", "Stop the running stage", (RUN,), rank=20, control=True),
    Key("skip_stage", "x", "skip", "Skip the selected stage", (RUN,), rank=21, control=True),
    Key("stop_run", "S", "stop run", "Stop the whole run", (RUN,), rank=22, control=True),
    Key("extend", "b", "budget", "Extend the energy budget", (RUN,), rank=23, control=True),
    Key("find", "slash", "find", "Find text", (LOG,), rank=6),
    Key("wrap", "w", "wrap", "Long lines: cut or wrap", (LOG,), rank=16),
    Key("edit", "e", "edit", "Change budget, quality, reuse", (PLAN,), rank=5),
    Key("more_students", "plus,equals_sign", "N up", "One more student per teacher (N)", (PLAN,), rank=6),
    Key("fewer_students", "minus", "N down", "One student fewer per teacher", (PLAN,), rank=7),
    Key("next_region", "v", "region", "Next region of the grid", (PLAN,), rank=8),
    Key("teacher_batch", "c", "teacher batch", "What if the teacher generated at another batch", (PLAN,), rank=9),
    Key("answer_length", "a", "answers", "What if answers were shorter (max_new_tokens)", (PLAN,), rank=10),
    Key("write_recipe", "W", "write recipe", "Write the recommendation as a recipe", (PLAN,), rank=12, control=True),
    Key("start_recipe", "X", "start", "Start the recipe that was written", (PLAN,), rank=13, control=True),
    Key("copy", "y", "copy", "Copy the command for this", (RUNS, RUN, COMPARE, PLAN), rank=63),
    Key("reload", "r", "reload", "Read again from disk", (RUNS, COMPARE, PLAN, SENSORS), rank=64),
)
"""Every key."""

_SHOWN = {
    "question_mark": "?",
    "space": "space",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "comma": ",",
    "full_stop": ".",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "slash": "/",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "escape": "esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}


def shown(keys: str, every: bool = False) -> str:
    """Key names as printed on the keyboard: the first alternative, or all of them."""
    names = [_SHOWN.get(k, k) for k in keys.split(",")]
    return " ".join(names) if every else names[0]


def textual_name(key: str) -> str:
    """The name that Textual gives to a key written as on the keyboard: `?` is `question_mark`."""
    back = {v: k for k, v in _SHOWN.items()}
    return back.get(key.strip(), key.strip())


def remapped(keymap: Mapping[str, str]) -> tuple[Key, ...]:
    """The table with the user's keys put in.

    Raises:
        UsageProblem: an unknown id, a ctrl key, or one key with two meanings; the text says which.
    """
    known = {k.id for k in KEYS}
    for name, keys in keymap.items():
        if name not in known:
            raise UsageProblem(f"config file: keys.{name}: no such key; one of {', '.join(sorted(known))}")
        if not isinstance(keys, str) or not keys.strip():
            raise UsageProblem(f"config file: keys.{name}: a key name or several with commas, not {keys!r}")
    table = tuple(replace(k, keys=_joined(keymap[k.id])) if k.id in keymap else k for k in KEYS)
    _check(table)
    return table


def _joined(keys: str) -> str:
    """`", ?"` style lists to Textual names; a lone comma is the comma key."""
    if keys.strip() == ",":
        return "comma"
    return ",".join(textual_name(k) for k in keys.split(",") if k.strip())


def _check(table: Iterable[Key]) -> None:
    """Refuse ctrl keys beyond the two and a key with two meanings on one screen."""
    seen: dict[tuple[str, str], str] = {}
    for key in table:
        for name in key.keys.split(","):
            if name.startswith("ctrl+") and name not in ("ctrl+p", "ctrl+q"):
                raise UsageProblem(f"config file: keys.{key.id}: {name}: terminals take ctrl keys; use another")
            for screen in SCREENS:
                if not key.applies(screen):
                    continue
                other = seen.setdefault((screen, name), key.id)
                if other != key.id:
                    raise UsageProblem(f"config file: keys.{key.id}: {shown(name)} already means {other}")


def for_screen(screen: str, table: Iterable[Key] = KEYS, *, replay: bool = False, readonly: bool = False) -> list[Key]:
    """The keys that work on a screen, most important first."""
    fit = (
        k for k in table if k.applies(screen) and (replay or not k.replay) and not (k.control and (readonly or replay))
    )
    return sorted(fit, key=lambda k: k.rank)


def markdown(table: Iterable[Key] = KEYS) -> str:
    """The table of keys for docs/screens.md."""
    lines = ["| Key | Name in the config file | What it does | Where |", "|---|---|---|---|"]
    for key in table:
        where = "everywhere" if EVERYWHERE in key.screens else ", ".join(key.screens)
        where += " (recordings)" if key.replay else ""
        where += "; asks first; off with `--readonly`" if key.control else ""
        keys = " ".join(f"`{shown(k)}`" for k in key.keys.split(","))
        lines.append(f"| {keys} | `{key.id}` | {key.help} | {where} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
