"""kdwatch: watch, account for and plan the energy of distillation pipelines."""

from typing import Any

__version__ = "0.1.0"

_SESSION = ("Measurement", "Session", "begin_window", "end_window", "stage")


def __getattr__(name: str) -> Any:
    """The measuring API, imported on first use so that `import kdwatch` stays light."""
    if name in _SESSION:
        from kdwatch import session

        return getattr(session, name)
    raise AttributeError(f"module 'kdwatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SESSION])
