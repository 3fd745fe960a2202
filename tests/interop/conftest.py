"""What the import and export tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdwatch.interop.importing import Imported, check_options, import_paths
from kdwatch.interop.load import load_log
from kdwatch.interop.model import ImportOptions, LogProblem
from kdwatch.interop.summary import log_json, problem_json

LOGS = Path(__file__).parents[1] / "data" / "logs"


@pytest.fixture
def logs() -> Path:
    return LOGS


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Write a file and read it as an import would: the object of `--json`, an error included."""

    def write_and_read(content: str | bytes, name: str = "log.csv", **options: Any) -> dict[str, Any]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            return log_json(load_log(path, ImportOptions(**options)))
        except LogProblem as problem:
            return problem_json(str(path), problem)

    return write_and_read


@pytest.fixture
def bring() -> Callable[..., Imported]:
    """Import files into the test's home."""

    def run_import(*paths: Path, interval: float | None = None, tz: str | None = None, **options: Any) -> Imported:
        return import_paths(list(paths), check_options(options.pop("form", None), interval, tz), **options)

    return run_import
