"""The built-in stages as the recorder sees them. No built-in is imported here, only its description."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from kdwatch.rundir.text import clean

if TYPE_CHECKING:
    from kdwatch.stages.registry import BuiltinStage


class SettingsProblem(Exception):
    """A setting of a built-in stage that cannot be: where below `with:`, and what."""

    def __init__(self, location: tuple[str | int, ...], text: str) -> None:
        super().__init__(text)
        self.location = location
        self.text = text


@dataclass(frozen=True)
class Builtin:
    """One entry of the registry of stages."""

    uses: str
    kind: str
    module: str
    """Run as `python -m MODULE`."""
    makes: str | None
    """Kind of the artifact that it makes."""
    inputs: dict[str, tuple[str, ...]]
    """Kinds of artifact that each input takes."""
    optional: frozenset[str]
    """Inputs that may be left out."""
    settings: type[BaseModel] | None
    code_version: str
    """Changes when the same settings would give another output."""
    ignored: frozenset[str]
    """Settings that do not change the output (batch sizes, devices)."""
    paths: frozenset[str]
    """Settings that may name a file or directory whose content is part of the output's identity."""
    reuse: bool
    """Whether a stored output is taken by default."""
    grace_s: float
    """Seconds that it may need to save after TERM."""

    def accepts(self, name: str) -> tuple[str, ...]:
        """Kinds of artifact that an input takes."""
        return self.inputs.get(name, ())

    def required_inputs(self, settings: dict[str, Any]) -> list[str]:
        """Inputs that must be given; a setting of the same name (a path) stands in for one."""
        return [name for name in self.inputs if name not in self.optional and not settings.get(name)]


@cache
def _registry() -> dict[str, Builtin]:
    from kdwatch.stages.registry import BUILTIN

    return {uses: _builtin(uses, entry) for uses, entry in BUILTIN.items()}


def _builtin(uses: str, entry: BuiltinStage) -> Builtin:
    return Builtin(
        uses=uses,
        kind=entry.kind,
        module=entry.module,
        makes=entry.makes,
        inputs={name: tuple(kinds) for name, kinds in entry.inputs.items()},
        optional=frozenset(entry.optional_inputs),
        settings=entry.settings,
        code_version=entry.code_version,
        ignored=frozenset(entry.ignored_settings),
        paths=frozenset(entry.path_settings),
        reuse=bool(entry.reuse),
        grace_s=entry.grace_s,
    )


def names() -> list[str]:
    """Names that `uses:` may have."""
    return list(_registry())


def get(uses: str) -> Builtin:
    """One built-in stage; KeyError if there is none of this name."""
    return _registry()[uses]


def check_settings(builtin: Builtin, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with defaults filled in, as plain JSON values.

    Raises SettingsProblem with the place of the first error.
    """
    if builtin.settings is None:
        if settings:
            name = next(iter(settings))
            raise SettingsProblem((name,), f"{builtin.uses} has no settings: take it out")
        return {}
    try:
        return builtin.settings.model_validate(settings).model_dump(mode="json", by_alias=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = tuple(part for part in first["loc"] if not isinstance(part, str) or "[" not in part)
        raise SettingsProblem(location, _text(first, builtin, location)) from None


def _text(detail: Any, builtin: Builtin, location: tuple[str | int, ...]) -> str:
    if detail["type"] == "extra_forbidden" and builtin.settings is not None and len(location) == 1:
        from difflib import get_close_matches

        known = [field.alias or name for name, field in builtin.settings.model_fields.items()]
        near = get_close_matches(str(location[0]), known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
        return f"unknown setting of {builtin.uses}: {hint}"
    if detail["type"] == "missing":
        return f"{builtin.uses} needs it: add it"
    return clean(detail["msg"].removeprefix("Value error, "), 300)
