"""What a stage says when it cannot go on."""

from __future__ import annotations


class StageProblem(Exception):
    """Bad input or a failed precondition: one line that says what, where and what to do."""

    exit_code = 2


class TrainingProblem(StageProblem):
    """The work itself went wrong (a loss that is no number): exit code 1."""

    exit_code = 1
