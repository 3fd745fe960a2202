"""Settings of the person, not of a run: config file (TOML), environment, command line, in that order of rank.

Between file and environment stand the choices made on the screen (unit, theme), which are kept in
`screen.json` beside the runs. Hooks come from the config file only; nothing is ever read from a run directory.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.paths import home

HOOK_KINDS = ("stage_ended", "stage_failed", "budget_80", "budget_100", "sensor_lost", "run_ended")
"""Notices that a command can be hooked to."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its kind, its default, the values it may take."""

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def variable(self) -> str:
        """Name of its environment variable."""
        return f"KDWATCH_{self.name.upper()}"


SETTINGS: tuple[Setting, ...] = (
    Setting("units", str, "J", "energy unit on the screens", ("J", "Wh", "kWh", "co2e", "money")),
    Setting("theme", str, "dark", "colours of the screens", ("dark", "light", "terminal")),
    Setting("glyphs", str, "auto", "what plots are drawn with", ("auto", "braille", "block", "ascii")),
    Setting("refresh", float, 1.0, "seconds between two pictures", low=0.2, high=60.0),
    Setting("bell", bool, False, "ring the terminal's bell with a notice"),
    Setting("readonly", bool, False, "no key acts on a run"),
    Setting("region", str, None, "where the electricity comes from (FRA), for runs that do not say"),
    Setting("intensity", float, None, "g CO2e per kWh, instead of a region's", low=0.0, high=5000.0),
    Setting("pue", float, None, "facility energy over IT energy, for runs that do not say", low=1.0, high=10.0),
    Setting("energy_price", float, None, "price of one kWh", low=0.0, high=1000.0),
    Setting("currency", str, "EUR", "currency of energy_price"),
)
"""Every setting, in the order that `kdwatch config` shows them."""


@dataclass(frozen=True)
class Settings:
    """The settings in force, and where each came from."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    """For each name: `default`, the config file's path, `chosen on the screen`, the variable, `command line`."""
    keys: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, list[str]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def config_path() -> Path:
    """`$KDWATCH_CONFIG`, else `$XDG_CONFIG_HOME/kdwatch/config.toml`, else `~/.config/kdwatch/config.toml`."""
    own = os.environ.get("KDWATCH_CONFIG")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".config") / "kdwatch" / "config.toml"


def state_path() -> Path:
    """File with the choices made on the screen."""
    return home() / "screen.json"


def load(command_line: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force.

    Raises UsageProblem naming file or variable, key, and what is allowed.
    """
    values = {s.name: s.default for s in SETTINGS}
    sources = {s.name: "default" for s in SETTINGS}
    table, path = _read_file(), str(config_path())
    layers = [
        (path, {k: v for k, v in table.items() if k not in ("keys", "hooks")}),
        ("chosen on the screen", load_state()),
        ("environment", _from_environment()),
        ("command line", {k: v for k, v in (command_line or {}).items() if v is not None}),
    ]
    by_name = {s.name: s for s in SETTINGS}
    for source, layer in layers:
        for name, raw in layer.items():
            if name not in by_name:
                raise UsageProblem(f"{source}: {name}: no such setting; one of {', '.join(by_name)}, keys, hooks")
            where = f"${by_name[name].variable}" if source == "environment" else source
            values[name] = _checked(by_name[name], raw, where)
            sources[name] = where
    return Settings(values, sources, _keys(table, path), _hooks(table, path))


def _read_file() -> dict[str, Any]:
    path = config_path()
    try:
        with path.open("rb") as f:
            return tomllib.load(f)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise UsageProblem(f"{path}: cannot be read ({problem.strerror}); fix its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageProblem(f"{path}: not TOML: {problem}; see docs/screens.md") from None


def _from_environment() -> dict[str, str]:
    return {s.name: os.environ[s.variable] for s in SETTINGS if os.environ.get(s.variable)}


def _checked(setting: Setting, raw: Any, where: str) -> Any:
    """`raw` as the setting's kind, or a UsageProblem."""
    value = _converted(setting, raw, where)
    if setting.choices and value not in setting.choices:
        raise UsageProblem(f"{where}: {setting.name}: {value!r}: use one of {', '.join(setting.choices)}")
    if setting.kind is float and not (setting.low or 0.0) <= value <= (setting.high or float("inf")):
        raise UsageProblem(f"{where}: {setting.name}: {value:g}: use {setting.low:g} to {setting.high:g}")
    return value


def _converted(setting: Setting, raw: Any, where: str) -> Any:
    if setting.kind is bool:
        if isinstance(raw, bool):
            return raw
        word = str(raw).lower()
        if word in ("1", "true", "yes", "on"):
            return True
        if word in ("0", "false", "no", "off"):
            return False
        raise UsageProblem(f"{where}: {setting.name}: {raw!r}: use true or false")
    if setting.kind is float:
        if isinstance(raw, bool):
            raise UsageProblem(f"{where}: {setting.name}: {raw!r}: use a number")
        try:
            return float(raw)
        except (TypeError, ValueError):
            raise UsageProblem(f"{where}: {setting.name}: {raw!r}: use a number") from None
    if not isinstance(raw, str):
        raise UsageProblem(f"{where}: {setting.name}: {raw!r}: use text in quotes")
    return raw


def _keys(table: Mapping[str, Any], path: str) -> dict[str, str]:
    keys = table.get("keys", {})
    if not isinstance(keys, dict) or not all(isinstance(v, str) for v in keys.values()):
        raise UsageProblem(f"{path}: keys: a table of action = 'key'; see docs/screens.md")
    return keys


def _hooks(table: Mapping[str, Any], path: str) -> dict[str, list[str]]:
    hooks = table.get("hooks", {})
    if not isinstance(hooks, dict):
        raise UsageProblem(f"{path}: hooks: a table of notice = ['command', 'argument']")
    out = {}
    for name, command in hooks.items():
        if name not in HOOK_KINDS:
            raise UsageProblem(f"{path}: hooks.{name}: no such notice; one of {', '.join(HOOK_KINDS)}")
        if not isinstance(command, list) or not command or not all(isinstance(c, str) for c in command):
            raise UsageProblem(f"{path}: hooks.{name}: a list of command and arguments, ['notify-send', 'kdwatch']")
        out[name] = list(command)
    return out


def load_state() -> dict[str, Any]:
    """Choices made on the screen; an unreadable or foreign file counts as none."""
    try:
        data = json.loads(state_path().read_bytes())
    except (OSError, ValueError):
        return {}
    by_name = {s.name: s for s in SETTINGS}
    found = {k: data[k] for k in ("units", "theme") if isinstance(data, dict) and isinstance(data.get(k), str)}
    return {k: v for k, v in found.items() if v in by_name[k].choices}


def save_state(**choices: str) -> None:
    """Keep choices made on the screen; a disk that cannot be written is no reason to stop."""
    path = state_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({**load_state(), **choices}) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        pass
