"""One clear line for bad input: exit 2, no traceback."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from kdwatch.rundir.errors import UsageProblem
from kdwatch.rundir.text import clean

EXIT_USAGE = 2
EXIT_STAGE_FAILED = 1
EXIT_OVER_BUDGET = 3

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)

F = TypeVar("F", bound=Callable[..., Any])


def one_line_errors(command: F) -> F:
    """Decorator of a command's function, below the click decorators: UsageProblem becomes one line on stderr
    and exit code 2, and so does a file or a disk that cannot be used; a closed output pipe ends quietly."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except UsageProblem as problem:
            fail(str(problem))
        except BrokenPipeError:
            _quiet_stdout()
            raise SystemExit(0) from None
        except OSError as problem:
            if problem.filename:
                fail(f"{problem.filename}: {problem.strerror}: check the path, its permissions and space")
            if problem.errno not in DISK_ERRORS:
                raise
            _quiet_stdout()
            fail(f"standard output: cannot be written ({problem.strerror}): free space there")

    return wrapped  # type: ignore[return-value]


def fail(text: str, code: int = EXIT_USAGE) -> NoReturn:
    """Print one line to stderr and exit."""
    click.echo(f"kdwatch: {clean(text, 2000)}", err=True)
    raise SystemExit(code)


def _quiet_stdout() -> None:
    """The reader of our output is gone: keep the interpreter from complaining at exit."""
    try:
        sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: SIM115, PTH123  (lives until exit)
    except OSError:
        pass
