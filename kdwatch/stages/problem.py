"""What a stage says when it cannot go on."""

from __future__ import annotations

SAYS = "kdwatch stage: "
"""How a built-in stage begins its last line."""


class StageProblem(Exception):
    """Bad input or a failed precondition: one line that says what, where and what to do."""

    exit_code = 2


class TrainingProblem(StageProblem):
    """The work itself went wrong (a loss that is no number): exit code 1."""

    exit_code = 1


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of a library's message, the error's kind where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:most]
